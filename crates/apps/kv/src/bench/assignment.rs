//! What one group of clients is to do, as plain data: it may be sent to another process.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ycsb::Workload;

/// The two phases of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Insert the records.
    Load,
    /// Run the mix of operations.
    Run,
}

/// One group's share of a phase.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// What to run.
    pub workload: Workload,
    /// Which part of it.
    pub phase: Phase,
    /// The number of this group, from 0.
    pub group: u64,
    /// Groups altogether.
    pub groups: u64,
    /// Clients of each group.
    pub clients: u64,
    /// Tells the rounds of a benchmark apart, so that each draws other keys.
    pub round: u64,
}

impl Assignment {
    /// This group's part of `total` things that all groups share, with the remainder spread.
    pub fn share_of(&self, total: u64) -> u64 {
        total / self.groups + u64::from(self.group < total % self.groups)
    }

    /// Operations of this group: inserts when it loads, at most so many when it runs.
    pub fn operations(&self) -> u64 {
        match self.phase {
            Phase::Load => self.share_of(self.workload.record_count),
            Phase::Run => self.share_of(self.workload.operation_count),
        }
    }

    /// How long the phase may take; loading takes as long as it takes.
    pub fn time_limit(&self) -> Option<Duration> {
        match self.phase {
            Phase::Load => None,
            Phase::Run => self.workload.max_execution_time,
        }
    }

    /// The record that this group loads or inserts as its `index`-th: groups take turns, so that
    /// together they leave no gaps, and need not ask each other.
    pub fn record(&self, first: u64, index: u64) -> u64 {
        first + self.group + index * self.groups
    }

    /// The seed of one client's choices.
    pub fn seed(&self, client: u64) -> u64 {
        let client = self.group * self.clients + client;
        // Odd multipliers keep different clients and rounds apart; the generator mixes the bits.
        (self.workload.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ client.wrapping_mul(0x5851_f42d))
            .wrapping_add(self.round.wrapping_mul(0x1405_7b7e_f767_814f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ycsb::Properties;

    #[test]
    fn the_groups_cover_every_record_once() {
        let properties = Properties::parse("w", "recordcount=1003").unwrap();
        let (workload, _) = Workload::new("w", &properties).unwrap();
        let assignment =
            Assignment { workload, phase: Phase::Load, group: 0, groups: 4, clients: 2, round: 0 };
        let mut records: Vec<u64> = (0..4)
            .flat_map(|group| {
                let mine = Assignment { group, ..assignment.clone() };
                (0..mine.operations()).map(move |index| mine.record(0, index)).collect::<Vec<_>>()
            })
            .collect();
        records.sort_unstable();
        assert!(records.into_iter().eq(0..1003));
    }
}
