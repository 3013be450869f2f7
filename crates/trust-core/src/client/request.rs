//! [`Request`]: what an outbox is given to send.

use std::cell::Cell;
use std::num::NonZero;

use primitive::SharedBytes;
use primitive::limits::INLINE_BYTES;
use primitive::sync::Ordering;

use crate::client::outcome::Outcome;
use crate::closure::registry::registry;
use crate::codec::{self, Plain};
use crate::error::DelegateError;
use crate::wire::words::WORD;

/// A request, but for its completion. What is off the common path takes it by value: a reference
/// that left the inlined path would keep the whole of it in memory, and nothing of it constant.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) property: u32,
    pub(crate) closure: u32,
    pub(crate) arguments: Arguments<'a>,
    /// Words that the reply will probably need.
    pub(crate) reply_words: usize,
}

impl Request<'_> {
    /// Words after the head, of a request that goes into a batch.
    #[inline(always)]
    pub(crate) fn words(&self) -> usize {
        self.arguments.words().max(self.reply_words)
    }

    /// Gives back the trusts of a request that will not be sent. That may run code of users.
    #[cold]
    pub(crate) fn give_back(&self) {
        match self.arguments {
            Arguments::Plain(_) | Arguments::Bytes(_) => {}
            Arguments::Encoded(bytes) => give_back(self.closure, bytes),
            Arguments::Large(bytes, _) => give_back(self.closure, &bytes.take()),
        }
    }
}

/// A request's arguments.
#[derive(Clone, Copy)]
pub(crate) enum Arguments<'a> {
    Plain(Plain),
    /// At most [`INLINE_BYTES`].
    Encoded(&'a [u8]),
    Bytes(Parts<'a>),
    /// Encoded, and more than that: so many bytes, which are taken when they are sent or postponed.
    Large(&'a Cell<Vec<u8>>, usize),
}

/// The arguments of a call of plain bytes, which lie one after the other: a word, then `head`, then
/// each of `tails` at the next multiple of a word.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) word: u64,
    /// The word's [key](crate::client::outbox::Outbox::set_key).
    pub(crate) key: Option<NonZero<usize>>,
    pub(crate) head: &'a [u8],
    pub(crate) tails: &'a [&'a [u8]],
}

/// The arguments of a request that may be one of a run.
pub(crate) trait InRun: Copy {
    /// The word that the requests of its run have in common, if they have one.
    fn common(self) -> Option<u64>;
    /// The key of that word.
    fn key(self) -> Option<NonZero<usize>>;
    /// The word `index` of its own, if it has as many.
    fn own(self, index: usize) -> Option<u64>;
    /// The same arguments, for a request outside runs.
    fn arguments(&self) -> Arguments<'_>;
}

impl InRun for Plain {
    #[inline(always)]
    fn common(self) -> Option<u64> {
        None
    }
    #[inline(always)]
    fn key(self) -> Option<NonZero<usize>> {
        None
    }
    #[inline(always)]
    fn own(self, index: usize) -> Option<u64> {
        self.word().filter(|_| index == 0)
    }
    #[inline(always)]
    fn arguments(&self) -> Arguments<'_> {
        Arguments::Plain(*self)
    }
}

/// Of a call without tails.
impl InRun for Parts<'_> {
    #[inline(always)]
    fn common(self) -> Option<u64> {
        Some(self.word)
    }
    #[inline(always)]
    fn key(self) -> Option<NonZero<usize>> {
        self.key
    }
    #[inline(always)]
    fn own(self, index: usize) -> Option<u64> {
        (index < self.head.len().div_ceil(WORD)).then(|| self.head_word(index))
    }
    #[inline(always)]
    fn arguments(&self) -> Arguments<'_> {
        Arguments::Bytes(*self)
    }
}

impl<'a> Parts<'a> {
    #[inline(always)]
    pub(crate) fn words(self) -> usize {
        let tails = self.tails.iter().map(|tail| tail.len().div_ceil(WORD));
        1 + self.head.len().div_ceil(WORD) + tails.sum::<usize>()
    }

    /// Whether they are too long for a batch, and go by the bulk path.
    #[inline(always)]
    pub(super) fn are_bulk(self) -> bool {
        self.words() > INLINE_BYTES / WORD
    }

    /// Bytes of all of it, in one piece.
    fn len(self) -> usize {
        let behind = |len: usize, tail: &&[u8]| len.next_multiple_of(WORD) + tail.len();
        self.tails.iter().fold(WORD + self.head.len(), behind)
    }

    /// A word of `head`, of which the last one is filled up with zeroes.
    #[inline(always)]
    fn head_word(self, index: usize) -> u64 {
        let bytes = &self.head[index * WORD..];
        let mut word = [0; WORD];
        let len = bytes.len().min(WORD);
        word[..len].copy_from_slice(&bytes[..len]);
        u64::from_le_bytes(word)
    }

    /// Writes what stands after the word, from word `at` of `memory` on.
    #[inline(always)]
    pub(super) fn write_behind_word(self, memory: &SharedBytes, at: usize) {
        let words = self.head.len().div_ceil(WORD);
        for index in 0..words {
            memory.words().store(at + index, self.head_word(index), Ordering::Relaxed);
        }
        let mut at = at + words;
        for tail in self.tails {
            memory.write_from(at * WORD, tail);
            at += tail.len().div_ceil(WORD);
        }
    }

    /// All of it, in one piece.
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.words() * WORD);
        bytes.extend_from_slice(&self.word.to_le_bytes());
        bytes.extend_from_slice(self.head);
        for tail in self.tails {
            bytes.resize(bytes.len().next_multiple_of(WORD), 0);
            bytes.extend_from_slice(tail);
        }
        bytes
    }
}

impl<'a> Arguments<'a> {
    /// Encoded arguments that have been postponed, of which those that are long are in `large`.
    pub(super) fn of_postponed(encoded: &'a [u8], large: &'a Cell<Vec<u8>>, len: usize) -> Self {
        if len <= INLINE_BYTES { Arguments::Encoded(encoded) } else { Arguments::Large(large, len) }
    }

    /// Bytes of those that are not plain, in one piece.
    pub(super) fn len(self) -> usize {
        match self {
            Arguments::Plain(_) => 0,
            Arguments::Encoded(bytes) => bytes.len(),
            Arguments::Bytes(parts) => parts.len(),
            Arguments::Large(_, len) => len,
        }
    }

    #[inline(always)]
    pub(super) fn words(self) -> usize {
        match self {
            Arguments::Plain(plain) => plain.words(),
            Arguments::Encoded(bytes) => bytes.len().div_ceil(WORD),
            Arguments::Bytes(parts) => parts.words(),
            Arguments::Large(_, len) => len.div_ceil(WORD),
        }
    }

    /// Those that are not plain, in one piece.
    pub(super) fn into_vec(self) -> Vec<u8> {
        match self {
            Arguments::Plain(_) => Vec::new(),
            Arguments::Encoded(bytes) => bytes.to_vec(),
            Arguments::Bytes(parts) => parts.to_vec(),
            Arguments::Large(bytes, _) => bytes.take(),
        }
    }
}

/// A request that has found no room yet.
pub(crate) struct Waiting {
    /// Names it among those of its outbox, in their order.
    pub(super) ticket: u64,
    pub(super) property: u32,
    pub(super) closure: u32,
    pub(super) plain: Option<Plain>,
    pub(super) encoded: Vec<u8>,
    pub(super) reply_words: usize,
    pub(super) completion: Box<dyn FnOnce(Outcome<'_>)>,
}

impl Waiting {
    /// Ends it with `error`, unsent. Its trusts are given back first: their destructors must not come
    /// between the end of a wait and the fiber that waits.
    #[cold]
    pub(crate) fn fail(self, error: &DelegateError) {
        give_back(self.closure, &self.encoded);
        (self.completion)(Outcome::Failed(error));
    }
}

/// Gives back the trusts in the encoded arguments of a request of this closure, which will not be
/// sent. Bytes of users' own may look like a message with trusts, so the closure says what they are.
fn give_back(closure: u32, encoded: &[u8]) {
    let message_at = registry().description(closure).and_then(|closure| closure.message_at);
    if let Some(message) = message_at.and_then(|at| encoded.get(at..)) {
        codec::give_back(message);
    }
}
