//! Finds and kills processes. A number that the kernel has reused is never signalled: a process is
//! opened by a descriptor, then checked again, and only then sent a signal.
//!
//! [`kill_all`] stops processes before it kills them, so that none sees another die and replaces it. A
//! process that forks and exits at once ends before it can be signalled, but its process group
//! remains: signalling a group is atomic with respect to `fork`.
//!
//! A subreaper can tell when all its descendants have ended. A process whose parent has ended becomes
//! its child, and a child stays, at least as a zombie, until it is reaped. So while a descendant is
//! left, there is a child; see [`strays`].

use std::collections::{BTreeSet, HashMap};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process_group, pidfd_open, pidfd_send_signal,
    waitpid,
};

/// The variable that marks the processes of a job on a host: `JOB.HOST`.
pub(crate) const MARK: &str = "GOSSAMER_JOB";

/// Interval at which processes that were sent a signal are checked.
const PAUSE: Duration = Duration::from_millis(2);
/// How many scans in a row must find no process, if one scan may miss some.
const QUIET_LOOKS: u32 = 3;
/// After this many scans that still find running processes, all are killed without being stopped.
const STOPPING_LOOKS: u32 = 5;

/// A process at the moment of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    session: i32,
    /// In the kernel's ticks since the machine was started.
    started: u64,
    is_dead: bool,
    /// Whether to kill its whole process group.
    is_group_ours: bool,
}

/// The result of a scan for processes to kill.
#[derive(Debug)]
pub(crate) struct Look {
    /// The living ones.
    pub(crate) alive: Vec<Process>,
    /// Whether none is left and no new one can appear.
    pub(crate) is_over: bool,
}

impl Process {
    /// The process with this number; `None` if it does not exist.
    fn look(pid: i32) -> Option<Self> {
        // The name may hold any bytes, and the kernel cuts a long one inside a character.
        Self::parse(pid, &String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
    }

    fn parse(pid: i32, stat: &str) -> Option<Self> {
        // The name, in parentheses, may hold anything, even parentheses.
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        Some(Self {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
            // A process whose first thread has ended is shown as a zombie while the others run.
            is_dead: matches!(*fields.first()?, "Z" | "X")
                && fields.get(17)?.parse::<u32>().ok()? <= 1,
            is_group_ours: false,
        })
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
    }

    /// Sends a signal, if the process is still there.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        let gone = |error| error == Errno::SRCH;
        let taken = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(error) if gone(error) => return Ok(()),
            taken => taken?,
        };
        if !Self::look(self.pid).is_some_and(|now| now.is_same(self)) {
            return Ok(());
        }
        match pidfd_send_signal(taken, signal) {
            Err(error) if !gone(error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Sends a signal, to its whole process group if that is known to be ours.
    fn signal_widely(&self, signal: Signal) -> io::Result<()> {
        // Group 1 would be every process there is. The number of a group is not given to another
        // while a member is left, even as a zombie.
        if self.is_group_ours
            && self.group > 1
            && let Some(group) = Pid::from_raw(self.group)
            && Self::look(self.pid).is_some_and(|now| now.is_same(self) && now.group == self.group)
        {
            // The next scan finds the rest of the group.
            let _ = kill_process_group(group, signal);
        }
        self.signal(signal)
    }
}

/// All processes that this one can see.
fn all() -> io::Result<Vec<Process>> {
    let entries = fs::read_dir("/proc")?.flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.filter_map(Process::look).collect())
}

/// Every process by its parent, and the session of this one.
fn families() -> io::Result<(HashMap<i32, Vec<Process>>, i32)> {
    let this = Process::look(std::process::id() as i32);
    let own = this.ok_or_else(|| io::Error::other("/proc does not show this process"))?.session;
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in all()? {
        children.entry(process.parent).or_default().push(process);
    }
    Ok((children, own))
}

/// The living processes of `children` that descend from `root`. A session that another process than
/// this one leads consists of descendants only, and so do its process groups.
fn living(children: &mut HashMap<i32, Vec<Process>>, own: i32, root: i32) -> Vec<Process> {
    let (mut found, mut next) = (Vec::new(), vec![root]);
    while let Some(parent) = next.pop() {
        let Some(theirs) = children.remove(&parent) else { continue };
        next.extend(theirs.iter().map(|process| process.pid));
        let alive = theirs.into_iter().filter(|process| !process.is_dead);
        found.extend(
            alive.map(|process| Process { is_group_ours: process.session != own, ..process }),
        );
    }
    found
}

/// The children of this process.
pub(crate) fn children() -> io::Result<BTreeSet<i32>> {
    let this = std::process::id() as i32;
    Ok(all()?.iter().filter(|process| process.parent == this).map(|process| process.pid).collect())
}

/// The living processes that descend from this one.
pub(crate) fn descendants() -> io::Result<Vec<Process>> {
    let (mut children, own) = families()?;
    Ok(living(&mut children, own, std::process::id() as i32))
}

/// Scans for children of this process and their descendants, except for children in `exempt` and
/// living ones in `stuck`; reaps dead children.
///
/// In a subreaper whose other children only this function reaps, a scan misses no process: while any
/// is left, there is a child, and a child disappears only by being reaped here.
pub(crate) fn strays(exempt: &BTreeSet<i32>, stuck: &BTreeSet<i32>) -> io::Result<Look> {
    let this = std::process::id() as i32;
    let (mut children, own) = families()?;
    let mut strays = children.remove(&this).unwrap_or_default();
    strays.retain(|child| {
        let is_stuck = !child.is_dead && stuck.contains(&child.pid);
        !exempt.contains(&child.pid) && !is_stuck
    });
    for dead in strays.iter().filter(|stray| stray.is_dead) {
        let Some(pid) = Pid::from_raw(dead.pid) else { continue };
        // Its status is not needed, and it is no error if it is gone already.
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
    let is_over = strays.is_empty();
    children.insert(this, strays);
    Ok(Look { alive: living(&mut children, own, this), is_over })
}

/// The living processes that were started with `MARK=mark` in their environment.
pub(crate) fn marked(mark: &str) -> io::Result<Vec<Process>> {
    let wanted = format!("{MARK}={mark}");
    let is_marked = |process: &Process| {
        let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        let marked = environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes());
        // Still the process whose environment was read, and not a new one with its number.
        marked && Process::look(process.pid).is_some_and(|now| now.is_same(process))
    };
    let this = std::process::id() as i32;
    let others = all()?.into_iter().filter(|process| process.pid != this && !process.is_dead);
    Ok(others.filter(is_marked).collect())
}

/// Scans for processes by [`marked`]. None counts as left only after several scans in a row have found
/// none: a single one misses a process that has just forked and ended.
pub(crate) fn looks_for_marked(mark: &str) -> impl FnMut() -> io::Result<Look> {
    let mut quiet = 0;
    move || {
        let alive = marked(mark)?;
        quiet = if alive.is_empty() { quiet + 1 } else { 0 };
        Ok(Look { alive, is_over: quiet >= QUIET_LOOKS })
    }
}

/// Kills the processes that `find` returns until it reports the end, for at most `timeout`. Returns
/// how many were killed.
///
/// # Errors
/// The error of the system, or that some process did not end. Processes that cannot be signalled do
/// not prevent the others from being killed.
pub(crate) fn kill_all(
    timeout: Duration,
    mut find: impl FnMut() -> io::Result<Look>,
) -> io::Result<usize> {
    let deadline = Instant::now() + timeout;
    let mut stopped: Vec<Process> = Vec::new();
    let mut killed: Vec<Process> = Vec::new();
    let mut refused = None;
    for look in 0.. {
        let Look { alive, is_over } = find()?;
        if is_over {
            break;
        }
        let is_late = Instant::now() >= deadline;
        let mut is_any_new = false;
        for process in &alive {
            if !stopped.iter().any(|known| known.is_same(process)) {
                is_any_new = true;
                stopped.push(*process);
                if let Err(error) = process.signal_widely(Signal::STOP) {
                    refused = Some(error);
                }
            }
        }
        // Late scans kill also processes that are not stopped.
        if !is_any_new || look >= STOPPING_LOOKS || is_late {
            for process in &alive {
                if let Err(error) = process.signal_widely(Signal::KILL) {
                    refused = Some(error);
                } else if !killed.iter().any(|known| known.is_same(process)) {
                    killed.push(*process);
                }
            }
        }
        if is_late {
            let pids: Vec<_> = alive.iter().map(|process| process.pid).collect();
            let why = refused.map(|error: io::Error| format!(": {error}")).unwrap_or_default();
            return Err(io::Error::other(format!("processes {pids:?} survived SIGKILL{why}")));
        }
        if !is_any_new {
            sleep(PAUSE);
        }
    }
    Ok(killed.len())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn sleeper(mark: &str) -> Child {
        let mut command = Command::new("sleep");
        command.arg("1000").env(MARK, mark).stdin(Stdio::null());
        command.spawn().expect("sleep is part of every system")
    }

    #[test]
    fn a_name_may_hold_anything() {
        let rest: Vec<String> = (4..=30).map(|field| field.to_string()).collect();
        let stat = format!("7 (a) R b ) S {}", rest.join(" "));
        let process = Process::parse(7, &stat).unwrap();
        let expected = Process {
            pid: 7,
            parent: 4,
            group: 5,
            session: 6,
            started: 22,
            is_dead: false,
            is_group_ours: false,
        };
        assert_eq!(process, expected);
        assert_eq!(Process::parse(7, "7 (a"), None);
        assert_eq!(Process::parse(7, "7 (a) S 1"), None);
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_alive_while_it_has_others() {
        let stat = |threads: &str| {
            let mut rest: Vec<String> = (4..=30).map(|field| field.to_string()).collect();
            rest[20 - 4] = threads.to_owned();
            Process::parse(7, &format!("7 (a) Z {}", rest.join(" "))).unwrap()
        };
        assert!(stat("0").is_dead && stat("1").is_dead);
        assert!(!stat("2").is_dead);
    }

    #[test]
    fn descendants_are_found_and_the_marked_are_killed() {
        let mark = format!("test-{}", std::process::id());
        let (mut ours, mut other) = (sleeper(&mark), sleeper("other"));
        let found = descendants().unwrap();
        for child in [&ours, &other] {
            assert!(found.iter().any(|process| process.pid == child.id() as i32));
        }
        kill_all(Duration::from_secs(60), looks_for_marked(&mark)).unwrap();
        ours.wait().unwrap();
        assert!(other.try_wait().unwrap().is_none(), "the other is alive");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_process_whose_name_is_not_text_is_found_and_killed() {
        let place = tempfile::tempdir().unwrap();
        // The kernel names a process after its file, up to the fifteenth byte.
        for name in [&b"\xff"[..], "cut inside of \u{20ac}".as_bytes()] {
            let program = place.path().join(OsStr::from_bytes(name));
            symlink("/bin/sh", &program).unwrap();
            let mark = format!("name-{}", std::process::id());
            let mut waiting = Command::new(program);
            waiting.args(["-c", "read line"]).stdin(Stdio::piped()).env(MARK, &mark);
            let mut child = waiting.spawn().unwrap();
            // For a moment the child still has the name of its parent.
            let comm = format!("/proc/{}/comm", child.id());
            while str::from_utf8(&fs::read(&comm).unwrap()).is_ok() {
                sleep(PAUSE);
            }
            let found = descendants().unwrap();
            let is_found = found.iter().any(|process| process.pid == child.id() as i32);
            let killed = kill_all(Duration::from_secs(60), looks_for_marked(&mark));
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(is_found, "{found:?}");
            assert_eq!(killed.unwrap(), 1);
        }
    }

    #[test]
    fn one_that_cannot_be_sent_a_signal_keeps_no_other_alive() {
        let mut child = sleeper("beside another");
        let process = Process::look(child.id() as i32).unwrap();
        // A thread cannot be opened as a process.
        let (sender, receiver) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let own = fs::read_link("/proc/thread-self").unwrap();
            sender.send(own.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap();
            let _ = ended.recv();
        });
        let refuses = Process::look(receiver.recv().unwrap()).unwrap();
        refuses.signal(Signal::KILL).unwrap_err();
        let find = || {
            let is_there = Process::look(process.pid).is_some_and(|now| !now.is_dead);
            let alive = if is_there { vec![refuses, process] } else { vec![] };
            Ok(Look { alive, is_over: !is_there })
        };
        assert_eq!(kill_all(Duration::from_secs(60), find).unwrap(), 1);
        child.wait().unwrap();
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn a_number_that_was_reused_is_left_alone() {
        let mut child = sleeper("reused");
        let mut process = Process::look(child.id() as i32).unwrap();
        process.started -= 1;
        process.signal(Signal::KILL).unwrap();
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
