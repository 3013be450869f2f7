//! [`Expected`]: the batch that a trustee expects next from one client. A poll looks at these, which
//! stand side by side, and at no slot whose client has sent nothing.
//!
//! Each is a copy of what its slot says, taken again whenever the slot moves on to the next batch.

use std::cell::Cell;
use std::ptr::NonNull;

use primitive::sync::{AtomicU64, Ordering};

use crate::wire::slot::TrusteeSlot;
use crate::wire::words::Signal;

/// The batch that is expected next from a client: where its signal will be, and its number.
#[derive(Debug)]
pub struct Expected {
    /// The word of its signal, in the memory of the client's slot.
    signal: Cell<NonNull<AtomicU64>>,
    sequence: Cell<u32>,
    /// The number of the client.
    pub(crate) client: u32,
}

impl Expected {
    /// The batch that `slot`, which is the client's, expects next.
    pub fn of(client: u32, slot: &TrusteeSlot) -> Self {
        let (signal, sequence) = slot.expected();
        Expected { signal: Cell::new(NonNull::from(signal)), sequence: Cell::new(sequence), client }
    }

    /// Its signal, if that is there.
    ///
    /// # Safety
    /// The slot that this was made of, or last [renewed](Self::renew) of, is alive.
    #[inline(always)]
    pub unsafe fn signal(&self) -> Option<u64> {
        // SAFETY: the word is in memory that the slot keeps for as long as it lives, which the caller
        // promises. Peers write signals as atomics.
        let signal = unsafe { self.signal.get().as_ref() }.load(Ordering::Acquire);
        Signal::is_request(signal, self.sequence.get()).then_some(signal)
    }

    /// Goes on to the batch that `slot`, which is the client's, expects now.
    #[inline(always)]
    pub fn renew(&self, slot: &TrusteeSlot) {
        let (signal, sequence) = slot.expected();
        self.signal.set(NonNull::from(signal));
        self.sequence.set(sequence);
    }
}
