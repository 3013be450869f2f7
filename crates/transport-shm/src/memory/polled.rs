//! [`PolledSenders`]: whose notice slots a thread polls by itself.
//!
//! Lanes poll the slots. This table says what they wait for, so that their thread's parker, which has
//! no lane, does not sleep over a notification: its sender has asked for no attention.

use primitive::sync::{AtomicU64, Ordering};
use transport_api::{HostId, NoticeEnd};

use crate::memory::host_memory::{HostMemory, Layout};
use crate::memory::ring::SLOTS;

/// The most senders that one thread polls: each costs a load in every poll of its lane.
const SENDERS: usize = 16;

/// The senders that one thread polls. Only that thread changes them, but with lanes that do not know
/// of each other.
#[derive(Default)]
pub(crate) struct PolledSenders {
    /// One more than the number of the sender, and the number of the next notification; or zero.
    entries: [AtomicU64; SENDERS],
}

fn entry(sender: u32, next: u32) -> u64 {
    (u64::from(sender) + 1) << 32 | u64::from(next)
}

impl PolledSenders {
    /// Takes an entry for a sender, if one is free.
    pub(crate) fn claim(&self, sender: u32, next: u32) -> Option<usize> {
        let new = entry(sender, next);
        self.entries.iter().position(|free| {
            free.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        })
    }

    /// Notes the number of the next notification of the sender that has an entry.
    #[inline]
    pub(crate) fn set(&self, index: usize, sender: u32, next: u32) {
        self.entries[index].store(entry(sender, next), Ordering::Relaxed);
    }

    /// Frees an entry.
    pub(crate) fn release(&self, index: usize) {
        self.entries[index].store(0, Ordering::Relaxed);
    }

    /// Whether a notification of any of them has arrived for `thread` of host `local`, whose table this
    /// is.
    pub(crate) fn has_any<'m>(
        &self,
        memory_of: impl Fn(HostId) -> &'m HostMemory,
        layout: Layout,
        (local, thread): (HostId, u32),
    ) -> bool {
        self.entries.iter().any(|entry| {
            let entry = entry.load(Ordering::Relaxed);
            let Some(sender) = ((entry >> 32) as u32).checked_sub(1) else { return false };
            let (host, other) = layout.thread(sender);
            let slots = |at: HostId, ring| (memory_of(at).memory(), ring + SLOTS);
            let sends = slots(host, layout.ring(other, local, thread));
            let receives = slots(local, layout.ring_of_sender(thread, sender));
            let order = layout.sender(local, thread).cmp(&sender);
            NoticeEnd::is_there(sends, receives, order, entry as u32)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_bounded_number_of_senders() {
        let table = PolledSenders::default();
        let taken: Vec<_> = (0..SENDERS as u32 + 1).map(|n| table.claim(n, 1)).collect();
        assert_eq!(taken[SENDERS - 1..], [Some(SENDERS - 1), None]);
        table.release(3);
        assert_eq!(table.claim(77, 1), Some(3));
    }
}
