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
    system::Late,
    wire::{ReplyHead, Status, WORD},
};
use primitive::SharedBytes;
use serde::de::DeserializeOwned;
use transport_api::ThreadId;

/// A reply that has arrived.
pub(crate) struct Reply<'a> {
    pub(crate) trustee: ThreadId,
    pub(crate) buffer: &'a SharedBytes,
    pub(crate) head: ReplyHead,
    /// The payload, where it came by the bulk path.
    pub(crate) bulk: Option<Vec<u8>>,
}

impl Reply<'_> {
    #[inline(always)]
    fn result<U: DeserializeOwned>(self) -> Result<U, DelegateError> {
        let Reply { trustee, buffer, head, bulk } = self;
        match bulk {
            Some(bytes) => result(trustee, head.status, &bytes),
            None => {
                copied_out(buffer, head.at, head.len, |bytes| result(trustee, head.status, bytes))
            }
        }
    }
}

/// What a reply's payload means.
#[inline(always)]
fn result<U: DeserializeOwned>(
    trustee: ThreadId,
    status: Status,
    payload: &[u8],
) -> Result<U, DelegateError> {
    if status == Status::Done {
        let decoded = codec::decode(payload);
        return decoded
            .map_err(|source| DelegateError::Codec { what: "decode the result", source });
    }
    Err(failure(trustee, status, payload))
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

/// How a request ended, as its completion is told.
pub(crate) enum Outcome<'a> {
    Reply(Reply<'a>),
    /// A reply that came apart from the request's own.
    Late(Late),
    /// There will be no reply.
    Failed(DelegateError),
}

impl Outcome<'_> {
    /// The result, decoded.
    #[inline(always)]
    pub(crate) fn result<U: DeserializeOwned>(self) -> Result<U, DelegateError> {
        match self {
            Outcome::Reply(reply) => reply.result(),
            Outcome::Late(late) => result(late.trustee, late.status, &late.payload),
            Outcome::Failed(error) => Err(error),
        }
    }
}

/// What to do when a request has ended. Runs on the client's thread, outside any fiber.
pub(crate) trait Completion {
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
#[derive(Default)]
pub(crate) struct Completions {
    words: Vec<u64>,
    /// The first completion that has not been taken.
    next: usize,
}

const HEADER: usize = 2;

const fn words_of<C>() -> usize {
    size_of::<C>().div_ceil(WORD)
}

impl Completions {
    /// Adds the completion of the request whose head is at byte `at`.
    #[inline(always)]
    pub(crate) fn push<C: Completion + 'static>(&mut self, at: usize, completion: C) {
        if const { align_of::<C>() > WORD } {
            return self.push(at, boxed(completion));
        }
        let start = self.words.len();
        let words = HEADER + words_of::<C>();
        self.words.reserve(words);
        let take: Take = take::<C>;
        // SAFETY: `reserve` made room for `words` words behind `start`; the header and the
        // completion are written there before the length says so, and a completion's last partial
        // word need not be initialised because it is only ever read as a `C`.
        unsafe {
            let place = self.words.as_mut_ptr().add(start);
            place.write(take as usize as u64);
            place.add(1).write(at as u64 | (words as u64) << 32);
            place.add(HEADER).cast::<C>().write(completion);
            self.words.set_len(start + words);
        }
    }

    /// Where the head of the next request to be completed is.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<usize> {
        self.words.get(self.next + 1).map(|word| *word as u32 as usize)
    }

    /// Takes the next completion out and runs it.
    ///
    /// # Panics
    /// If there is none, or if the completion panics; it counts as taken then.
    #[inline(always)]
    pub(crate) fn complete_next(&mut self, outcome: Outcome<'_>) {
        let header = &self.words[self.next..self.next + HEADER];
        // SAFETY: `push` wrote this word from a `Take`.
        let take = unsafe { std::mem::transmute::<usize, Take>(header[0] as usize) };
        let data = self.next + HEADER;
        self.next += (header[1] >> 32) as usize;
        // SAFETY: the words behind the header are a completion of the type that `take` was made
        // for; `next` has moved on, so it is taken once; nothing can be pushed here meanwhile,
        // because `complete_next` holds the only reference.
        unsafe { take(self.words.as_ptr().add(data), outcome) }
    }

    /// Forgets the completions, all of which have been taken.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        debug_assert_eq!(self.next, self.words.len());
        self.words.clear();
        self.next = 0;
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        while self.peek().is_some() {
            self.complete_next(Outcome::Failed(DelegateError::NoRack("the rack has ended")));
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
    fn failed() -> Outcome<'static> {
        Outcome::Failed(DelegateError::NoRack("a test"))
    }

    #[test]
    fn completions_of_all_shapes_run_in_order_and_once() {
        let log = Rc::new(RefCell::new(vec![]));
        let mut completions = Completions::default();
        completions.push(8, Note(log.clone(), [0; 0]));
        completions.push(24, Note(log.clone(), [0; 9]));
        completions.push(40, Aligned(log.clone()));
        completions.push(56, Note(log.clone(), [0; 300]));
        for at in [8, 24, 40, 56] {
            assert_eq!(completions.peek(), Some(at));
            completions.complete_next(failed());
        }
        assert_eq!(completions.peek(), None);
        completions.clear();
        assert_eq!(*log.borrow(), [0, 9, 64, 300]);
        completions.push(8, Note(log.clone(), [0; 1]));
        drop(completions);
        assert_eq!(*log.borrow(), [0, 9, 64, 300, 1], "what is left is told that it failed");
        assert_eq!(Rc::strong_count(&log), 1, "nothing is leaked");
    }
}
