//! [`PlainCalls`]: short calls of plain bytes behind each other, which a trustee serves together.
//!
//! ```text
//!   slot      | head | word | args .. | head | args .. | head | args .. |    only the first may have its word
//!   results          | result .. |    | result .. |    | result .. |         while the run is served
//!             | result .. |           | result .. |    | result .. |         when they have ended
//! ```
//!
//! So arguments are as far apart as results, and one number leads from a call to the next. The result of a
//! first call with its word is moved to the head's place when that call ends.
//!
//! How many calls there are is counted once. A peer that writes the slot meanwhile changes arguments that
//! have not been read yet, which it could have sent, and results that it would get. Calls that have ended
//! have their results, also where one behind them fails or panics.

use std::fmt;
use std::marker::PhantomData;

use primitive::limits::BATCH_REQUESTS;
use primitive::sync::Ordering;
use primitive::{SharedBytes, Words};

use crate::closure::plain_bytes::{PlainBytes, reply_words, word_of};
use crate::wire::words::WORD;

/// Calls of a run, at most: what a batch of an honest peer may have.
const MAX_CALLS: usize = BATCH_REQUESTS;

/// Calls of one kind and with one word that stand behind each other, which
/// [`PlainCall::serve_run`](crate::PlainCall::serve_run) serves: at least one. How many there are depends on
/// what a peer has sent.
pub struct PlainCalls<'a, R: PlainBytes> {
    memory: &'a SharedBytes,
    /// All words of the batch.
    slot: Words<'a>,
    /// The word of the head of the first call that has not ended.
    at: &'a mut usize,
    /// Whether the word of the calls stands behind that head.
    has_word: bool,
    /// The head of the calls behind the first.
    head: Option<u64>,
    /// Calls that have not ended.
    left: usize,
    /// Those that there were at first.
    count: usize,
    /// Words from one head to the next; behind a head with its word, one more.
    step: usize,
    /// The length of the arguments of each call.
    bytes: usize,
    _replies: PhantomData<R>,
}

/// Where the calls of a run are, in memory that a peer can write: nothing may refer to it, and code reads
/// what it needs once.
#[derive(Clone, Copy, Debug)]
pub struct InPlace {
    /// The arguments of the first call that has not ended, at a multiple of eight. In front of those of each
    /// call is its head, which a result replaces.
    pub arguments: *const u8,
    /// Where its result goes, at a multiple of eight. It may lie over the arguments.
    pub result: *mut u8,
    /// Bytes from there to the next call's.
    pub step: usize,
    /// Calls that have not ended.
    pub count: usize,
}

impl<R: PlainBytes> fmt::Debug for PlainCalls<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainCalls")
            .field("calls", &self.count)
            .field("ended", &(self.count - self.left))
            .finish_non_exhaustive()
    }
}

impl<'a, R: PlainBytes> PlainCalls<'a, R> {
    /// The call whose head is at the word `at`, and those behind it as long as they have this `head`.
    /// `step` is the number of words from one head to the next, but from the first one more if that
    /// `has_word`; arguments have `bytes` bytes.
    ///
    /// # Panics
    /// If the first call is not inside the slot.
    #[inline(always)]
    pub(super) fn new(
        (memory, slot): (&'a SharedBytes, Words<'a>),
        at: &'a mut usize,
        has_word: bool,
        (head, step): (Option<u64>, usize),
        bytes: usize,
    ) -> Self {
        let first = *at + usize::from(has_word);
        let most = ((slot.len() - first) / step).min(MAX_CALLS);
        assert!(most > 0, "a call that is not inside its batch");
        let behind = (first + step, step);
        let count = 1 + head.map_or(0, |head| slot.run_length(behind, most - 1, head));
        PlainCalls {
            memory,
            slot,
            at,
            has_word,
            head,
            left: count,
            count,
            step,
            bytes,
            _replies: PhantomData,
        }
    }

    /// Calls that have not ended.
    #[inline(always)]
    pub fn left(&self) -> usize {
        self.left
    }

    /// Copies the arguments of the first call that has not ended to the front of `to`.
    ///
    /// # Panics
    /// If `to` is shorter, or all calls have ended.
    #[inline(always)]
    pub fn copy_arguments(&self, to: &mut [u8]) {
        assert!(self.left > 0, "there is no call left");
        self.memory.read_into((self.first() + 1) * WORD, &mut to[..self.bytes]);
    }

    /// Ends the first call that has not ended, with this result.
    ///
    /// # Panics
    /// If all calls have ended.
    #[inline(always)]
    pub fn end(&mut self, reply: &R) {
        assert!(self.left > 0, "there is no call left");
        let place = self.slot.part(*self.at, 1 + const { reply_words::<R>() });
        for index in 0..const { 1 + reply_words::<R>() } {
            place.store(index, word_of(reply, index), Ordering::Relaxed);
        }
        self.pass(1);
    }

    /// Where the calls are, for code that reads arguments and writes results there.
    #[inline(always)]
    pub fn in_place(&mut self) -> InPlace {
        let result = self.memory.address().as_ptr().wrapping_add(self.first() * WORD);
        let arguments = result.wrapping_add(WORD).cast_const();
        InPlace { arguments, result, step: self.step * WORD, count: self.left }
    }

    /// Ends the first `count` of the calls that have not ended, with the results that are [in
    /// place](Self::in_place).
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    pub fn end_in_place(&mut self, count: usize) {
        assert!(count <= self.left, "more calls have ended than there are");
        if self.has_word && count > 0 {
            let words = const { 1 + reply_words::<R>() };
            let place = self.slot.part(*self.at, 1 + words);
            for index in 0..words {
                place.store(index, place.load(index + 1, Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        self.pass(count);
    }

    /// Whether none has ended.
    pub(super) fn is_untouched(&self) -> bool {
        self.left == self.count
    }

    /// Leaves out the first call that has not ended, which has failed; the word of its head. Those behind it
    /// are requests again, whatever has been written over their heads.
    pub(super) fn pass_failed(&mut self) -> usize {
        let failed = *self.at;
        self.pass(1);
        if let Some(head) = self.head {
            for call in 0..self.left {
                self.slot.store(*self.at + call * self.step, head, Ordering::Relaxed);
            }
        }
        failed
    }

    #[inline(always)]
    fn pass(&mut self, count: usize) {
        if count > 0 {
            *self.at = self.first() + count * self.step;
            self.has_word = false;
            self.left -= count;
        }
    }

    /// The word in front of the arguments of the first call that has not ended.
    #[inline(always)]
    fn first(&self) -> usize {
        *self.at + usize::from(self.has_word)
    }
}
