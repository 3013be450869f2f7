//! [`PlainCalls`]: short calls of plain bytes behind each other, which a trustee serves together.
//!
//! ```text
//!   slot        | head | args | head | args | head | args |
//!   arguments   | args | args | args |
//!   results     | result | result | result |
//!   slot        | result .. | result .. | result .. |        where the heads were
//! ```
//!
//! The arguments are copied before any call is served, so what a peer writes meanwhile changes none of
//! them. Results are copied back when all of a run have ended, or one has failed or panicked: those that
//! have ended before it have their results then, and it has its failure.

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use primitive::Words;
use primitive::sync::Ordering;

use crate::closure::plain_bytes::{PlainBytes, reply_words, word_of};
use crate::wire::words::WORD;

/// Bytes of the arguments of a run, and of its results, at most.
pub(super) const RUN_BYTES: usize = 1024;
/// Calls of a run, at most: more than a batch has.
const MAX_CALLS: usize = 64;

/// Calls of one kind and with one word that stand behind each other, which
/// [`PlainCall::serve_run`](crate::PlainCall::serve_run) serves: at least one. How many there are depends on
/// what a peer has sent.
pub struct PlainCalls<'a, R: PlainBytes> {
    /// Those of each call, which are so many bytes, behind those of the one before.
    arguments: &'a [u8],
    bytes: usize,
    replies: &'a mut [R],
    /// How many have ended.
    ended: usize,
    slot: Words<'a>,
    /// The word of the first call's head; of the first that has not ended, once this is dropped.
    at: &'a mut usize,
    first_step: usize,
    /// Words from one head to the next, behind the first.
    step: usize,
}

/// How the first request of a run is other than those behind it.
#[derive(Clone, Copy)]
pub(super) struct First {
    /// Words from its head to the next.
    pub(super) step: usize,
    /// The first word of its arguments, from its head.
    pub(super) arguments: usize,
}

impl<R: PlainBytes> fmt::Debug for PlainCalls<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainCalls")
            .field("calls", &self.replies.len())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl<R: PlainBytes> PlainCalls<'_, R> {
    /// The arguments of the calls that have not ended, one behind the other, in memory of this thread. As
    /// long as none has ended, they begin at a multiple of 16.
    #[inline(always)]
    pub fn arguments(&self) -> &[u8] {
        &self.arguments[self.ended * self.bytes..]
    }

    /// Where the results of the calls that have not ended go: as many as there are of those.
    #[inline(always)]
    pub fn replies(&mut self) -> &mut [R] {
        &mut self.replies[self.ended..]
    }

    /// Ends the first `count` of the calls that have not ended: their callers get what is in
    /// [`replies`](Self::replies).
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    pub fn end(&mut self, count: usize) {
        assert!(count <= self.replies.len() - self.ended, "more calls have ended than there are");
        self.ended += count;
    }

    /// Words from the head of the first call that has not ended to the next.
    #[inline(always)]
    pub(super) fn step(&self) -> usize {
        if self.ended == 0 { self.first_step } else { self.step }
    }

    /// Whether none has ended.
    pub(super) fn is_untouched(&self) -> bool {
        self.ended == 0
    }
}

impl<R: PlainBytes> Drop for PlainCalls<'_, R> {
    #[inline(always)]
    fn drop(&mut self) {
        let (mut at, mut step) = (*self.at, self.first_step);
        for reply in &self.replies[..self.ended] {
            let words = self.slot.part(at, 1 + const { reply_words::<R>() });
            for index in 0..const { 1 + reply_words::<R>() } {
                words.store(index, word_of(reply, index), Ordering::Relaxed);
            }
            at += step;
            step = self.step;
        }
        *self.at = at;
    }
}

/// Room for the arguments of a run and for its results.
#[repr(C, align(16))]
pub(super) struct Room<R> {
    /// Arguments are written in whole words: those of the last call may end with a part of one.
    arguments: MaybeUninit<[u8; RUN_BYTES + 16]>,
    replies: MaybeUninit<[u8; RUN_BYTES]>,
    _replies: PhantomData<R>,
}

impl<R: PlainBytes> Room<R> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        const { assert!(align_of::<R>() <= 16, "a result with an alignment above 16 bytes") };
        let (arguments, replies) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        Room { arguments, replies, _replies: PhantomData }
    }

    /// Copies the arguments of calls out of `slot`, `bytes` of each: of the `first`, whose head is at the word
    /// `at`, and of those behind it as long as they have this `head`, and there is room. `step` is the number
    /// of words from one head to the next.
    ///
    /// # Panics
    /// If arguments or result have more than [`RUN_BYTES`], or the first request is not inside the slot.
    #[inline(always)]
    pub(super) fn fill<'a>(
        &'a mut self,
        slot: Words<'a>,
        at: &'a mut usize,
        first: First,
        (head, step): (u64, usize),
        bytes: usize,
    ) -> PlainCalls<'a, R> {
        let room_for = |bytes: usize| RUN_BYTES.checked_div(bytes).unwrap_or(MAX_CALLS);
        let capacity = room_for(bytes).min(room_for(size_of::<R>())).min(MAX_CALLS);
        assert!(capacity > 0, "a call that is not short");
        let behind = *at + first.step;
        let limit = capacity.min(1 + slot.len().saturating_sub(behind) / step);
        // In this order: the second borrows all of the room.
        let replies = self.replies();
        let room = (&raw mut self.arguments).cast::<u8>();
        let copy = |count: usize, request: Words<'_>, from: usize| {
            for index in 0..bytes.div_ceil(WORD) {
                let word = request.load(from + index, Ordering::Relaxed);
                // SAFETY: inside the room: `count` is less than the capacity, and there is a word more.
                unsafe {
                    let place = room.add(count * bytes + index * WORD);
                    place.cast::<u64>().write_unaligned(word.to_le());
                }
            }
            // SAFETY: inside the room, as above; it is aligned.
            unsafe { replies.add(count).write_bytes(0, 1) };
        };
        copy(0, slot.part(*at, first.step), first.arguments);
        let mut count = 1;
        while count < limit {
            let request = slot.part(behind + (count - 1) * step, step);
            if request.load(0, Ordering::Relaxed) != head {
                break;
            }
            copy(count, request, 1);
            count += 1;
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "memory of this thread, which no peer can write"
        )]
        // SAFETY: so many bytes of arguments, and so many results, have been written; any bytes are a
        // result. This borrows the room.
        let (arguments, replies) = unsafe {
            (
                std::slice::from_raw_parts(room.cast_const(), count * bytes),
                std::slice::from_raw_parts_mut(replies, count),
            )
        };
        PlainCalls { arguments, bytes, replies, ended: 0, slot, at, first_step: first.step, step }
    }
    fn replies(&mut self) -> *mut R {
        self.replies.as_mut_ptr().cast()
    }
}
