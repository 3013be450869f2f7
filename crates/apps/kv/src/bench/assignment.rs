//! [`Assignment`]: the work of one group of clients, as plain data that other processes can receive.

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
    /// The workload.
    pub workload: Workload,
    /// The phase of it.
    pub phase: Phase,
    /// The index of this group, from 0.
    pub group: u64,
    /// The number of groups.
    pub groups: u64,
    /// Clients per group.
    pub clients: u64,
    /// The round of the benchmark; each round draws different keys.
    pub round: u64,
}

impl Assignment {
    /// This group's share of `total`, with the remainder spread over the first groups.
    pub fn share_of(&self, total: u64) -> u64 {
        total / self.groups + u64::from(self.group < total % self.groups)
    }

    /// Operations of this group: exactly this many inserts when it loads, at most this many when it
    /// runs.
    pub fn operations(&self) -> u64 {
        match self.phase {
            Phase::Load => self.share_of(self.workload.record_count),
            Phase::Run => self.share_of(self.workload.operation_count),
        }
    }

    /// The time limit of the phase; loading has none.
    pub fn time_limit(&self) -> Option<Duration> {
        match self.phase {
            Phase::Load => None,
            Phase::Run => self.workload.max_execution_time,
        }
    }

    /// The number of the `index`-th record that this group loads or inserts: numbers are
    /// interleaved over the groups, which leaves no gaps and needs no coordination.
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
