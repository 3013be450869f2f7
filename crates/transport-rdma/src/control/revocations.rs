//! [`Revocations`]: the lanes that wait until a region of this host is quiet.
//!
//! A region is quiet when two parts have ended, in any order: its use by peers, and by this host's own
//! threads, which the carrier reports. If a part cannot end, the revocation has failed.

use std::collections::BTreeMap;

use transport_api::RegionKey;

/// What must end before a revocation is quiet: its use by peers, and by this host's threads.
const PARTS: u8 = 2;

/// The lanes that wait, by the number of the revocation.
#[derive(Default)]
pub(crate) struct Revocations {
    last: u64,
    waiting: BTreeMap<u64, Waiting>,
}

/// A lane that waits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) thread: u32,
    pub(crate) token: u64,
    pub(crate) key: RegionKey,
    /// Parts that have not ended.
    remaining: u8,
}

impl Revocations {
    /// A revocation for which no lane waits.
    pub(crate) const UNAWAITED: u64 = 0;

    /// The lane of `thread` waits with `token` for region `key`. Returns the number of the revocation.
    pub(crate) fn begin(&mut self, thread: u32, token: u64, key: RegionKey) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, Waiting { thread, token, key, remaining: PARTS });
        self.last
    }

    /// Revocation `number` has not begun after all, or has failed: the lane that waits, unless the
    /// revocation has ended.
    pub(crate) fn cancel(&mut self, number: u64) -> Option<Waiting> {
        self.waiting.remove(&number)
    }

    /// The numbers of those that have not ended.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.waiting.keys().copied().collect()
    }

    /// A part of revocation `number` has ended. Returns thread and token if that was the last.
    pub(crate) fn part_ended(&mut self, number: u64) -> Option<(u32, u64)> {
        let waiting = self.waiting.get_mut(&number)?;
        waiting.remaining -= 1;
        if waiting.remaining > 0 {
            return None;
        }
        self.cancel(number).map(|Waiting { thread, token, .. }| (thread, token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revocation_is_quiet_when_both_parts_have_ended() {
        let mut all = Revocations::default();
        assert_eq!(all.part_ended(Revocations::UNAWAITED), None);
        let key = RegionKey(5);
        let (first, second) = (all.begin(3, 77, key), all.begin(0, 77, key));
        assert_eq!((all.part_ended(first), all.part_ended(second)), (None, None));
        assert_eq!(all.part_ended(first), Some((3, 77)));
        assert_eq!(all.part_ended(first), None);
        assert_eq!(all.numbers(), [second]);
        let failed = all.cancel(second);
        assert!(matches!(failed, Some(Waiting { thread: 0, token: 77, .. })), "{failed:?}");
        assert_eq!((all.part_ended(second), all.cancel(second)), (None, None));
    }
}
