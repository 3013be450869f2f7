//! [`Revocations`]: the lanes that wait until a region of this host is quiet.
//!
//! A region is quiet when two parts have ended, in any order: its use by peers, and by this host's own
//! threads, which the carrier reports.

use std::collections::BTreeMap;

/// What must end before a revocation is quiet: its use by peers, and by this host's threads.
const PARTS: u8 = 2;

/// The lanes that wait, by the number of the revocation.
#[derive(Default)]
pub(crate) struct Revocations {
    last: u64,
    waiting: BTreeMap<u64, Waiting>,
}

struct Waiting {
    thread: u32,
    token: u64,
    /// Parts that have not ended.
    remaining: u8,
}

impl Revocations {
    /// A revocation for which no lane waits.
    pub(crate) const UNAWAITED: u64 = 0;

    /// The lane of `thread` waits with `token`. Returns the number of the revocation.
    pub(crate) fn begin(&mut self, thread: u32, token: u64) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, Waiting { thread, token, remaining: PARTS });
        self.last
    }

    /// Revocation `number` has not begun after all.
    pub(crate) fn cancel(&mut self, number: u64) {
        self.waiting.remove(&number);
    }

    /// A part of revocation `number` has ended. Returns thread and token if that was the last.
    pub(crate) fn part_ended(&mut self, number: u64) -> Option<(u32, u64)> {
        let waiting = self.waiting.get_mut(&number)?;
        waiting.remaining -= 1;
        if waiting.remaining > 0 {
            return None;
        }
        self.waiting.remove(&number).map(|Waiting { thread, token, .. }| (thread, token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revocation_is_quiet_when_both_parts_have_ended() {
        let mut all = Revocations::default();
        assert_eq!(all.part_ended(Revocations::UNAWAITED), None);
        let (first, second) = (all.begin(3, 77), all.begin(0, 77));
        assert_eq!((all.part_ended(first), all.part_ended(second)), (None, None));
        assert_eq!(all.part_ended(first), Some((3, 77)));
        assert_eq!(all.part_ended(first), None);
        all.cancel(second);
        assert_eq!(all.part_ended(second), None);
    }
}
