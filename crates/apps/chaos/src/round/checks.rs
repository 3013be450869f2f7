//! The checks at the end of a round: the rack's reports must match the kill.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::Signal;

use crate::round::running::RunningRound;
use crate::{Kill, Moment, Plan};

impl RunningRound {
    /// Checks the outcome of the round.
    pub(super) fn check(&mut self) {
        let Some(status) = self.report.leader else { return };
        let Some(kill) = self.report.kill else {
            if !status.success() {
                self.violation(format!(
                    "no process was killed, but the leader exited with {status}"
                ));
            }
            return self.check_lost(None);
        };
        if kill.leader {
            return self.check_leader_named(kill.pid);
        }
        self.check_lost(Some(kill));
        if status.success() {
            let seen = self.checked.as_ref().is_some_and(|lost| !lost.is_empty());
            let continues = self.plan.continues() && seen;
            if !self.had_finished() && !continues {
                self.violation(format!(
                    "process {} was killed, but the leader exited successfully",
                    kill.pid
                ));
            }
            return;
        }
        if must_continue(&self.plan, kill) {
            self.violation(format!(
                "expected the rack to continue, but the leader exited with {status}"
            ));
        }
        // Only a parent knows how a process has ended; hosts of a job are known by their numbers.
        let victim = format!("host {} ", self.plan.victim);
        let names_it = |line: &String| match self.plan.over_tcp() {
            true => line.contains(&victim),
            false => names(line, kill.pid) && line.contains("SIGKILL"),
        };
        if !self.report.transcript.iter().any(names_it) {
            self.violation(format!("no host reports that process {} was killed", kill.pid));
        }
    }

    /// Whether the kill came after the work. On a busy machine that also happens to kills planned
    /// for an earlier moment. The leader compares ledgers last, and finds no host lost only if the
    /// threads of every host still respond.
    fn had_finished(&self) -> bool {
        let all_answered = self.checked.as_ref().is_some_and(BTreeSet::is_empty);
        matches!(self.plan.moment, Moment::Ending(_)) || all_answered
    }

    /// The other hosts must report the loss of the leader, process `pid`, unless the rack was about
    /// to end: then they may know of the end already. Only its parent knows how it ended.
    fn check_leader_named(&mut self, pid: u32) {
        let names_it = |line: &String| {
            names(line, pid)
                || line.contains("host 0 is gone")
                || line.contains("host 0 was lost and the rack ended")
        };
        let is_named = self.report.transcript.iter().any(names_it);
        if self.has_survivors && !self.had_finished() && self.checked.is_none() && !is_named {
            self.violation(format!("no survivor reports the loss of the leader, process {pid}"));
        }
    }

    /// Only the killed host may be reported as lost.
    fn check_lost(&mut self, kill: Option<Kill>) {
        let lost = self.checked.clone().unwrap_or_default();
        let is_expected = match kill {
            // If the rack ends because of one loss, the other hosts are lost, too.
            Some(_) if !self.plan.continues() => true,
            Some(Kill { host: Some(host), .. }) => lost.iter().all(|lost| *lost == host),
            // It was killed before it said which host it was; others may have left because of it.
            Some(_) => true,
            None => lost.is_empty(),
        };
        if !is_expected {
            let killed = kill.map(|kill| (kill.pid, kill.host));
            self.violation(format!("hosts {lost:?} were reported as lost, killed was {killed:?}"));
        }
    }
}

/// Whether the hosts that were not killed must end as if none had been: while they work. A rack that is
/// about to start or to end may end early.
fn must_continue(plan: &Plan, kill: Kill) -> bool {
    plan.continues() && !kill.leader && matches!(plan.moment, Moment::Running(_))
}

/// What is wrong with how process `pid`, which is not the leader, has ended.
pub(super) fn wrong_end(
    plan: &Plan,
    kill: Option<Kill>,
    pid: u32,
    status: ExitStatus,
) -> Option<String> {
    let is_victim = kill.is_some_and(|kill| kill.pid == pid);
    if is_victim && status.signal() == Some(Signal::KILL.as_raw()) {
        return None;
    }
    // An error of the rack is right where its loss ended the rack.
    let may_fail = is_victim || kill.is_some_and(|kill| !must_continue(plan, kill));
    let is_right = status.success() || status.signal().is_none() && may_fail;
    (!is_right).then(|| format!("process {pid} of the rack ended with {status}"))
}

/// Whether an error names process `pid`, as it does while a rack starts or once it runs.
fn names(line: &str, pid: u32) -> bool {
    line.contains(&format!("(pid {pid})")) || line.contains(&format!("process {pid} exited"))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::Workload;

    #[test]
    fn survivors_must_not_crash_nor_fail_while_the_rack_goes_on() {
        let job = Workload::Segments { over_tcp: true };
        let at = |continues: bool, moment| {
            let seed = u64::from(continues);
            Plan { moment, ..Plan::of(seed).with(job) }
        };
        let (running, ending) = (Moment::Running(Duration::ZERO), Moment::Ending(Duration::ZERO));
        let kill = |leader| Some(Kill { pid: 7, host: None, leader, at: Instant::now() });
        let (exits, killed, crashed) = ([0, 1 << 8], [9], [6, 11]);
        let right = |plan: &Plan, kill, pid, raw: &[i32]| {
            let end = |raw: &i32| wrong_end(plan, kill, pid, ExitStatus::from_raw(*raw));
            raw.iter().map(end).map(|wrong| wrong.is_none()).collect::<Vec<_>>()
        };
        for plan in [at(true, running), at(false, running), at(true, ending), at(false, ending)] {
            assert_eq!(right(&plan, None, 8, &exits), [true, false], "nothing was killed");
            assert_eq!(right(&plan, kill(false), 7, &killed), [true], "the victim");
            let failures = right(&plan, kill(false), 8, &exits);
            let goes_on = plan.continues() && plan.moment == running;
            assert_eq!(failures, [true, !goes_on], "{plan:?}");
            assert_eq!(right(&plan, kill(true), 8, &exits), [true, true], "the leader was killed");
            for kill in [None, kill(false), kill(true)] {
                assert_eq!(right(&plan, kill, 8, &killed), [false]);
                assert_eq!(right(&plan, kill, 8, &crashed), [false; 2]);
            }
            assert_eq!(right(&plan, kill(false), 7, &crashed), [false; 2]);
        }
        let wrong = wrong_end(&at(true, running), None, 8, ExitStatus::from_raw(11)).unwrap();
        assert!(wrong.contains("process 8 of the rack ended with signal: 11"), "{wrong}");
    }
}
