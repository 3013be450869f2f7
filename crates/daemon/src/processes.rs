//! Finding processes and ending them, and never another that got the number of one that is gone:
//! a process is taken by a descriptor, then looked at again, and only then sent a signal.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::{
    collections::HashMap,
    fs, io,
    thread::sleep,
    time::{Duration, Instant},
};

/// The variable that marks the processes of a job on a host: `JOB.HOST`.
pub(crate) const MARK: &str = "GOSSAMER_JOB";

/// Between two looks at processes that were told to end.
const PAUSE: Duration = Duration::from_millis(2);

/// A process, at the moment when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// In the kernel's ticks since the machine was started.
    started: u64,
    is_dead: bool,
}

impl Process {
    /// The process with this number; `None` if there is none.
    fn look(pid: i32) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(pid: i32, stat: &str) -> Option<Self> {
        // The name, in parentheses, may hold anything, even parentheses.
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        Some(Self {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
            is_dead: matches!(*fields.first()?, "Z" | "X"),
        })
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
    }

    /// Sends a signal, if the process is still there.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        let gone = |error| error == rustix::io::Errno::SRCH;
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
}

/// All processes that this one may see.
fn all() -> io::Result<Vec<Process>> {
    let entries = fs::read_dir("/proc")?.flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.filter_map(Process::look).collect())
}

/// The living processes that descend from `root`, without itself.
pub(crate) fn descendants(root: i32) -> io::Result<Vec<Process>> {
    let processes = all()?;
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in processes {
        children.entry(process.parent).or_default().push(process);
    }
    let (mut found, mut next) = (Vec::new(), vec![root]);
    while let Some(parent) = next.pop() {
        let Some(theirs) = children.remove(&parent) else { continue };
        next.extend(theirs.iter().map(|process| process.pid));
        found.extend(theirs.into_iter().filter(|process| !process.is_dead));
    }
    Ok(found)
}

/// The living processes that were started with `MARK=mark` in their environment.
pub(crate) fn marked(mark: &str) -> io::Result<Vec<Process>> {
    let wanted = format!("{MARK}={mark}");
    let is_marked = |process: &Process| {
        let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        let marked = environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes());
        // It is the process whose environment was read, not its successor.
        marked && Process::look(process.pid).is_some_and(|now| now.is_same(process))
    };
    let this = std::process::id() as i32;
    let others = all()?.into_iter().filter(|process| process.pid != this && !process.is_dead);
    Ok(others.filter(is_marked).collect())
}

/// Kills what `find` finds until it finds nothing more, for at most `patience`; says how many
/// processes were killed.
///
/// # Errors
/// What the system says, or that some process did not end. That one cannot be sent a signal keeps
/// none of the others alive.
pub(crate) fn kill_all(
    patience: Duration,
    mut find: impl FnMut() -> io::Result<Vec<Process>>,
) -> io::Result<usize> {
    let deadline = Instant::now() + patience;
    let mut killed: Vec<Process> = Vec::new();
    let mut refused = None;
    loop {
        let found = find()?;
        if found.is_empty() {
            return Ok(killed.len());
        }
        if Instant::now() >= deadline {
            let pids: Vec<_> = found.iter().map(|process| process.pid).collect();
            let why = refused.map(|error: io::Error| format!(": {error}")).unwrap_or_default();
            return Err(io::Error::other(format!("processes {pids:?} do not end{why}")));
        }
        for process in found {
            if let Err(error) = process.signal(Signal::KILL) {
                refused = Some(error);
                continue;
            }
            if !killed.iter().any(|known| known.is_same(&process)) {
                killed.push(process);
            }
        }
        sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

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
        let expected = Process { pid: 7, parent: 4, group: 5, started: 22, is_dead: false };
        assert_eq!(process, expected);
        assert_eq!(Process::parse(7, "7 (a"), None);
        assert_eq!(Process::parse(7, "7 (a) S 1"), None);
    }

    #[test]
    fn descendants_are_found_and_the_marked_are_killed() {
        let mark = format!("test-{}", std::process::id());
        let (mut ours, mut other) = (sleeper(&mark), sleeper("other"));
        let found = descendants(std::process::id() as i32).unwrap();
        for child in [&ours, &other] {
            assert!(found.iter().any(|process| process.pid == child.id() as i32));
        }
        kill_all(Duration::from_secs(60), || marked(&mark)).unwrap();
        ours.wait().unwrap();
        assert!(other.try_wait().unwrap().is_none(), "the other is alive");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn one_that_cannot_be_sent_a_signal_keeps_no_other_alive() {
        let mut child = sleeper("beside another");
        let process = Process::look(child.id() as i32).unwrap();
        // A thread is not to be had as a process, whoever asks.
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let own = fs::read_link("/proc/thread-self").unwrap();
            tell.send(own.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap();
            let _ = ended.recv();
        });
        let refuses = Process::look(told.recv().unwrap()).unwrap();
        refuses.signal(Signal::KILL).unwrap_err();
        let find = || {
            let is_there = Process::look(process.pid).is_some_and(|now| !now.is_dead);
            Ok(if is_there { vec![refuses, process] } else { vec![] })
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
