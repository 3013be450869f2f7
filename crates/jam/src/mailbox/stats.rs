//! [`MailboxStats`]: what a mailbox has done with the frames that have come.

use std::fmt;

use crate::mailbox::failure::{FailureKind, FrameFailure};

/// Counts of the frames that have arrived in a mailbox, by outcome.
#[derive(Clone, Default)]
pub struct MailboxStats {
    pub(super) ran: u64,
    pub(super) arrived: u64,
    pub(super) fetched: u64,
    failed: [u64; FailureKind::ALL.len()],
    last_failure: Option<FrameFailure>,
}

impl MailboxStats {
    /// Frames that the mailbox is done with: those that ran to their end, and those that failed.
    pub fn handled(&self) -> u64 {
        self.ran() + self.failed()
    }

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

/// With the kinds of failures that have happened by their names: `failed: {Symbol: 1}`.
impl fmt::Debug for MailboxStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = FailureKind::ALL.into_iter().map(|kind| (kind, self.failed_by(kind)));
        let failed = fmt::from_fn(|f| {
            f.debug_map().entries(counts.clone().filter(|(_, count)| *count > 0)).finish()
        });
        f.debug_struct("MailboxStats")
            .field("ran", &self.ran)
            .field("failed", &failed)
            .field("arrived", &self.arrived)
            .field("fetched", &self.fetched)
            .field("last_failure", &self.last_failure)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use gossamer_segment::HostId;
    use jam_format::Digest;

    use super::*;
    use crate::error::{Refusal, SignatureHash};
    use crate::mailbox::failure::FrameError;

    #[test]
    fn failures_are_counted_and_shown_by_kind() {
        let mut stats = MailboxStats { ran: 2, ..MailboxStats::default() };
        assert!(format!("{stats:?}").contains("ran: 2, failed: {}, "), "{stats:?}");
        let missing = Refusal::MissingSymbol {
            symbol: "f".into(),
            signature: SignatureHash(1),
            types: String::new(),
        };
        for (number, reason) in [(0, FrameError::Refused(missing)), (1, FrameError::NoCode)] {
            let (sender, jam) = (HostId(0), Digest::of(b"code"));
            stats.note(FrameFailure { sender, number, jam, reason });
        }
        assert_eq!((stats.ran(), stats.failed(), stats.handled()), (2, 2, 4));
        assert!(format!("{stats:?}").contains("failed: {NoCode: 1, Symbol: 1}, "), "{stats:?}");
    }
}
