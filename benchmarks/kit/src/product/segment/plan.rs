//! What two hosts are to do, and what comes out, as it travels between processes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::measure::sampling::{CaseError, undisturbed};
#[cfg(feature = "jam")]
use crate::product::jam::frames::FramePlan;

/// One operation of the importer on the exporter's segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RemoteOp {
    /// None: the importer sleeps for a millisecond.
    Nothing,
    /// Reads this many bytes.
    Read(usize),
    /// Writes this many bytes, without waiting until they are there.
    Write(usize),
    /// Writes this many bytes, and waits for a fence.
    FencedWrite(usize),
    /// Reads a block of this many bytes.
    ReadBlock(usize),
    /// Writes a block of this many bytes.
    WriteBlock(usize),
    /// Adds to a word.
    FetchAdd,
    /// Swaps a word that is as expected.
    CompareSwap,
    /// Reads eight bytes, where the ones read before say.
    ReadChain,
    /// Reads a record with this many bytes of payload.
    ReadRecord(usize),
}

/// How a host waits for a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// It polls and never sleeps.
    Polls,
    /// It sleeps as soon as no notification waits.
    Sleeps,
}

/// An operation on names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameOp {
    /// Exports a segment under a new name.
    Export,
    /// Takes the name back, and revokes the segment.
    Revoke,
    /// Opens a segment whose name was looked up before.
    Cached,
    /// Opens a segment by reading the exporter's registry.
    Uncached,
    /// Opens a segment by asking the exporter.
    ControlTransfer,
    /// Not an operation: the cost of a cached lookup and 1.2 reads of a registry's record.
    CachedAndRead,
}

/// What the hosts do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Plan {
    /// The importer repeats an operation, while the exporter polls: nanoseconds an operation.
    Repeat(RemoteOp),
    /// As `Repeat`, while the exporter sleeps.
    RepeatAsleep(RemoteOp),
    /// Both write this many bytes to each other in turn, and poll for what the other writes: half a
    /// round trip in nanoseconds.
    OneWay(usize),
    /// As `OneWay`, with a word and a notification for which the other waits.
    Notify(Wait),
    /// The importer notifies a host that sleeps: nanoseconds until that runs.
    WakeUp,
    /// As `WakeUp`, and a thread that is not attached waits at a file descriptor.
    WakeUpAtDescriptor,
    /// What is done with names, in nanoseconds.
    Names(NameOp),
    /// CPU time of the exporter's process, in percent of a core, while the importer repeats an
    /// operation and the exporter sleeps.
    OwnerCpu(RemoteOp),
    /// Work requests of the importer for each operation; for devices that have them.
    WorkRequests(RemoteOp),
    /// Doorbells of the importer for each operation; for devices that have them.
    Doorbells(RemoteOp),
    /// Both send to each other's mailboxes, in nanoseconds.
    #[cfg(feature = "jam")]
    Frames(FramePlan),
}

/// The statistic of many operations that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Statistic {
    /// The mean: time divided by operations.
    Mean,
    /// The median, for which every operation is timed.
    Median,
}

/// What is asked of two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What they do.
    pub plan: Plan,
    /// Which statistic of the operations counts.
    pub statistic: Statistic,
    /// How long.
    pub time: Duration,
}

/// What comes out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// In the unit of the plan.
    pub value: f64,
    /// The share of its time, from 0 to 1, that the importer lost.
    pub lost: f64,
    /// The 99.9th percentile, in the same unit, where every operation is timed; else 0.
    pub tail: f64,
    /// CPU time of the exporter's process meanwhile, in percent of a core, where frames are sent; else 0.
    pub owner_cpu: f64,
}

impl Figure {
    /// A value, and what the importer lost.
    pub(in crate::product) fn of(value: f64, lost: f64) -> Figure {
        Figure { value, lost, tail: 0.0, owner_cpu: 0.0 }
    }

    /// The value, if the importer had its core to itself.
    ///
    /// # Errors
    /// [`CaseError::Disturbed`] if it lost more than 3 % of its time.
    pub fn undisturbed(self) -> Result<f64, CaseError> {
        undisturbed(self.lost).map(|()| self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_its_journey() {
        let plans = [
            Plan::Repeat(RemoteOp::Read(8)),
            Plan::OneWay(40),
            Plan::Notify(Wait::Sleeps),
            Plan::Names(NameOp::Uncached),
        ];
        for plan in plans {
            let request =
                Request { plan, statistic: Statistic::Median, time: Duration::from_micros(1500) };
            let text = serde_json::to_string(&request).expect("text");
            assert!(!text.contains('\n'), "it travels as a line: {text}");
            assert_eq!(serde_json::from_str::<Request>(&text).expect("a request"), request);
        }
    }
}
