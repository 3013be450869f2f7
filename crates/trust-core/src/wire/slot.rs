//! The slot protocol: how one client and one trustee hand buffers back and forth.
//!
//! Each ordered pair of threads owns [`BUFFERS`] buffers. A buffer belongs to the client until its
//! signal word says "requests", then to the trustee until the word says "reply". The owner of a
//! buffer reads and writes it plainly; only the signal word is ever touched by both, and each side
//! only writes it to give the buffer away. So there is a single writer at any time, and no atomic
//! read-modify-write anywhere.
//!
//! Rules, which the loom models in `tests/loom_slot.rs` check:
//! 1. The client fills buffers in turn; batch `n` is in buffer `n % BUFFERS`, and its signal says
//!    `n`.
//! 2. The trustee serves batches in order, so it looks at one signal word only: that of the batch
//!    it expects next ([`Expected`](crate::wire::expected::Expected)).
//! 3. The client takes replies in order, so it looks at one signal word only: that of the oldest
//!    batch in flight.
//! 4. A signal is stored with release after everything it covers, and loaded with acquire before
//!    anything it covers is read: by the other side where both use the same memory; by the
//!    transport, behind a write of the words, where each has its own and the transport is a stream.
//!    Over other transports a buffer travels as one write, and has come when its checksum is right
//!    (`integrity.rs`).
//!
//! The module moves words and knows neither closures nor transports: giving a buffer away is
//! handed out as a [`Handover`], which the caller carries out on its lane.

mod client;
mod trustee;

use std::ops::Range;

use primitive::SharedBytes;
use primitive::limits::{BUFFERS, SLOT_BYTES, SLOT_STRIDE};
use primitive::sync::Ordering;
use transport_api::integrity::checksum;

#[cfg(not(loom))]
pub(crate) use self::client::Answer;
pub use self::client::{AnswerEnd, ClientSlot};
pub use self::trustee::{Arrival, TrusteeSlot};
use crate::wire::words::WORD;

/// A buffer to give away: store the signal word, where the other side uses the same memory; send the
/// words that it covers and then the signal word, over a stream; or else send what
/// [`in_one_write`](Self::in_one_write) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Which buffer of the pair.
    pub buffer: usize,
    /// First word behind what was written; the signal word at word 0 is not part of it.
    pub end: usize,
    /// The signal word.
    pub word: u64,
    /// The batch it hands over.
    pub sequence: u32,
    /// How many requests are in it; none in an answer.
    pub requests: usize,
}

impl Handover {
    /// The byte of the signal word in the memory of a pair.
    pub(crate) fn signal_at(&self) -> usize {
        start_of(self.buffer) * WORD
    }

    /// The bytes that the signal word covers, in the memory of a pair.
    pub(crate) fn words(&self) -> Range<usize> {
        self.signal_at() + WORD..self.signal_at() + self.end * WORD
    }

    /// Completes the buffer in `pair`, the memory of this side, and returns the bytes of it that
    /// the other side is to have, by a write of whatever order.
    pub fn in_one_write(&self, pair: &SharedBytes) -> Range<usize> {
        let start = start_of(self.buffer);
        let words = pair.words();
        words.store(start, self.word, Ordering::Relaxed);
        words.store(start + self.end, checksum(pair, start, self.end), Ordering::Relaxed);
        start * WORD..(start + self.end + 1) * WORD
    }
}

/// Words from one buffer of a pair to the next.
const STRIDE: usize = SLOT_STRIDE / WORD;

/// Bytes of the memory of a pair. Between buffers is room for a full one's checksum.
pub const PAIR_BYTES: usize = BUFFERS * SLOT_STRIDE;

const _: () = assert!(SLOT_STRIDE >= SLOT_BYTES + WORD);

#[cfg_attr(optimised, inline(always))]
pub(crate) fn buffer_of(sequence: u32) -> usize {
    const { assert!(BUFFERS == 2, "`next_sequence` alternates between two") };
    sequence as usize % BUFFERS
}

/// Where a buffer begins in the memory of its pair, in words.
#[cfg_attr(optimised, inline(always))]
pub(crate) fn start_of(buffer: usize) -> usize {
    buffer * STRIDE
}
