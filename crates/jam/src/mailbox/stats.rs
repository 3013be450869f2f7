//! [`MailboxStats`]: what a mailbox has done with the frames that have come.

use crate::mailbox::failure::{FailureKind, FrameFailure};

/// What a mailbox has done with the frames that have come.
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

    /// How often the code of a frame that had it along was needed: as the jam was not linked here, or
    /// was evicted.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// How often code was read at the sender of a frame: as the jam was not linked here, or was
    /// evicted, and the frame had only its digest.
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
