//! [`MailboxStats`]: what a mailbox has done with the frames that have come.

use crate::mailbox::failure::{FailureKind, FrameFailure};

/// Counts of the frames that have arrived in a mailbox, by outcome.
#[derive(Clone, Debug, Default)]
pub struct MailboxStats {
    pub(super) ran: u64,
    pub(super) arrived: u64,
    pub(super) fetched: u64,
    failed: [u64; FailureKind::ALL.len()],
    last_failure: Option<FrameFailure>,
}

impl MailboxStats {
    /// Frames whose jams ran to their end.
    pub fn ran(&self) -> u64 {
        self.ran
    }

    /// Frames that did not run to their end, for whatever reason.
    pub fn failed(&self) -> u64 {
        self.failed.iter().sum()
    }

    /// Frames that did not run to their end for a reason of this kind.
    pub fn failed_by(&self, kind: FailureKind) -> u64 {
        self.failed[kind.index()]
    }

    /// How often code that a frame carried was linked, because the jam was not linked yet or had been
    /// evicted.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// How often code was read from the sender of a frame, because the frame had only the digest of a jam
    /// that was not linked yet or had been evicted.
    pub fn fetched(&self) -> u64 {
        self.fetched
    }

    /// The last frame that did not run to its end.
    pub fn last_failure(&self) -> Option<&FrameFailure> {
        self.last_failure.as_ref()
    }

    pub(super) fn note(&mut self, failure: FrameFailure) {
        self.failed[failure.reason.kind().index()] += 1;
        self.last_failure = Some(failure);
    }
}
