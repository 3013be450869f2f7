//! [`ClientSlot`]: the client's half of the slot protocol.

use std::cell::Cell;

use primitive::limits::{BUFFERS, SLOT_STRIDE};
use primitive::{SharedBytes, WordWriter};

use super::{Handover, PAIR_BYTES, buffer_of, start_of};
use crate::wire::integrity::Landing;
use crate::wire::words::{
    APART_AHEAD, BATCH_WORDS, RequestHead, RunLayout, SLOT_WORDS, Signal, WORD, next_sequence,
};

/// The client's half of a pair of threads.
///
/// It counts words from the start of the pair's memory and not of a buffer, so that adding a
/// request does not ask which buffer is being filled.
pub struct ClientSlot {
    /// Writes into the buffer being filled; has no room while the batch is not [open](Self::open).
    writer: WordWriter,
    /// The batch being filled.
    filling: Cell<u32>,
    /// The word of the first request's head in it.
    first: Cell<usize>,
    /// The oldest batch in flight; equal to `filling` when none is.
    oldest: Cell<u32>,
    /// The word of its signal.
    oldest_at: Cell<usize>,
    in_flight: Cell<usize>,
    /// First word behind the requests of the batches in flight, by buffer.
    ends: [Cell<usize>; BUFFERS],
    blocked: Cell<bool>,
    landing: Landing,
}

impl std::fmt::Debug for ClientSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientSlot")
            .field("filling", &self.filling)
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

/// The first word behind everything in the oldest batch in flight, which has been answered: never beyond
/// the buffer, whatever the trustee says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerEnd(usize);

/// A batch that has come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Which buffer of the pair.
    pub(crate) buffer: usize,
    /// First word behind the requests; replies that stand apart begin here.
    pub(crate) requests: usize,
    /// First word behind everything; never before `requests`, never beyond the buffer, whatever the
    /// trustee says.
    pub(crate) end: usize,
}

impl ClientSlot {
    /// The client's half over the pair's memory on this side, which must be fresh. If `is_checked`,
    /// what the trustee writes there has no order, and this side works elsewhere.
    ///
    /// # Panics
    /// If the memory is not [`PAIR_BYTES`] long.
    pub fn new(memory: SharedBytes, is_checked: bool) -> Self {
        assert_eq!(memory.len(), PAIR_BYTES, "the memory of a pair");
        let (landing, memory) = Landing::new(memory, is_checked);
        let sequence = next_sequence(0);
        let first = start_of(buffer_of(sequence)) + 1;
        Self {
            writer: WordWriter::new(memory, first),
            filling: Cell::new(sequence),
            first: Cell::new(first),
            oldest: Cell::new(sequence),
            oldest_at: Cell::new(first - 1),
            in_flight: Cell::new(0),
            ends: Default::default(),
            blocked: Cell::new(false),
            landing,
        }
    }

    /// The memory that this side works in: the pair's, or its own if what arrives is checked.
    #[cfg_attr(optimised, inline(always))]
    pub fn memory(&self) -> &SharedBytes {
        self.writer.memory()
    }

    /// Opens a batch for requests, if there is a buffer for it and none [is
    /// waiting](Self::is_waiting).
    #[cfg_attr(optimised, inline(always))]
    pub fn open(&self) -> bool {
        let open = self.in_flight.get() < BUFFERS && !self.blocked.get() && !self.is_waiting();
        if open {
            self.writer.set_limit(self.first.get() - 1 + BATCH_WORDS);
        }
        open
    }

    /// Whether a batch is open.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn is_open(&self) -> bool {
        self.writer.limit() > 0
    }

    /// Ends a batch that is open and has no requests.
    pub(crate) fn close(&self) {
        debug_assert!(!self.is_waiting());
        self.writer.set_limit(0);
    }

    /// Keeps batches from being opened, or ends that.
    pub(crate) fn block(&self, blocked: bool) {
        self.blocked.set(blocked);
        if blocked {
            self.writer.set_limit(0);
        }
    }

    /// Whether requests wait to be handed over.
    #[cfg_attr(optimised, inline(always))]
    pub fn is_waiting(&self) -> bool {
        self.writer.position() > self.first.get()
    }

    /// The batch that is being filled.
    pub(crate) fn filling(&self) -> u32 {
        self.filling.get()
    }

    /// Batches handed over and not yet taken back.
    #[cfg_attr(optimised, inline(always))]
    pub fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// Adds a request with `words` words of payload, of which the first may be given, and returns
    /// the word at which its head stands; the caller writes the rest behind it before handing over.
    /// `None` if the batch is not open, or the request has no room in it.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn append(
        &self,
        words: usize,
        head: RequestHead,
        first: Option<u64>,
    ) -> Option<usize> {
        debug_assert!(words == head.words());
        self.writer.put(1 + words, head.word(), first)
    }

    /// Where the next request is written.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn position(&self) -> usize {
        self.writer.position()
    }

    /// Takes the words for the head of a run and for what its requests have in common, behind which there
    /// is then room for `most` requests, at least one, if the batch has as many left; false if there is no
    /// room for one.
    pub(crate) fn begin_run(&self, layout: RunLayout, most: usize) -> bool {
        let limit = self.writer.limit();
        let first = self.writer.position() + 1 + layout.common_words();
        let has_room = first + layout.words() <= limit;
        if has_room {
            self.writer.take(1 + layout.common_words(), None);
            self.writer.set_limit(limit.min(first + most * layout.words()));
        }
        has_room
    }

    /// Adds a request of so many words to the run that has begun and returns its first word; `None` if there
    /// is no room for it.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn append_to_run(&self, words: usize, first: Option<u64>) -> Option<usize> {
        self.writer.take(words, first)
    }

    /// Ends the run: other requests may follow. The caller writes its head.
    pub(crate) fn end_run(&self) {
        if self.writer.limit() > 0 {
            self.writer.set_limit(self.first.get() - 1 + BATCH_WORDS);
        }
    }

    /// Adds a request of one word and returns the word at which its head stands: for the models,
    /// which know neither closures nor properties.
    #[cfg(loom)]
    pub fn append_word(&self, payload: u64) -> Option<usize> {
        self.append(1, RequestHead::new(0, 0, 1, false), Some(payload))
    }

    /// Closes the batch being filled, if there is one, which has so many requests, and says what to
    /// hand over.
    #[cfg_attr(optimised, inline(always))]
    pub fn seal(&self, requests: usize) -> Option<Handover> {
        if !self.is_waiting() {
            return None;
        }
        let sequence = self.filling.get();
        let buffer = buffer_of(sequence);
        let end = self.writer.position() - (self.first.get() - 1);
        let signal = Signal { sequence, requests, end };
        self.ends[buffer].set(end);
        let next = next_sequence(sequence);
        self.filling.set(next);
        self.first.set(start_of(buffer_of(next)) + 1);
        self.writer.move_to(self.first.get());
        self.in_flight.set(self.in_flight.get() + 1);
        Some(Handover { buffer, end: signal.end, word: signal.request(), sequence, requests })
    }

    /// Where the answer to the oldest batch in flight ends, if that has been answered.
    #[cfg_attr(optimised, inline(always))]
    pub fn answered(&self) -> Option<AnswerEnd> {
        if self.in_flight.get() == 0 {
            return None;
        }
        let sequence = self.oldest.get();
        let word = self.landing.word(self.oldest_at.get());
        if !Signal::is_reply(word, sequence) {
            return None;
        }
        let buffer = buffer_of(sequence);
        let end = Signal::unpack(word).end.min(SLOT_WORDS);
        if !self.landing.take(sequence, self.memory(), start_of(buffer), end) {
            return None;
        }
        Some(AnswerEnd(end))
    }

    /// The oldest batch in flight, whose answer ends there.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn answer(&self, AnswerEnd(end): AnswerEnd) -> Answer {
        let buffer = buffer_of(self.oldest.get());
        let requests = self.ends[buffer].get();
        Answer { buffer, requests, end: end.max(requests) }
    }

    /// Asks the processor for the lines of an answered buffer in which the requests were, to read the
    /// replies and to write the next batch there.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn prefetch_answered(&self, answer: Answer) {
        let start = answer.buffer * SLOT_STRIDE;
        self.memory().prefetch_write(start, start + answer.requests * WORD);
    }

    /// Asks the processor for the first replies that stand apart. Their lines are the trustee's to write
    /// again.
    pub(crate) fn prefetch_first_apart(&self, answer: Answer) {
        let start = answer.buffer * SLOT_STRIDE;
        let requests = start + answer.requests * WORD;
        self.memory().prefetch(requests, (start + answer.end * WORD).min(requests + APART_AHEAD));
    }

    /// Asks the processor for replies that stand apart, some way behind those in the words `from..to` of
    /// the buffer, which are read now.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn prefetch_apart(&self, buffer: usize, from: usize, to: usize) {
        let ahead = |word| (buffer * SLOT_STRIDE + word * WORD) + APART_AHEAD;
        self.memory().prefetch(ahead(from), ahead(to));
    }

    /// Takes the oldest batch back: its buffer can be filled again.
    #[cfg_attr(optimised, inline(always))]
    pub fn take_back(&self) {
        debug_assert!(self.in_flight.get() > 0);
        let oldest = next_sequence(self.oldest.get());
        self.oldest.set(oldest);
        self.oldest_at.set(start_of(buffer_of(oldest)));
        self.in_flight.set(self.in_flight.get() - 1);
    }
}
