//! What a client does when a reply comes: completions, kept in the order of the requests.
//!
//! Every request in flight has one. A completion is any value that implements [`Completion`]; it is
//! moved into a vector of words next to the function that takes it out again, so that a request
//! costs no allocation:
//!
//! ```text
//!   | kind | words, at | the completion's bytes .. | kind | words, at | .. |
//!     &Kind         ^ where the request's head is
//! ```

use crate::{
    call::copied_out,
    codec,
    error::{DelegateError, PanicReport, RACK_ENDED},
    wire::{IN_PLACE, NO_REPLY, ReplyHead, Status, WORD},
};
use primitive::{
    SharedBytes,
    limits::{INLINE_BYTES, SLOT_BYTES},
};
use serde::de::DeserializeOwned;
use std::{
    any::type_name,
    cell::{Cell, UnsafeCell},
};
use transport_api::ThreadId;

/// Where a request's outcome comes from.
pub(crate) enum Source<'a> {
    /// A reply in a slot: in the buffer that begins at word `start` of the memory of a pair.
    Slot { trustee: ThreadId, pair: &'a SharedBytes, start: usize },
    /// A reply that came by the bulk path, or apart from the request's own.
    Bytes { trustee: ThreadId, payload: &'a [u8] },
    /// There will be no reply.
    Failed(&'a DelegateError),
}

/// How a request ended, as its completion is told.
#[derive(Clone, Copy)]
pub(crate) struct Outcome<'a> {
    /// The word that took the place of the request's head.
    word: u64,
    /// The word behind it, which is the result if it is one of a word that took the request's
    /// place.
    value: u64,
    /// Where these words were, counted from the start of the pair's memory.
    at: usize,
    source: &'a Source<'a>,
}

impl<'a> Outcome<'a> {
    /// The reply with the head `word` at word `at` of a slot, and the word behind it.
    #[inline(always)]
    pub(crate) fn in_slot(word: u64, value: u64, at: usize, source: &'a Source<'a>) -> Self {
        Outcome { word, value, at, source }
    }

    /// A reply with the head `word` whose payload is not in a slot.
    pub(crate) fn in_bytes(word: u64, source: &'a Source<'a>) -> Self {
        debug_assert!(matches!(source, Source::Bytes { .. }) && ReplyHead::is_bulk(word));
        Outcome { word, value: 0, at: 0, source }
    }

    /// A failure, as a source.
    pub(crate) fn failed(source: &'a Source<'a>) -> Self {
        debug_assert!(matches!(source, Source::Failed(_)));
        Outcome { word: NO_REPLY, value: 0, at: 0, source }
    }

    /// The result, if it is the word that came with the outcome; else it is to be had by
    /// [`result`](Self::result). This is what makes a small reply cheap.
    #[inline(always)]
    pub(crate) fn at_hand<U: 'static>(&self) -> Option<U> {
        let words = codec::plain_words::<U>()?;
        if !ReplyHead::is_done_in_place(self.word, words * WORD) {
            return None;
        }
        codec::from_plain(|| self.value)
    }

    /// The result, decoded.
    #[inline(always)]
    pub(crate) fn result<U: DeserializeOwned + 'static>(self) -> Result<U, DelegateError> {
        match self.at_hand() {
            Some(value) => Ok(value),
            None => self.other_result(),
        }
    }

    /// The result, when it is not one that travels as a word, or not a result.
    #[inline(never)]
    fn other_result<U: DeserializeOwned + 'static>(self) -> Result<U, DelegateError> {
        let head = ReplyHead::unpack(self.word);
        match (self.source, head) {
            (Source::Failed(error), _) => Err((*error).clone()),
            (Source::Bytes { trustee, payload }, Some(head)) => {
                result(*trustee, head.status, payload)
            }
            (Source::Slot { trustee, pair, start }, Some(head)) if is_inside(head) => {
                let read = |bytes: &[u8]| result(*trustee, head.status, bytes);
                let at = if head.at == IN_PLACE { self.at + 1 } else { start + head.at };
                copied_out(pair, at * WORD, head.len, read)
            }
            (Source::Slot { trustee, .. } | Source::Bytes { trustee, .. }, _) => {
                let reason = "its reply makes no sense: it is not the same build".to_owned();
                Err(DelegateError::Refused { trustee: *trustee, reason })
            }
        }
    }
}

/// Whether the payload of a reply is inside its buffer. One that took its request's place is not
/// longer than any request.
fn is_inside(head: ReplyHead) -> bool {
    if head.at == IN_PLACE {
        return head.len <= INLINE_BYTES;
    }
    head.len <= SLOT_BYTES && head.at <= (SLOT_BYTES - head.len) / WORD
}

#[cold]
fn undecodable(source: crate::CodecError) -> DelegateError {
    DelegateError::Codec { what: "decode the result", source }
}

/// What a reply's payload means.
fn result<U: DeserializeOwned + 'static>(
    trustee: ThreadId,
    status: Status,
    payload: &[u8],
) -> Result<U, DelegateError> {
    match status {
        Status::Done => match codec::plain_words::<U>() {
            None => codec::decode(payload).map_err(undecodable),
            Some(_) => codec::plain_from_bytes(payload).map_err(undecodable),
        },
        _ => Err(failure(trustee, status, payload)),
    }
}

#[cold]
#[inline(never)]
fn failure(trustee: ThreadId, status: Status, payload: &[u8]) -> DelegateError {
    let decoded = match status {
        Status::Panicked => codec::decode::<PanicReport>(payload)
            .map(|report| DelegateError::Panicked { trustee, report }),
        _ => codec::decode::<String>(payload)
            .map(|reason| DelegateError::Refused { trustee, reason }),
    };
    decoded.unwrap_or_else(|source| DelegateError::Codec {
        what: "decode the trustee's report",
        source,
    })
}

/// What to do when a request has ended. Runs on the client's thread, outside any fiber.
pub(crate) trait Completion {
    /// Whether a fiber that finds no room for its request waits until there is: those that wait for
    /// their reply anyhow, and those that are dropping something, do not.
    const WAITS_FOR_ROOM: bool = false;

    /// Does it.
    fn complete(self, outcome: Outcome<'_>);

    /// What it is called in messages.
    fn name() -> &'static str
    where
        Self: Sized,
    {
        type_name::<Self>()
    }
}

/// What is known of a completion's type.
pub(crate) struct Kind {
    take: Take,
    /// What it is called in messages.
    pub(crate) name: fn() -> &'static str,
}

/// The kind of completions of type `C`.
pub(crate) const fn kind_of<C: Completion>() -> &'static Kind {
    const { &Kind { take: take::<C>, name: C::name } }
}

/// A completion behind a pointer.
pub(crate) fn boxed<C: Completion + 'static>(completion: C) -> Box<dyn FnOnce(Outcome<'_>)> {
    Box::new(move |outcome: Outcome<'_>| completion.complete(outcome))
}

impl Completion for Box<dyn FnOnce(Outcome<'_>)> {
    fn complete(self, outcome: Outcome<'_>) {
        self(outcome);
    }
}

/// Moves a completion out of the words that these are, and runs it. The outcome comes in its parts:
/// that is how it stays in registers.
type Take = unsafe fn(*const u64, u64, u64, usize, &Source<'_>);

/// Completions of one batch, in order.
///
/// Everything takes `&self`: completions run while they are listed here, and what they do may, by a
/// detour, look at this list. No reference into the words outlives a method, and a completion is
/// moved out before it runs.
#[derive(Default)]
pub(crate) struct Completions {
    /// Room for completions; those behind `end` mean nothing.
    words: UnsafeCell<Vec<u64>>,
    /// The first completion that has not been taken.
    next: Cell<usize>,
    /// The first word behind all completions.
    end: Cell<usize>,
}

/// A completion that is about to run.
pub(crate) struct Next {
    pub(crate) kind: &'static Kind,
    /// The word at which its request's head is.
    pub(crate) at: usize,
    /// Where its own words are.
    data: *const u64,
    /// Where it is in the list.
    pub(crate) place: usize,
}

const HEADER: usize = 2;

const fn words_of<C>() -> usize {
    size_of::<C>().div_ceil(WORD)
}

impl Completions {
    /// Adds the completion of the request whose head is at word `at`.
    #[inline(always)]
    pub(crate) fn push<C: Completion + 'static>(&self, at: usize, completion: C) {
        if const { align_of::<C>() > WORD } {
            return self.push(at, boxed(completion));
        }
        // SAFETY: no other reference to the vector exists: this method calls nothing that could
        // come back here, and the type is not Sync.
        let list = unsafe { &mut *self.words.get() };
        let place = self.end.get();
        let words = const { HEADER + words_of::<C>() };
        let end = place + words;
        if end > list.len() {
            grow(list, end);
        }
        // SAFETY: the list has words up to `end`, or `grow` has seen to it, and nothing that counts
        // is behind `place`. A completion's last partial word need not be initialised because it is
        // only ever read as a `C`.
        unsafe {
            let header = list.as_mut_ptr().add(place);
            header.cast::<&Kind>().write(kind_of::<C>());
            header.add(1).write((at as u64) << 32 | words as u64);
            header.add(HEADER).cast::<C>().write(completion);
        }
        self.end.set(end);
    }

    /// Takes the next completion out.
    pub(crate) fn next(&self) -> Option<Next> {
        self.next_at(&mut self.place())
    }

    /// How many completions have not been taken.
    pub(crate) fn len(&self) -> usize {
        let (mut place, mut len) = (self.next.get(), 0);
        while place < self.end.get() {
            // SAFETY: as in `next_at`, whose steps these are.
            let word = unsafe { (*self.words.get()).as_ptr().add(place + 1).read() };
            place += word as u32 as usize;
            len += 1;
        }
        len
    }

    /// Where the next completion is.
    pub(crate) fn place(&self) -> usize {
        self.next.get()
    }

    /// Takes the completion at `place` out, which is the next one, and moves `place` behind it.
    #[inline(always)]
    pub(crate) fn next_at(&self, place: &mut usize) -> Option<Next> {
        let this = *place;
        debug_assert_eq!(this, self.next.get());
        if this >= self.end.get() {
            return None;
        }
        // SAFETY: as in `push`. In front of `end` are completions, one behind the other, and `this`
        // is where one begins: with a word made from a `&Kind`, and one that is a number.
        let (kind, word, data) = unsafe {
            let header = (*self.words.get()).as_ptr().add(this);
            (header.cast::<&Kind>().read(), header.add(1).read(), header.add(HEADER))
        };
        // Not from the kind: the place of the next completion is what this loop waits for.
        *place = this + word as u32 as usize;
        self.next.set(*place);
        Some(Next { kind, at: (word >> 32) as usize, data, place: this })
    }

    /// Undoes the [`next`](Self::next) that took the completion at `place`.
    pub(crate) fn put_back(&self, place: usize) {
        debug_assert!(place < self.next.get());
        self.next.set(place);
    }

    /// Runs a completion.
    ///
    /// # Panics
    /// If it panics; it counts as taken then.
    #[inline(always)]
    pub(crate) fn run(&self, next: Next, outcome: Outcome<'_>) {
        // SAFETY: `next` came from this list, whose words behind the header are a completion of the
        // type that its kind was made for (`push` writes them together), and nothing was pushed
        // since. It is taken once, because a `Next` is used up here. `take` moves it out before it
        // runs, so that it does not matter if the list grows meanwhile.
        unsafe {
            let Outcome { word, value, at, source } = outcome;
            (next.kind.take)(next.data, word, value, at, source);
        }
    }

    /// Exchanges the completions of two lists.
    #[inline(always)]
    pub(crate) fn swap(&self, other: &Completions) {
        // SAFETY: as in `push`; the two are swapped whole, and may be the same.
        unsafe { std::ptr::swap(self.words.get(), other.words.get()) };
        self.next.swap(&other.next);
        self.end.swap(&other.end);
    }

    /// Forgets the completions, all of which have been taken.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        debug_assert!(self.next().is_none());
        self.next.set(0);
        self.end.set(0);
    }
}

#[cold]
#[inline(never)]
fn grow(list: &mut Vec<u64>, end: usize) {
    list.resize(end.next_power_of_two().max(128), 0);
}

impl Drop for Completions {
    fn drop(&mut self) {
        while let Some(next) = self.next() {
            self.run(next, Outcome::failed(&Source::Failed(&RACK_ENDED)));
        }
    }
}

/// # Safety
/// `data` points to a `C` that is taken here and never again.
unsafe fn take<C: Completion>(
    data: *const u64,
    word: u64,
    value: u64,
    at: usize,
    source: &Source<'_>,
) {
    // SAFETY: the caller's promise.
    let completion = unsafe { data.cast::<C>().read() };
    completion.complete(Outcome { word, value, at, source });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::RefCell, rc::Rc};

    struct Note<const N: usize>(Rc<RefCell<Vec<usize>>>, [u8; N]);
    impl<const N: usize> Completion for Note<N> {
        fn complete(self, _: Outcome<'_>) {
            self.0.borrow_mut().push(N);
        }
    }
    #[repr(align(64))]
    struct Aligned(Rc<RefCell<Vec<usize>>>);
    impl Completion for Aligned {
        fn complete(self, _: Outcome<'_>) {
            self.0.borrow_mut().push(64);
        }
    }
    const ERROR: DelegateError = DelegateError::NoRack("a test");

    #[test]
    fn completions_of_all_shapes_run_in_order_and_once() {
        let log = Rc::new(RefCell::new(vec![]));
        let completions = Completions::default();
        completions.push(8, Note(log.clone(), [0; 0]));
        completions.push(24, Note(log.clone(), [0; 9]));
        completions.push(40, Aligned(log.clone()));
        completions.push(56, Note(log.clone(), [0; 300]));
        assert_eq!(completions.len(), 4);
        for at in [8, 24, 40, 56] {
            let next = completions.next().expect("one more");
            assert_eq!(next.at, at);
            completions.run(next, Outcome::failed(&Source::Failed(&ERROR)));
        }
        assert!(completions.next().is_none());
        assert_eq!(completions.len(), 0);
        completions.clear();
        assert_eq!(*log.borrow(), [0, 9, 64, 300]);
        completions.push(8, Note(log.clone(), [0; 1]));
        drop(completions);
        assert_eq!(*log.borrow(), [0, 9, 64, 300, 1], "what is left is told that it failed");
        assert_eq!(Rc::strong_count(&log), 1, "nothing is leaked");
    }
}
