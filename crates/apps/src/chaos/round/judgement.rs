//! The end of a round: the rack's reports are compared with the kill that caused them.

use super::Scene;
use crate::chaos::Moment;
use std::collections::BTreeSet;

impl Scene {
    /// Whether all is as it must be after this kill.
    pub(super) fn judge(&mut self) {
        let Some(status) = self.verdict.leader else { return };
        let Some(hit) = self.verdict.hit else {
            if !status.success() {
                self.fault(format!("no process was killed, but the leader ended with {status}"));
            }
            return self.check_lost(None);
        };
        if hit.leader {
            return self.check_leader_named(hit.pid);
        }
        self.check_lost(hit.host);
        if status.success() {
            let seen = self.checked.as_ref().is_some_and(|lost| !lost.is_empty());
            let goes_on = self.plan.goes_on() && seen;
            if !self.is_ending() && !goes_on {
                self.fault(format!("process {} was killed, but the leader ended well", hit.pid));
            }
            return;
        }
        if self.plan.goes_on() && matches!(self.plan.moment, Moment::Running(_)) {
            self.fault(format!("the rack should continue, but the leader ended with {status}"));
        }
        // Before the rack is complete, and after.
        let names = [format!("pid {}", hit.pid), format!("process {} exited", hit.pid)];
        let names_it = |line: &String| {
            names.iter().any(|name| line.contains(name)) && line.contains("SIGKILL")
        };
        if !self.verdict.transcript.iter().any(names_it) {
            self.fault(format!("no host reports that process {} was killed", hit.pid));
        }
    }

    /// Whether the kill came when the work was done. On a busy machine that also happens to kills
    /// planned for an earlier moment. A leader that ends well proves it: it compares its books last,
    /// and finds no host lost only if the threads of every host still answer.
    fn is_ending(&self) -> bool {
        let all_answered = self.checked.as_ref().is_some_and(BTreeSet::is_empty);
        matches!(self.plan.moment, Moment::Ending(_)) || all_answered
    }

    /// The other hosts must say that the leader, process `pid`, is gone, unless the rack was about
    /// to end: they may have been told so before. Only its parent knows how it ended.
    fn check_leader_named(&mut self, pid: u32) {
        let names_it =
            |line: &String| line.contains(&format!("pid {pid}")) || line.contains("host 0 is gone");
        let is_named = self.verdict.transcript.iter().any(names_it);
        if self.has_survivors && !self.is_ending() && self.checked.is_none() && !is_named {
            self.fault(format!("no survivor reports the end of the leader, process {pid}"));
        }
    }

    /// Only the host that was killed may have been found lost.
    fn check_lost(&mut self, host: Option<u32>) {
        let lost = self.checked.clone().unwrap_or_default();
        if !lost.is_subset(&host.into_iter().collect()) {
            let ends = !self.plan.goes_on();
            // When the rack ends for one host's loss, the others are lost, too.
            if !ends || host.is_none() {
                self.fault(format!("hosts {lost:?} were lost, expected {host:?}"));
            }
        }
    }
}
