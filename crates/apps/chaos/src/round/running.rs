//! A round in progress: starts the rack, reads its output, kills one process and waits for the end
//! of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process_group, pidfd_open, pidfd_send_signal,
    test_kill_process_group, waitpgid,
};

use crate::procfs::{self, Process};
use crate::round::checks::wrong_end;
use crate::round::start::start;
use crate::round::starvation::Starvation;
use crate::{Kill, Moment, Plan, RoundReport};

/// Time limit for each step of a round.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for a rack that must end, up to its last process, beside the time in which its threads
/// wait for a processor.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a rack that has not ended by then is watched.
const WATCH_LATE: Duration = Duration::from_secs(8);
/// How long its threads may wait for a processor, at most.
const MAX_STARVATION: Duration = Duration::from_secs(8);
/// Polling interval.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A line of the rack's output.
struct Line {
    is_error: bool,
    text: String,
    /// Time of arrival.
    at: Instant,
}

/// A round in progress.
pub(super) struct RunningRound {
    pub(super) plan: Plan,
    leader: Child,
    lines: Receiver<Line>,
    started: Instant,
    /// When the rack reported the start of its work.
    running: Option<Instant>,
    /// The process id of each host, as reported by the rack.
    pub(super) hosts: BTreeMap<u32, u32>,
    /// The hosts that the rack lost, once it has compared its ledgers.
    pub(super) checked: Option<BTreeSet<u32>>,
    /// Hosts reported as lost by a process, and when.
    lost: Vec<(u32, Instant)>,
    /// Whether other processes of the rack were alive at the kill.
    pub(super) has_survivors: bool,
    pub(super) report: RoundReport,
}

impl RunningRound {
    pub(super) fn start(plan: Plan, folder: &Path, descriptors: &str) -> io::Result<RunningRound> {
        let mut children = start(&plan, folder, descriptors)?;
        let started = Instant::now();
        let (sender, lines) = mpsc::channel();
        for child in &mut children {
            let pipes: [(bool, Option<Box<dyn Read + Send>>); 2] = [
                (false, child.stdout.take().map(|pipe| Box::new(pipe) as _)),
                (true, child.stderr.take().map(|pipe| Box::new(pipe) as _)),
            ];
            for (is_error, pipe) in pipes {
                let (pipe, sender) = (pipe.expect("both are piped"), sender.clone());
                thread::spawn(move || {
                    for text in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                        let at = Instant::now();
                        let text = String::from_utf8_lossy(&text).into_owned();
                        // Fails after the round has ended.
                        let _ = sender.send(Line { is_error, text, at });
                    }
                });
            }
        }
        drop(sender);
        // The pids of a job's hosts are known; other racks report theirs.
        let pids = (0..).zip(children.iter().map(Child::id));
        let hosts = if plan.over_tcp() { pids.collect() } else { BTreeMap::new() };
        // The others are reaped by their group.
        let leader = children.swap_remove(0);
        let report = RoundReport {
            plan: plan.clone(),
            kill: None,
            end: Duration::ZERO,
            starved: Duration::ZERO,
            detected: Vec::new(),
            leader: None,
            operations: 0,
            violations: Vec::new(),
            transcript: Vec::new(),
        };
        let (running, checked, lost) = (None, None, Vec::new());
        let has_survivors = false;
        Ok(RunningRound {
            plan,
            leader,
            lines,
            started,
            running,
            hosts,
            checked,
            lost,
            has_survivors,
            report,
        })
    }

    /// Runs the round to the end of the rack's last process.
    pub(super) fn run(&mut self) -> io::Result<()> {
        self.wait_for_moment();
        self.kill()?;
        let killed = Instant::now();
        self.wait_for_end(killed)?;
        self.report.end = killed.elapsed();
        self.read_remaining_output();
        if let Some(kill) = &mut self.report.kill {
            // The host's report of its process id may have arrived after the kill.
            let host = self.hosts.iter().find(|(_, pid)| **pid == kill.pid);
            kill.host = host.map(|(host, _)| *host);
            if kill.host.is_none() && self.hosts.len() + 1 == Plan::HOSTS as usize {
                // Killed when the rack was complete, but before it said which host it was.
                kill.host = (0..Plan::HOSTS).find(|host| !self.hosts.contains_key(host));
            }
            let detected = self.lost.iter().filter(|(host, _)| Some(*host) == kill.host);
            self.report.detected = detected.map(|(_, when)| *when - kill.at).collect();
        }
        Ok(())
    }

    pub(super) fn violation(&mut self, what: impl Into<String>) {
        self.report.violations.push(what.into());
    }

    /// Reads output until `until` or until `enough` returns true; false if all pipes are closed.
    fn read_output(&mut self, until: Instant, enough: impl Fn(&RunningRound) -> bool) -> bool {
        while !enough(self) {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => self.handle_line(line),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        true
    }

    fn handle_line(&mut self, Line { is_error, text, at }: Line) {
        let words: Vec<_> = text.split_whitespace().collect();
        match words[..] {
            _ if is_error => {}
            ["host", host, "pid", pid] => {
                if let (Ok(host), Ok(pid)) = (host.parse(), pid.parse()) {
                    self.hosts.insert(host, pid);
                }
            }
            ["running"] => self.running = Some(Instant::now()),
            ["lost", host] => self.lost.extend(host.parse().map(|host| (host, at))),
            ["checked", lost, operations] => {
                let number = |text: &str| text.rsplit('=').next().and_then(|n| n.parse().ok());
                let lost = lost.trim_start_matches("lost=").split(',');
                self.checked = Some(lost.filter_map(|host| host.parse().ok()).collect());
                self.report.operations = number(operations).unwrap_or(0);
            }
            ["ended"] => {}
            _ => self.violation(text.trim_start_matches("violation: ")),
        }
        self.report.transcript.push(text);
    }

    fn wait_for_moment(&mut self) {
        let timeout = self.started + STEP_TIMEOUT;
        let (alive, mark, after) = match self.plan.moment {
            Moment::Starting(after) => (true, Some(self.started), after),
            Moment::Running(after) => {
                (self.read_output(timeout, |round| round.running.is_some()), self.running, after)
            }
            Moment::Ending(after) => {
                let alive = self.read_output(timeout, |round| round.checked.is_some());
                (alive, self.checked.as_ref().map(|_| Instant::now()), after)
            }
        };
        let Some(mark) = mark else {
            let how = if alive { "hangs" } else { "ends" };
            return self.violation(format!("the rack {how} before a process was killed"));
        };
        if matches!(self.plan.moment, Moment::Running(_)) && !self.plan.over_tcp() {
            self.check_memory_files();
        }
        let due = mark + after;
        self.read_output(due, |_| false);
        // `read_output` returns early if all pipes are closed.
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }

    fn members(&self) -> io::Result<Vec<Process>> {
        procfs::members(self.leader.id())
    }

    fn kill(&mut self) -> io::Result<()> {
        let leader = self.leader.id();
        let alive: Vec<_> =
            self.members()?.into_iter().filter(|process| process.state != 'Z').collect();
        let pid = match self.hosts.get(&self.plan.victim) {
            _ if self.plan.victim == 0 => leader,
            Some(pid) => *pid,
            None if alive.is_empty() => return Ok(()),
            None => alive[self.plan.victim as usize % alive.len()].pid,
        };
        if !alive.iter().any(|process| process.pid == pid) {
            return Ok(());
        }
        let Some(process) = pid_of(pid) else { return Ok(()) };
        // Refers to the process even if its id is reused; if it is still in the group it is the
        // right one.
        let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) else { return Ok(()) };
        if self.members()?.iter().any(|process| process.pid == pid && process.state != 'Z') {
            let at = Instant::now();
            if pidfd_send_signal(&handle, Signal::KILL).is_ok() {
                self.report.kill = Some(Kill { pid, host: None, leader: pid == leader, at });
                self.has_survivors = alive.len() > 1;
            }
        }
        Ok(())
    }

    /// Waits until the last process of the rack has ended, and reaps the others than the leader.
    fn wait_for_end(&mut self, killed: Instant) -> io::Result<()> {
        let leader_killed = self.report.kill.is_some_and(|kill| kill.leader);
        let continues = self.plan.continues() || self.report.kill.is_none();
        let work = Plan::WORK
            .saturating_sub(self.running.map_or(Duration::ZERO, |running| killed - running));
        let may_work = continues && !leader_killed;
        let deadline = killed + END_TIMEOUT + if may_work { work } else { Duration::ZERO };
        let mut starvation = Starvation::default();
        loop {
            if self.report.leader.is_none() {
                self.report.leader = self.leader.try_wait()?;
                // The processes of a job end by themselves, when the rack does.
                if self.report.leader.is_some() && !leader_killed && !self.plan.over_tcp() {
                    for orphan in self.members()? {
                        self.violation(format!("the leader ended before {orphan:?}"));
                    }
                }
            }
            if self.report.leader.is_some() {
                self.reap_others();
                // Fails if the group has no process left, not even a zombie.
                if test_kill_process_group(self.group()).is_err() {
                    return Ok(());
                }
            }
            let now = Instant::now();
            if starvation.is_due(now) {
                starvation.sample(now, self.members()?.iter().map(|process| process.pid));
                self.report.starved = starvation.longest();
            }
            if now > deadline + self.report.starved.min(MAX_STARVATION) {
                let late = now - deadline + END_TIMEOUT;
                for process in self.members()? {
                    let stacks = stacks_of(process.pid);
                    self.violation(format!(
                        "{process:?} is still running {late:.1?} later: {stacks}"
                    ));
                }
                self.watch_late_end()?;
                return self.kill_all();
            }
            self.read_output(Instant::now() + POLL_INTERVAL, |_| false);
            // The pipes may close before the processes end.
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Reports whether a rack that should have ended ends after all: then something waited too long,
    /// rather than for ever.
    fn watch_late_end(&mut self) -> io::Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < WATCH_LATE {
            if self.report.leader.is_none() {
                self.report.leader = self.leader.try_wait()?;
            }
            if self.members()?.iter().all(|process| process.state == 'Z') {
                self.violation(format!("all ended after another {:.1?}", begin.elapsed()));
                return Ok(());
            }
            self.read_output(Instant::now() + POLL_INTERVAL, |_| false);
            thread::sleep(POLL_INTERVAL);
        }
        for process in self.members()? {
            let stacks = stacks_of(process.pid);
            self.violation(format!("{process:?} hangs: {stacks}"));
        }
        Ok(())
    }

    /// Reaps the other hosts of a job, and processes of a rack that became children of this one because
    /// their leader has ended; checks how they ended.
    fn reap_others(&mut self) {
        while let Ok(Some((pid, status))) = waitpgid(self.group(), WaitOptions::NOHANG) {
            let (pid, status) = (pid.as_raw_pid() as u32, ExitStatus::from_raw(status.as_raw()));
            if let Some(what) = wrong_end(&self.plan, self.report.kill, pid, status) {
                self.violation(what);
            }
        }
    }

    fn group(&self) -> Pid {
        pid_of(self.leader.id()).expect("a process that was started has an id")
    }

    fn kill_all(&mut self) -> io::Result<()> {
        // Fails if all have ended in the meantime.
        let _ = kill_process_group(self.group(), Signal::KILL);
        let deadline = Instant::now() + STEP_TIMEOUT;
        let known = self.report.violations.len();
        while Instant::now() < deadline && test_kill_process_group(self.group()).is_ok() {
            if self.leader.try_wait()?.is_some() {
                self.reap_others();
            }
            thread::sleep(POLL_INTERVAL);
        }
        // The processes were killed here, which is not a violation.
        self.report.violations.truncate(known);
        Ok(())
    }

    /// Reads the remaining output. Processes that still hold the pipes are not of the rack.
    fn read_remaining_output(&mut self) {
        if self.read_output(Instant::now() + END_TIMEOUT, |_| false) {
            self.violation("a process still holds the rack's output open");
        }
    }
}

/// The name and kernel wait channel of each thread of a process.
fn stacks_of(pid: u32) -> String {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return "gone".into() };
    let each = threads.flatten().map(|thread| {
        let read = |what| fs::read_to_string(thread.path().join(what)).unwrap_or_default();
        format!("{} in {}", read("comm").trim(), read("wchan").trim())
    });
    each.collect::<Vec<_>>().join(", ")
}

fn pid_of(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}
