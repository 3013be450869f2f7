//! A batch as the closures that serve it see it: where they find their arguments, and where they
//! leave their results.

use std::borrow::Cow;
use std::hint::cold_path;

use primitive::sync::Ordering;
use primitive::{SharedBytes, Words};
use serde::Serialize;

use crate::closure::plain_bytes::{PlainBytes, result_words, word_of};
use crate::codec::{self, Plain};
use crate::error::{BadValue, CodecError, PanicReport, Refusal};
use crate::wire::bulk::BATCH_REPLY_BYTES;
use crate::wire::copy::{STACK_BYTES, copied_out};
use crate::wire::words::{
    APART_AHEAD, BATCH_WORDS, ReplyHead, RequestHead, RunLayout, SLOT_WORDS, Status, WORD,
};

/// Encoded views of up to this many bytes may replace their request, so they stay on the stack until their
/// length is known. Longer ones, which seldom fit there, are encoded where they stand apart.
const VIEW_STACK_BYTES: usize = 64;

/// A batch that is being served: where the calls of its closures find their arguments, and leave
/// their results.
pub(crate) struct Batch<'a> {
    pub(crate) buffer: &'a SharedBytes,
    pub(crate) slot: Words<'a>,
    /// First word after the requests.
    pub(crate) end: usize,
    /// The request that is being served, or the next: its head, or in a run its first word.
    pub(crate) at: usize,
    /// Each request of the run that is being served.
    pub(crate) run: Received,
    /// How many of them are left, the one at `at` included; 0 outside of runs.
    pub(crate) left: usize,
    /// The word that they have in common, if they have one.
    pub(crate) word: u64,
    /// Whether the panic just caught came after every call of the run had its result, so that it belongs to
    /// no request.
    pub(crate) panicked_after_run: bool,
    /// First word after the requests and the replies that stand apart.
    pub(crate) tail: usize,
    /// The payload of the request that is being served, where it came by the bulk path.
    pub(crate) bulk: Option<Vec<u8>>,
    /// A reply that must go by the bulk path before anything else is served.
    pub(crate) outsized: Option<Vec<u8>>,
    /// Bytes of all replies that go by the bulk path.
    pub(crate) bulk_bytes: usize,
}

/// One request of a batch, or of a run in it.
#[derive(Clone, Copy)]
pub(crate) struct Received {
    pub(crate) head: RequestHead,
    /// Words after the head that belong to it: cut where the batch ends. In a run, those after its first.
    pub(crate) words: usize,
}

/// A cursor into a batch, written back on drop, also when a closure panics.
pub(crate) struct Place<'a, 'b> {
    pub(crate) batch: &'a mut Batch<'b>,
    pub(crate) at: usize,
}

impl Drop for Place<'_, '_> {
    #[cfg_attr(optimised, inline(always))]
    fn drop(&mut self) {
        self.batch.at = self.at;
    }
}

impl Batch<'_> {
    /// The request whose turn it is; `None` after the last one. `layout` says how the requests of runs lie,
    /// by the id of their closure.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn request(&mut self, layout: impl Fn(u32) -> RunLayout) -> Option<Received> {
        if self.left > 0 {
            cold_path();
            return Some(self.run);
        }
        if self.at >= self.end {
            return None;
        }
        let head = RequestHead::from_word(self.slot.load(self.at, Ordering::Relaxed));
        if head.is_run() {
            return self.begin_run(head, layout(head.closure()));
        }
        let words = head.words().min(self.end - self.at - 1);
        Some(Received { head, words })
    }

    /// Goes from the head of a run to its first request. After a run without any, which only a client sends
    /// that breaks the rules, nothing is served.
    #[cfg_attr(optimised, inline(always))]
    fn begin_run(&mut self, head: RequestHead, layout: RunLayout) -> Option<Received> {
        let first = self.at + 1 + layout.common_words();
        let requests = head.words().min(layout.requests_in(self.end.saturating_sub(first)));
        if requests == 0 {
            cold_path();
            self.at = self.end;
            return None;
        }
        if layout.common_words() > 0 {
            self.word = self.slot.load(first - 1, Ordering::Relaxed);
        }
        (self.at, self.left) = (first, requests);
        self.run = Received { head, words: layout.words() - 1 };
        Some(self.run)
    }

    /// Whether no request is left.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0 && self.at >= self.end
    }

    /// Goes on to the next request.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn pass(&mut self, request: Received) {
        self.at += 1 + request.words;
        self.left = self.left.saturating_sub(1);
    }

    /// Whether the next request is such a one again, whole.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn is_next(&self, request: Received) -> bool {
        self.at + request.words < self.end
            && self.slot.load(self.at, Ordering::Relaxed) == request.head.word()
    }

    /// How many requests that are the same but for their arguments begin with `request`, whose turn it is:
    /// up to `most`, all of them whole.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn count_equal(&self, request: Received, most: usize) -> usize {
        let stride = 1 + request.words;
        let is_equal = |at: usize| {
            at + request.words < self.end
                && self.slot.load(at, Ordering::Relaxed) == request.head.word()
        };
        (1..most).find(|count| !is_equal(self.at + count * stride)).unwrap_or(most)
    }

    /// Hands the payload of `request` to `read` as bytes of this thread's own.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn payload<R>(&mut self, request: Received, read: impl FnOnce(&[u8]) -> R) -> R {
        match self.bulk.take() {
            Some(bytes) => read(&bytes),
            None => copied_out(self.buffer, (self.at + 1) * WORD, request.words * WORD, read),
        }
    }

    /// Writes the result of `request`. It is gone when anything is written: if its destructor
    /// panics, there is no reply yet.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn reply<U: Serialize + 'static>(&mut self, request: Received, value: U) {
        match codec::to_plain(&value) {
            Some(Plain::Word(word)) => self.slot.store(self.at, word, Ordering::Relaxed),
            Some(Plain::Nothing) => {}
            None => self.reply_encoded(request, value),
        }
    }

    #[inline]
    fn reply_encoded<U: Serialize + 'static>(&mut self, request: Received, value: U) {
        let mut encoded = codec::Encoded::<STACK_BYTES>::new();
        let outcome = encoded.encode(&value);
        let undelivered = codec::Undelivered(encoded.bytes());
        drop(value);
        std::mem::forget(undelivered);
        if let Err(error) = outcome {
            return self.refuse_by(&Refusal::Result(BadValue::unencodable::<U>(error)));
        }
        if !self.reply_in_place(request, encoded.bytes()) {
            self.reply_apart(Status::Done, encoded.take_bytes(), BadValue::unencodable::<U>);
        }
    }

    /// Writes an encoded result where the request was; false if it has no room there.
    #[cfg_attr(optimised, inline(always))]
    fn reply_in_place(&mut self, request: Received, bytes: &[u8]) -> bool {
        let has_room = bytes.len() <= request.words * WORD;
        if has_room {
            self.slot.store(self.at, bytes.len() as u64, Ordering::Relaxed);
            self.buffer.write_from((self.at + 1) * WORD, bytes);
        }
        has_room
    }

    /// Writes a result that refers to the property. Unless it is short, it is encoded where it stays:
    /// after the requests, as in [`reply_apart`](Self::reply_apart).
    #[inline]
    pub(crate) fn reply_view<U: Serialize>(&mut self, request: Received, view: &U) {
        let first = self.tail + 1;
        let room = (SLOT_WORDS - BATCH_WORDS).saturating_sub(first) * WORD;
        let place = codec::InBuffer::new(self.buffer, first * WORD, room);
        let mut encoded = codec::Encoded::<VIEW_STACK_BYTES, _>::spilling_to(place);
        if let Err(error) = encoded.encode(view) {
            return self.refuse_by(&Refusal::Result(BadValue::unencodable::<U>(error)));
        }
        if let Some(bytes) = encoded.in_place() {
            if !self.reply_in_place(request, bytes) {
                self.reply_apart(Status::Done, Cow::Borrowed(bytes), BadValue::unencodable::<U>);
            }
            return;
        }
        let len = encoded.len();
        if len > room {
            return self.reply_large_view(view);
        }
        let head = ReplyHead { status: Status::Done, bulk: false, at: self.at, len };
        self.slot.store(self.tail, head.pack(), Ordering::Relaxed);
        self.tail = first + len.div_ceil(WORD);
        // The client has the lines of the next ones: it has read them.
        let ahead = self.tail * WORD + APART_AHEAD;
        self.buffer.prefetch_write(ahead - len, ahead);
    }

    /// Replies with a view for which the slot has no room: by the bulk path. It holds no trusts, or the
    /// attempt before would have failed, so it may be encoded again.
    #[cold]
    #[inline(never)]
    fn reply_large_view<U: Serialize>(&mut self, view: &U) {
        let mut encoded = codec::Encoded::<0>::new();
        match encoded.encode(view) {
            Ok(()) => {
                self.reply_apart(Status::Done, encoded.take_bytes(), BadValue::unencodable::<U>);
            }
            Err(error) => self.refuse_by(&Refusal::Result(BadValue::unencodable::<U>(error))),
        }
    }

    /// Writes the result of a call of plain bytes where the request was, which has room for it unless
    /// its client breaks the rules.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn reply_bytes<R: PlainBytes>(&mut self, request: Received, value: &R) {
        if const { result_words::<R>() } > 1 + request.words {
            return self.refuse("the request has no room for its result");
        }
        for index in 0..const { result_words::<R>() } {
            self.slot.store(self.at + index, word_of(value, index), Ordering::Relaxed);
        }
    }

    /// Replies with the error of a call of plain bytes.
    #[cold]
    #[inline(never)]
    pub(crate) fn fail<E: Serialize>(&mut self, error: E) {
        let mut encoded = codec::Encoded::<STACK_BYTES>::new();
        let outcome = encoded.encode(&error);
        let undelivered = codec::Undelivered(encoded.bytes());
        drop(error);
        std::mem::forget(undelivered);
        match outcome {
            Ok(()) => {
                self.reply_apart(Status::Failed, encoded.take_bytes(), BadValue::unencodable::<E>);
            }
            Err(error) => {
                self.refuse_by(&Refusal::Result(BadValue::unencodable::<E>(error)));
            }
        }
    }

    /// Replies that the result comes later, in a request of its own.
    #[cold]
    #[inline(never)]
    pub(crate) fn reply_later(&mut self) {
        self.reply_apart(Status::Later, Cow::Borrowed(&[]), BadValue::unencodable::<()>);
    }

    /// A reply that does not fit where its request was, or is no result: after the requests, or by
    /// the bulk path. A word is kept for the head of each that may still come, so that there is
    /// room for this one.
    #[inline(never)]
    fn reply_apart(
        &mut self,
        status: Status,
        bytes: Cow<'_, [u8]>,
        too_many: fn(CodecError) -> BadValue,
    ) {
        let (at, len, words) = (self.at, bytes.len(), bytes.len().div_ceil(WORD));
        let bulk = self.tail + 1 + words > SLOT_WORDS - BATCH_WORDS;
        let is_result = matches!(status, Status::Done | Status::Failed);
        if bulk && is_result && self.bulk_bytes + len > BATCH_REPLY_BYTES {
            let reason = format!(
                "the results of one batch have more than {BATCH_REPLY_BYTES} bytes: ask for fewer \
                 large results at a time, or for parts of them"
            );
            codec::give_back(&bytes);
            return self.refuse_by(&Refusal::Result(too_many(CodecError(reason))));
        }
        let head = ReplyHead { status, bulk, at, len };
        self.slot.store(self.tail, head.pack(), Ordering::Relaxed);
        self.tail += 1;
        if bulk {
            self.bulk_bytes += len;
            self.outsized = Some(bytes.into_owned());
        } else {
            self.buffer.write_from(self.tail * WORD, &bytes);
            self.tail += words;
        }
    }

    fn reply_report<R: Serialize>(&mut self, status: Status, report: &R) {
        let mut encoded = codec::Encoded::<STACK_BYTES>::new();
        // A report can always be encoded; an empty payload is the fallback.
        let _ = encoded.encode(report);
        self.reply_apart(status, encoded.take_bytes(), BadValue::unencodable::<R>);
    }

    /// Replies that nothing ran, and why.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&mut self, reason: &str) {
        self.refuse_by(&Refusal::Refused(reason.to_owned()));
    }

    /// As [`refuse`](Self::refuse), for any reason.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse_by(&mut self, refusal: &Refusal) {
        // What came by the bulk path for this request is not the next one's.
        self.bulk = None;
        self.reply_report(Status::Refused, refusal);
    }

    /// Replies that the closure panicked.
    #[cold]
    pub(crate) fn panicked(&mut self, report: &PanicReport) {
        self.reply_report(Status::Panicked, report);
    }
}
