//! [`Request`]: what an outbox is given to send.

use primitive::limits::INLINE_BYTES;

use crate::client::outcome::Outcome;
use crate::codec::Plain;
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
    /// Words behind the head. A bulk payload has its length there.
    #[inline(always)]
    pub(super) fn words(&self) -> usize {
        let words = self.arguments.words();
        let inline = if words <= INLINE_BYTES / WORD { words } else { 1 };
        inline.max(self.reply_words)
    }
}

/// A request's arguments.
#[derive(Clone, Copy)]
pub(crate) enum Arguments<'a> {
    Plain(Plain),
    Encoded(&'a [u8]),
}

impl Arguments<'_> {
    #[inline(always)]
    pub(super) fn words(self) -> usize {
        match self {
            Arguments::Plain(plain) => plain.words(),
            Arguments::Encoded(bytes) => bytes.len().div_ceil(WORD),
        }
    }
}

/// A request that found no room and could not wait for it.
pub(super) struct Waiting {
    pub(super) property: u32,
    pub(super) closure: u32,
    pub(super) plain: Option<Plain>,
    pub(super) encoded: Vec<u8>,
    pub(super) reply_words: usize,
    pub(super) completion: Box<dyn FnOnce(Outcome<'_>)>,
}
