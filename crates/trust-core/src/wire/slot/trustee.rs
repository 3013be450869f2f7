//! [`TrusteeSlot`]: the trustee's half of the slot protocol.

use std::cell::Cell;

use primitive::SharedBytes;
use primitive::limits::{BUFFERS, SLOT_BYTES, SLOT_STRIDE};
use primitive::sync::AtomicU64;

use super::{Handover, PAIR_BYTES, buffer_of, start_of};
use crate::wire::integrity::Landing;
use crate::wire::words::{BATCH_WORDS, Signal, WORD, next_sequence};

/// A batch of requests that a trustee has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Which buffer of the pair.
    pub buffer: usize,
    /// First word behind the requests; never before the first request, never more than a batch may
    /// have, whatever the client says.
    pub end: usize,
}

/// The trustee's half of a pair of threads.
pub struct TrusteeSlot {
    memory: SharedBytes,
    /// The parts of it that are buffers.
    buffers: [SharedBytes; BUFFERS],
    expected: Cell<u32>,
    /// The word of the expected batch's signal.
    expected_at: Cell<usize>,
    landing: Landing,
}

impl std::fmt::Debug for TrusteeSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrusteeSlot").field("expected", &self.expected).finish_non_exhaustive()
    }
}

impl TrusteeSlot {
    /// The trustee's half over the pair's memory on this side, which must be fresh. If `is_checked`,
    /// what the client writes there has no order, and this side works elsewhere.
    ///
    /// # Panics
    /// If the memory is not [`PAIR_BYTES`] long.
    pub fn new(memory: SharedBytes, is_checked: bool) -> Self {
        assert_eq!(memory.len(), PAIR_BYTES, "the memory of a pair");
        let (landing, memory) = Landing::new(memory, is_checked);
        let buffers = std::array::from_fn(|buffer| memory.slice(buffer * SLOT_STRIDE, SLOT_BYTES));
        let first = next_sequence(0);
        let (expected, expected_at) = (Cell::new(first), Cell::new(start_of(buffer_of(first))));
        Self { memory, buffers, expected, expected_at, landing }
    }

    /// The memory that this side works in: the pair's, or its own if what arrives is checked.
    #[cfg_attr(optimised, inline(always))]
    pub fn memory(&self) -> &SharedBytes {
        &self.memory
    }

    /// The batch that has arrived, if one has.
    #[cfg_attr(optimised, inline(always))]
    pub fn arrived(&self) -> Option<Arrival> {
        let sequence = self.expected.get();
        let word = self.landing.word(self.expected_at.get());
        if Signal::is_request(word, sequence) { self.arrival(word) } else { None }
    }

    /// The batch that has arrived whose signal this is, if all of it has.
    #[cfg_attr(optimised, inline(always))]
    pub fn arrival(&self, signal: u64) -> Option<Arrival> {
        let sequence = self.expected.get();
        let end = Signal::unpack(signal).end.clamp(1, BATCH_WORDS);
        let buffer = buffer_of(sequence);
        let is_whole = self.landing.take(sequence, &self.memory, start_of(buffer), end);
        is_whole.then_some(Arrival { buffer, end })
    }

    /// Where the signal of the expected batch will be, and its number.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn expected(&self) -> (&AtomicU64, u32) {
        (self.landing.place(self.expected_at.get() * WORD), self.expected.get())
    }

    /// A buffer of the pair.
    #[cfg_attr(optimised, inline(always))]
    pub fn buffer(&self, buffer: usize) -> &SharedBytes {
        &self.buffers[buffer]
    }

    /// Closes the batch that has arrived, whose replies reach to word `end`, and says what to hand back.
    #[cfg_attr(optimised, inline(always))]
    pub fn answer(&self, end: usize) -> Handover {
        let sequence = self.expected.get();
        let next = next_sequence(sequence);
        self.expected.set(next);
        self.expected_at.set(start_of(buffer_of(next)));
        let word = Signal { sequence, requests: 0, end }.reply();
        Handover { buffer: buffer_of(sequence), end, word, sequence, requests: 0 }
    }
}
