//! What a client does when a reply comes: completions, kept in the order of the requests.
//!
//! Every request in flight has one. A completion is any value that implements [`Completion`]; it is
//! moved into a vector of words next to the function that takes it out again, so that a request
//! costs no allocation:
//!
//! ```text
//!   | take | at | the completion's bytes .. | take | at | .. |
//!     fn     ^ where the request's head is in its buffer
//! ```

use crate::{
    call::copied_out,
    codec,
    error::{DelegateError, PanicReport},
    wire::{ReplyHead, SLOT_WORDS, Status, WORD},
};
use primitive::{SharedBytes, Words, limits::SLOT_BYTES, sync::Ordering};
use serde::de::DeserializeOwned;
use std::cell::{Cell, UnsafeCell};
use transport_api::ThreadId;

/// Where a request's outcome comes from.
pub(crate) enum Source<'a> {
    /// A reply in a slot.
    Slot { trustee: ThreadId, buffer: &'a SharedBytes, words: Words<'a> },
    /// A reply that came by the bulk path, or apart from the request's own.
    Bytes { trustee: ThreadId, payload: &'a [u8] },
    /// There will be no reply.
    Failed(&'a DelegateError),
}

/// How a request ended, as its completion is told. Two words, because it is made for every reply.
#[derive(Clone, Copy)]
pub(crate) struct Outcome<'a> {
    /// The word that took the place of the request's head.
    word: u64,
    source: &'a Source<'a>,
}

impl<'a> Outcome<'a> {
    /// The reply whose head is `word`.
    #[inline(always)]
    pub(crate) fn reply(word: u64, source: &'a Source<'a>) -> Self {
        Outcome { word, source }
    }

    /// A failure, as a source.
    pub(crate) fn failed(source: &'a Source<'a>) -> Self {
        debug_assert!(matches!(source, Source::Failed(_)));
        Outcome { word: 0, source }
    }

    /// The result, decoded.
    #[inline(always)]
    pub(crate) fn result<U: DeserializeOwned + 'static>(self) -> Result<U, DelegateError> {
        if let (Some(words), Source::Slot { words: slot, .. }) =
            (codec::plain_words::<U>(), self.source)
            && ReplyHead::is_done(self.word, words * WORD)
        {
            let at = ReplyHead::at(self.word);
            let word = || slot.load(at % SLOT_WORDS, Ordering::Relaxed);
            return Ok(codec::from_plain(word).expect("a plain type"));
        }
        self.other_result()
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
            (Source::Slot { trustee, buffer, .. }, Some(head)) if is_inside(head) => {
                let read = |bytes: &[u8]| result(*trustee, head.status, bytes);
                copied_out(buffer, head.at * WORD, head.len, read)
            }
            (Source::Slot { trustee, .. } | Source::Bytes { trustee, .. }, _) => {
                let reason = "its reply makes no sense: it is not the same build".to_owned();
                Err(DelegateError::Refused { trustee: *trustee, reason })
            }
        }
    }
}

/// Whether the payload of a reply is inside its buffer.
fn is_inside(head: ReplyHead) -> bool {
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

type Take = unsafe fn(*const u64, Outcome<'_>);

/// Completions of one batch, in order.
///
/// Everything takes `&self`: completions run while they are listed here, and what they do may, by a
/// detour, look at this list. No reference into the words outlives a method, and a completion is
/// moved out before it runs.
#[derive(Default)]
pub(crate) struct Completions {
    words: UnsafeCell<Vec<u64>>,
    /// The first completion that has not been taken.
    next: Cell<usize>,
}

/// The halves of a word, as `push` wrote them.
#[inline(always)]
fn split(word: u64) -> [u32; 2] {
    let bytes = word.to_ne_bytes();
    let half =
        |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    [half(0), half(4)]
}

/// A completion that is about to run.
pub(crate) struct Next {
    take: Take,
    /// The word at which its request's head is.
    pub(crate) at: usize,
    index: usize,
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
        let start = list.len();
        let words = HEADER + words_of::<C>();
        list.reserve(words);
        let take: Take = take::<C>;
        // SAFETY: `reserve` made room for `words` words behind `start`; the header and the
        // completion are written there before the length says so, and a completion's last partial
        // word need not be initialised because it is only ever read as a `C`.
        unsafe {
            let place = list.as_mut_ptr().add(start);
            place.write(take as usize as u64);
            place.add(1).cast::<[u32; 2]>().write([at as u32, words as u32]);
            place.add(HEADER).cast::<C>().write(completion);
            list.set_len(start + words);
        }
    }

    /// Takes the next completion out.
    pub(crate) fn next(&self) -> Option<Next> {
        self.next_at(&mut self.place())
    }

    /// Where the next completion is.
    pub(crate) fn place(&self) -> usize {
        self.next.get()
    }

    /// Takes the completion at `place` out, which is the next one, and moves `place` behind it.
    #[inline(always)]
    pub(crate) fn next_at(&self, place: &mut usize) -> Option<Next> {
        let index = *place;
        debug_assert_eq!(index, self.next.get());
        // SAFETY: as in `push`.
        let list = unsafe { &*self.words.get() };
        let header = list.get(index..index + HEADER)?;
        // SAFETY: `push` wrote this word from a `Take`.
        let take = unsafe {
            std::mem::transmute::<*const (), Take>(std::ptr::with_exposed_provenance(
                header[0] as usize,
            ))
        };
        let [at, words] = split(header[1]);
        *place = index + words as usize;
        self.next.set(*place);
        Some(Next { take, at: at as usize, index })
    }

    /// Undoes a [`next`](Self::next).
    pub(crate) fn put_back(&self, next: Next) {
        self.next.set(next.index);
    }

    /// Runs a completion.
    ///
    /// # Panics
    /// If it panics; it counts as taken then.
    #[inline(always)]
    pub(crate) fn run(&self, next: Next, outcome: Outcome<'_>) {
        // SAFETY: as in `push`.
        let list = unsafe { (*self.words.get()).as_ptr() };
        // SAFETY: `next` came from this list, whose words behind the header are a completion of the
        // type that `take` was made for (`push` writes them together). It is taken once, because a
        // `Next` is used up here. `take` moves it out before it runs, so that it does not matter if
        // the vector grows meanwhile.
        unsafe { (next.take)(list.add(next.index + HEADER), outcome) }
    }

    /// Forgets the completions, all of which have been taken.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        debug_assert!(self.next().is_none());
        // SAFETY: as in `push`; words have no destructor.
        unsafe { (*self.words.get()).clear() };
        self.next.set(0);
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        while let Some(next) = self.next() {
            let error = DelegateError::NoRack("the rack has ended");
            self.run(next, Outcome::failed(&Source::Failed(&error)));
        }
    }
}

/// # Safety
/// `data` points to a `C` that is taken here and never again.
unsafe fn take<C: Completion>(data: *const u64, outcome: Outcome<'_>) {
    // SAFETY: the caller's promise.
    let completion = unsafe { data.cast::<C>().read() };
    completion.complete(outcome);
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
        for at in [8, 24, 40, 56] {
            let next = completions.next().expect("one more");
            assert_eq!(next.at, at);
            completions.run(next, Outcome::failed(&Source::Failed(&ERROR)));
        }
        assert!(completions.next().is_none());
        completions.clear();
        assert_eq!(*log.borrow(), [0, 9, 64, 300]);
        completions.push(8, Note(log.clone(), [0; 1]));
        drop(completions);
        assert_eq!(*log.borrow(), [0, 9, 64, 300, 1], "what is left is told that it failed");
        assert_eq!(Rc::strong_count(&log), 1, "nothing is leaked");
    }
}
