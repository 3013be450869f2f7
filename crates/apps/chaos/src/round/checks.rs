//! The checks at the end of a round: the rack's reports must match the kill.

use std::collections::BTreeSet;

use crate::round::running::RunningRound;
use crate::{Kill, Moment};

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
        if self.plan.continues() && matches!(self.plan.moment, Moment::Running(_)) {
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

/// Whether an error names process `pid`, as it does while a rack starts or once it runs.
fn names(line: &str, pid: u32) -> bool {
    line.contains(&format!("(pid {pid})")) || line.contains(&format!("process {pid} exited"))
}
