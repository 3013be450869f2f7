//! [`PlainCalls`]: calls of plain bytes that a trustee serves together, as a run.
//!
//! Each has its arguments in the slot, and gets its result in their place. A peer that writes the slot
//! meanwhile changes arguments that have not been read yet, which it could have sent, and results that it
//! would get. Calls that have ended have their results, also where one after them fails or panics: where
//! the run has come to is the batch's own place in it.

use std::fmt;
use std::marker::PhantomData;

use primitive::sync::Ordering;

use crate::closure::batch::Batch;
use crate::closure::plain_bytes::{PlainBytes, result_words, word_of};
use crate::wire::words::WORD;

/// Calls of one kind and with one word that stand one after another, which
/// [`PlainCall::serve_run`](crate::PlainCall::serve_run) serves: at least one. How many there are depends on
/// what a peer has sent.
pub struct PlainCalls<'a, 'b, R: PlainBytes> {
    /// Its place is that of the first call that has not ended; all of those are inside the slot. There is
    /// little else here: code for failures gets this by reference, and then what it consists of is in memory
    /// for each run.
    batch: &'a mut Batch<'b>,
    /// Words of each call.
    words: usize,
    /// The length of the arguments of each call.
    bytes: usize,
    _replies: PhantomData<R>,
}

/// Where the calls of a run are, in memory that a peer can write: nothing may refer to it, and code reads
/// what it needs once.
#[derive(Clone, Copy, Debug)]
pub struct InPlace {
    /// The arguments of the first call that has not ended, at a multiple of eight. Its result goes to the
    /// same place.
    pub first: *mut u8,
    /// Bytes from there to the next call's.
    pub step: usize,
    /// Calls that have not ended.
    pub count: usize,
}

impl<R: PlainBytes> fmt::Debug for PlainCalls<'_, '_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainCalls").field("left", &self.left()).finish_non_exhaustive()
    }
}

impl<'a, 'b, R: PlainBytes> PlainCalls<'a, 'b, R> {
    /// The calls of the run that `batch` is in, of `words` words each; arguments have `bytes` bytes.
    ///
    /// # Panics
    /// If they are not inside the slot, or the words of a call have no room for arguments or result.
    #[inline(always)]
    pub(super) fn new(batch: &'a mut Batch<'b>, words: usize, bytes: usize) -> Self {
        assert!(bytes.div_ceil(WORD) <= words && const { result_words::<R>() } <= words);
        // `in_place` hands out a raw pointer: check the bounds here.
        batch.slot.part(batch.at, batch.left * words);
        PlainCalls { batch, words, bytes, _replies: PhantomData }
    }

    /// Calls that have not ended.
    #[inline(always)]
    pub fn left(&self) -> usize {
        self.batch.left
    }

    /// Copies the arguments of the first call that has not ended to the front of `to`.
    ///
    /// # Panics
    /// If `to` is shorter, or all calls have ended.
    #[inline(always)]
    pub fn copy_arguments(&self, to: &mut [u8]) {
        assert!(self.left() > 0, "there is no call left");
        self.batch.buffer.read_into(self.batch.at * WORD, &mut to[..self.bytes]);
    }

    /// Ends the first call that has not ended, with this result.
    ///
    /// # Panics
    /// If all calls have ended.
    #[inline(always)]
    pub fn end(&mut self, reply: &R) {
        assert!(self.left() > 0, "there is no call left");
        let place = self.batch.slot.part(self.batch.at, const { result_words::<R>() });
        for index in 0..const { result_words::<R>() } {
            place.store(index, word_of(reply, index), Ordering::Relaxed);
        }
        self.end_in_place(1);
    }

    /// Ends all calls, each with what `serve` makes of a copy of its arguments in `copy`, up to the first
    /// that fails. What the calls have in common stays in registers.
    #[inline(always)]
    pub(super) fn serve_each<E>(
        &mut self,
        copy: &mut [u8],
        mut serve: impl FnMut(&[u8]) -> Result<R, E>,
    ) -> Result<(), E> {
        let (buffer, slot) = (self.batch.buffer, self.batch.slot);
        let copy = &mut copy[..self.bytes];
        while self.batch.left > 0 {
            buffer.read_into(self.batch.at * WORD, copy);
            let reply = serve(copy)?;
            let place = slot.part(self.batch.at, const { result_words::<R>() });
            for index in 0..const { result_words::<R>() } {
                place.store(index, word_of(&reply, index), Ordering::Relaxed);
            }
            self.end_in_place(1);
        }
        Ok(())
    }

    /// Where the calls are, for code that reads arguments and writes results there.
    #[inline(always)]
    pub fn in_place(&mut self) -> InPlace {
        let first = self.batch.buffer.address().as_ptr().wrapping_add(self.batch.at * WORD);
        InPlace { first, step: self.words * WORD, count: self.left() }
    }

    /// Ends the first `count` of the calls that have not ended, with the results that are [in
    /// place](Self::in_place).
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    pub fn end_in_place(&mut self, count: usize) {
        assert!(count <= self.left(), "more calls have ended than there are");
        self.batch.at += count * self.words;
        self.batch.left -= count;
    }
}
