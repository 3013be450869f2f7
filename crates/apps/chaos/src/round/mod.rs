//! The judge of a round: starts a rack, kills one of its processes when the plan says so, and
//! checks that nothing hangs, nothing is left, and everybody says the right thing.

mod checks;

use crate::{
    Hit, Moment, Plan, Verdict,
    procfs::{self, Process},
};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open,
    pidfd_send_signal, set_child_subreaper, test_kill_process_group, waitid,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{self, BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// How long a rack may take from one step of a round to the next before the round has failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a rack that must end may take to be gone, to the last process.
const END: Duration = Duration::from_secs(1);
/// How often the judge looks.
const LOOK: Duration = Duration::from_millis(1);

/// A line that the rack has written.
struct Line {
    is_error: bool,
    text: String,
    /// When it came.
    at: Instant,
}

/// Plays rounds, and remembers what must stay as it was.
pub struct Judge {
    shared_memory: BTreeSet<PathBuf>,
    /// The numbers of the descriptors that this process was started with.
    descriptors: String,
}

impl Judge {
    /// Prepares this process: orphans of racks become its children, so that none escapes.
    ///
    /// # Errors
    /// When the system does not allow that.
    pub fn new() -> io::Result<Judge> {
        set_child_subreaper(Some(rustix::process::getpid()))?;
        let descriptors: Vec<_> =
            procfs::descriptors("self").into_keys().map(|number| number.to_string()).collect();
        Ok(Judge { shared_memory: procfs::shared_memory()?, descriptors: descriptors.join(",") })
    }

    /// Plays one round.
    ///
    /// # Errors
    /// When the round could not be played: the system refused something to the judge itself.
    pub fn play(&self, plan: Plan) -> io::Result<Verdict> {
        let folder = env::temp_dir().join(format!("gossamer-chaos-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let before = procfs::descriptors("self").len();
        let mut verdict = Scene::set(plan, &folder, &self.descriptors)?.play()?;
        let after = procfs::descriptors("self");
        if after.len() != before {
            verdict.faults.push(format!("the judge has kept descriptors: {after:?}"));
        }
        for left in procfs::unheld_shared_memory(&self.shared_memory)? {
            verdict.faults.push(format!("{} is left behind", left.display()));
        }
        for left in fs::read_dir(&folder)? {
            verdict.faults.push(format!("{} is left behind", left?.path().display()));
        }
        fs::remove_dir_all(&folder)?;
        Ok(verdict)
    }
}

/// A round under way.
struct Scene {
    plan: Plan,
    leader: Child,
    lines: Receiver<Line>,
    started: Instant,
    /// When the rack said that its work begins.
    running: Option<Instant>,
    /// The process of each host, as the rack says.
    hosts: BTreeMap<u32, u32>,
    /// What the rack found, once it has compared its books: the hosts that were lost.
    checked: Option<BTreeSet<u32>>,
    /// Hosts that a process has said to be lost, and when.
    lost: Vec<(u32, Instant)>,
    /// Whether another process of the rack was alive when one was killed.
    has_survivors: bool,
    verdict: Verdict,
}

impl Scene {
    fn set(plan: Plan, folder: &Path, descriptors: &str) -> io::Result<Scene> {
        let mut leader = Command::new(env::current_exe()?)
            .args(["--rack", &plan.seed.to_string()])
            .process_group(0)
            .current_dir(folder)
            .env("TMPDIR", folder)
            .env(procfs::DESCRIPTORS, descriptors)
            .env("XDG_RUNTIME_DIR", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let started = Instant::now();
        let (sender, lines) = mpsc::channel();
        let pipes: [(bool, Option<Box<dyn Read + Send>>); 2] = [
            (false, leader.stdout.take().map(|pipe| Box::new(pipe) as _)),
            (true, leader.stderr.take().map(|pipe| Box::new(pipe) as _)),
        ];
        for (is_error, pipe) in pipes {
            let (pipe, sender) = (pipe.expect("both are piped"), sender.clone());
            thread::spawn(move || {
                for text in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                    let at = Instant::now();
                    let text = String::from_utf8_lossy(&text).into_owned();
                    // The judge may have seen enough.
                    let _ = sender.send(Line { is_error, text, at });
                }
            });
        }
        let verdict = Verdict {
            plan: plan.clone(),
            hit: None,
            end: Duration::ZERO,
            noticed: Vec::new(),
            leader: None,
            operations: 0,
            faults: Vec::new(),
            transcript: Vec::new(),
        };
        let (hosts, running, checked, lost) = (BTreeMap::new(), None, None, Vec::new());
        let has_survivors = false;
        Ok(Scene {
            plan,
            leader,
            lines,
            started,
            running,
            hosts,
            checked,
            lost,
            has_survivors,
            verdict,
        })
    }

    fn play(mut self) -> io::Result<Verdict> {
        self.await_moment();
        self.kill()?;
        let killed = Instant::now();
        self.await_end(killed)?;
        self.verdict.end = killed.elapsed();
        self.hear_the_rest();
        if let Some(hit) = &mut self.verdict.hit {
            // Who is who may have been on its way when the kill came.
            let host = self.hosts.iter().find(|(_, pid)| **pid == hit.pid);
            hit.host = host.map(|(host, _)| *host);
            let noticed = self.lost.iter().filter(|(host, _)| Some(*host) == hit.host);
            self.verdict.noticed = noticed.map(|(_, when)| *when - hit.at).collect();
        }
        self.judge();
        Ok(self.verdict)
    }

    fn fault(&mut self, what: impl Into<String>) {
        self.verdict.faults.push(what.into());
    }

    /// Takes what the rack has said until `until`, or until `enough`; false when nobody is left
    /// who could say more.
    fn listen(&mut self, until: Instant, enough: impl Fn(&Scene) -> bool) -> bool {
        while !enough(self) {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => self.hear(line),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        true
    }

    fn hear(&mut self, Line { is_error, text, at }: Line) {
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
                self.verdict.operations = number(operations).unwrap_or(0);
            }
            ["ended"] => {}
            _ => self.fault(text.clone()),
        }
        self.verdict.transcript.push(text);
    }

    fn await_moment(&mut self) {
        let patience = self.started + PATIENCE;
        let (alive, mark, after) = match self.plan.moment {
            Moment::Starting(after) => (true, Some(self.started), after),
            Moment::Running(after) => {
                (self.listen(patience, |scene| scene.running.is_some()), self.running, after)
            }
            Moment::Ending(after) => {
                let alive = self.listen(patience, |scene| scene.checked.is_some());
                (alive, self.checked.as_ref().map(|_| Instant::now()), after)
            }
        };
        let Some(mark) = mark else {
            let how = if alive { "hangs" } else { "ends" };
            return self.fault(format!("the rack {how} before anybody was killed"));
        };
        if matches!(self.plan.moment, Moment::Running(_)) {
            self.check_memory_files();
        }
        let due = mark + after;
        self.listen(due, |_| false);
        // Also if nobody is there any more who could say something.
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }

    /// No process may hold another's memory open: what is handed over is mapped and closed.
    ///
    /// On a busy machine the rack may have ended before this looks: a process without runtime
    /// threads has rightly closed its memory.
    fn check_memory_files(&mut self) {
        let open: Vec<_> =
            self.hosts.iter().map(|(host, pid)| (*host, procfs::memory_files(*pid))).collect();
        let is_closed = |(host, files): &(u32, BTreeSet<_>)| {
            files.is_empty() && procfs::runs_threads_of(*host, self.hosts[host])
        };
        if open.len() != Plan::HOSTS as usize || open.iter().any(is_closed) {
            return self.fault(format!("the rack does not show its memory: {open:?}"));
        }
        for (index, (host, files)) in open.iter().enumerate() {
            for (other, others) in &open[..index] {
                if !files.is_disjoint(others) {
                    self.fault(format!("host {host} and host {other} both hold a memory file"));
                }
            }
        }
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
        // Names the process whatever becomes of its id; and that it is the right one is seen by its
        // still being in the group.
        let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) else { return Ok(()) };
        if self.members()?.iter().any(|process| process.pid == pid && process.state != 'Z') {
            let at = Instant::now();
            if pidfd_send_signal(&handle, Signal::KILL).is_ok() {
                self.verdict.hit = Some(Hit { pid, host: None, leader: pid == leader, at });
                self.has_survivors = alive.len() > 1;
            }
        }
        Ok(())
    }

    /// Waits until the last process of the rack has ended; reaps what is an orphan by right.
    fn await_end(&mut self, killed: Instant) -> io::Result<()> {
        let is_leader_hit = self.verdict.hit.is_some_and(|hit| hit.leader);
        let goes_on = self.plan.goes_on() || self.verdict.hit.is_none();
        let work = Plan::WORK
            .saturating_sub(self.running.map_or(Duration::ZERO, |running| killed - running));
        let may_work = goes_on && !is_leader_hit;
        let deadline = killed + END + if may_work { work } else { Duration::ZERO };
        loop {
            if self.verdict.leader.is_none() {
                self.verdict.leader = self.leader.try_wait()?;
                if self.verdict.leader.is_some() && !is_leader_hit {
                    for orphan in self.members()? {
                        self.fault(format!("the leader has ended and left {orphan:?}"));
                    }
                }
            }
            if self.verdict.leader.is_some() {
                self.reap_orphans();
                // Fails when the group has no process any more, not even a zombie.
                if test_kill_process_group(self.group()).is_err() {
                    return Ok(());
                }
            }
            if Instant::now() > deadline {
                for process in self.members()? {
                    let stacks = stacks_of(process.pid);
                    self.fault(format!("{process:?} is still there {END:?} later: {stacks}"));
                }
                return self.clear_up();
            }
            self.listen(Instant::now() + LOOK, |_| false);
            // What is left to hear may have ended before the processes.
            thread::sleep(LOOK);
        }
    }

    /// Takes note of the ends of the rack's processes that have become children of this one: when
    /// their leader is there no more.
    fn reap_orphans(&mut self) {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        while let Ok(Some(status)) = waitid(WaitId::Pgid(Some(self.group())), ended) {
            let is_hit = self.verdict.hit.is_some_and(|hit| !hit.leader);
            match status.terminating_signal() {
                Some(signal) if !is_hit => {
                    self.fault(format!("an orphan of the rack has crashed: signal {signal}"));
                }
                _ => {}
            }
        }
    }

    fn group(&self) -> Pid {
        pid_of(self.leader.id()).expect("a process that was started has an id")
    }

    fn clear_up(&mut self) -> io::Result<()> {
        // Fails if all have ended meanwhile.
        let _ = kill_process_group(self.group(), Signal::KILL);
        let deadline = Instant::now() + PATIENCE;
        let known = self.verdict.faults.len();
        while Instant::now() < deadline && test_kill_process_group(self.group()).is_ok() {
            if self.leader.try_wait()?.is_some() {
                self.reap_orphans();
            }
            thread::sleep(LOOK);
        }
        // That these were killed is no fault of theirs.
        self.verdict.faults.truncate(known);
        Ok(())
    }

    /// Hears what was said and not heard yet; whoever still holds the pipes is none of the rack.
    fn hear_the_rest(&mut self) {
        if self.listen(Instant::now() + END, |_| false) {
            self.fault("somebody still holds the rack's output open");
        }
    }
}

/// What each thread of a process is doing, as far as the system says.
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
