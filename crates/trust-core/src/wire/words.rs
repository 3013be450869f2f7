//! The words of a slot, bit by bit: the wire format between a client and a trustee (thesis 3.2.8).
//!
//! ```text
//!  buffer   0        8                                        end of requests             end
//!           | signal | head | payload .. | head | payload .. | head | reply .. | head | ..  |
//!                      \_______________/   one request;        \______________/  a reply that
//!                        its result takes its place              stands apart
//!
//!  signal   63       62 .. 32      31 .. 16      15 .. 0
//!           reply    sequence      requests      end, in words
//!
//!  request  63 .. 32      31         30 .. 20               19       18 .. 0
//!           property      bulk       payload, in words      0        closure
//!
//!  run      63 .. 32      31         30 .. 20               19       18 .. 0
//!           property      0          requests               1        closure
//!
//!  apart    63 .. 32          31 .. 4                                 3         2 .. 0
//!           length, bytes     the request's head, in words from the   bulk      status
//!                             start of the buffer
//! ```
//!
//! A result takes its request's place if it is no longer: one of a word that of the head, an
//! encoded one that of the payload, with its length in bytes in the head's place. What is longer,
//! or is no result (a panic, a refusal, the error of a call of plain bytes, a result that comes later),
//! stands apart: behind the requests, in their order, each with a head that says whose it is. So a
//! batch without any is one whose answer ends where its requests did.
//!
//! Requests of a *run* are the same but for their arguments, and have one head in front of them all. Each
//! gets its result in the place of its arguments. How many words it has there, and whether a word which all
//! of them have in common stands behind the head, its closure says ([`RunLayout`]):
//!
//! ```text
//!   of a word each    | head | argument | argument | argument |
//!   of plain bytes    | head | word | arguments .. | arguments .. | arguments .. |
//! ```
//!
//! A closure id is dense and needs 19 bits, so the word that also says which property is meant has
//! room for it; the thesis's table of closures in use (whose entries were eight-byte pointers)
//! would save nothing (`docs/decisions/0007-no-closure-table.md`).
//!
//! Everything here is arithmetic on words that were read once; nothing trusts them. Decoding says
//! what is in a word, and the callers check it against what they own.

use std::num::NonZeroU8;

use primitive::limits::{BATCH_BYTES, SLOT_BYTES};

/// Bytes of a word.
pub(crate) const WORD: usize = 8;

/// Words of a buffer.
pub(crate) const SLOT_WORDS: usize = SLOT_BYTES / WORD;

/// Words of a batch of requests, at most, with the signal.
pub(crate) const BATCH_WORDS: usize = BATCH_BYTES / WORD;

/// How far ahead the lines of replies that stand apart are asked for, in bytes: one reply of 1,000 bytes,
/// some of 100. *Measured* with those.
pub(crate) const APART_AHEAD: usize = 1024;

/// Requests that a batch has words for: each has a head.
pub(crate) const MOST_REQUESTS: usize = BATCH_WORDS - 1;

/// The most closures that a program can delegate.
pub(crate) const MAX_CLOSURES: usize = 1 << 19;

const REPLY: u64 = 1 << 63;
const SEQUENCE_MASK: u32 = 0x7fff_ffff;
const BULK_BIT: u64 = 1 << 31;
const RUN_BIT: u64 = 1 << 19;
const PAYLOAD_SHIFT: u32 = 20;
const PAYLOAD_MASK: u64 = 0x7ff;
const CLOSURE_MASK: u64 = MAX_CLOSURES as u64 - 1;
const STATUS_MASK: u64 = 7;
const REPLY_BULK_BIT: u64 = 1 << 3;
const AT_SHIFT: u32 = 4;

const _: () = assert!(SLOT_BYTES.is_multiple_of(WORD) && SLOT_BYTES / WORD <= 0xffff);
const _: () = assert!(MOST_REQUESTS <= 0xffff);
const _: () = assert!(primitive::limits::INLINE_BYTES / WORD <= PAYLOAD_MASK as usize);
// As many requests as a run may have.
const _: () = assert!(MOST_REQUESTS <= PAYLOAD_MASK as usize);

/// The batch number after `sequence`. Zero is never used (it is what fresh memory says), and the
/// numbers alternate between odd and even for ever, because they choose the buffer.
#[inline(always)]
pub(crate) fn next_sequence(sequence: u32) -> u32 {
    if sequence == SEQUENCE_MASK { 2 } else { sequence + 1 }
}

/// The word that hands a buffer over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signal {
    pub(crate) sequence: u32,
    /// How many requests the batch has, for statistics only. Zero in replies.
    pub(crate) requests: usize,
    /// First word behind what was written.
    pub(crate) end: usize,
}

impl Signal {
    #[inline(always)]
    fn pack(self) -> u64 {
        u64::from(self.sequence) << 32 | (self.requests as u64) << 16 | self.end as u64
    }

    /// The signal of a batch of requests.
    #[inline(always)]
    pub(crate) fn request(self) -> u64 {
        self.pack()
    }

    /// The signal that the batch is answered.
    #[inline(always)]
    pub(crate) fn reply(self) -> u64 {
        self.pack() | REPLY
    }

    /// Whether `word` hands over batch `sequence` as requests.
    #[inline(always)]
    pub(crate) fn is_request(word: u64, sequence: u32) -> bool {
        word >> 32 == u64::from(sequence)
    }

    /// Whether `word` hands batch `sequence` back.
    #[inline(always)]
    pub(crate) fn is_reply(word: u64, sequence: u32) -> bool {
        word >> 32 == u64::from(sequence) | REPLY >> 32
    }

    /// What a signal word says beside its kind.
    #[inline(always)]
    pub(crate) fn unpack(word: u64) -> Signal {
        Signal {
            sequence: (word >> 32) as u32 & SEQUENCE_MASK,
            requests: (word >> 16 & 0xffff) as usize,
            end: (word & 0xffff) as usize,
        }
    }
}

/// The first word of a request, or of a run of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead(u64);

impl RequestHead {
    /// A request for `closure` on `property`, with `words` words behind this one that belong to the
    /// request and that its reply may use. `bulk`: the arguments come by the lane's bulk path, and
    /// the payload only has their length.
    #[inline(always)]
    pub(crate) fn new(property: u32, closure: u32, words: usize, bulk: bool) -> Self {
        RequestHead(
            u64::from(property) << 32
                | if bulk { BULK_BIT } else { 0 }
                | (words as u64) << PAYLOAD_SHIFT
                | u64::from(closure),
        )
    }

    /// The head of a run of such requests, of so many.
    #[inline(always)]
    pub(crate) fn of_run(self, requests: usize) -> Self {
        debug_assert!(!self.is_bulk());
        let others = self.0 & !(PAYLOAD_MASK << PAYLOAD_SHIFT);
        RequestHead(others | RUN_BIT | (requests as u64) << PAYLOAD_SHIFT)
    }

    #[inline(always)]
    pub(crate) fn from_word(word: u64) -> Self {
        RequestHead(word)
    }

    #[inline(always)]
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn property(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub(crate) fn closure(self) -> u32 {
        (self.0 & CLOSURE_MASK) as u32
    }

    /// Words behind it that belong to it; in a run, how many requests it has.
    #[inline(always)]
    pub(crate) fn words(self) -> usize {
        (self.0 >> PAYLOAD_SHIFT & PAYLOAD_MASK) as usize
    }

    #[inline(always)]
    pub(crate) fn is_bulk(self) -> bool {
        self.0 & BULK_BIT != 0
    }

    #[inline(always)]
    pub(crate) fn is_run(self) -> bool {
        self.0 & RUN_BIT != 0
    }
}

/// How the requests of a run lie behind its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunLayout {
    has_common: bool,
    words: NonZeroU8,
}

impl RunLayout {
    /// Requests of a word each.
    pub(crate) const WORD: RunLayout = RunLayout { has_common: false, words: NonZeroU8::MIN };

    /// Requests of so many words, at least one and at most 255, behind one that they have in common.
    pub(crate) const fn behind_common(words: usize) -> RunLayout {
        assert!(words > 0 && words <= u8::MAX as usize);
        let words = NonZeroU8::MIN.saturating_add(words as u8 - 1);
        RunLayout { has_common: true, words }
    }

    /// Words of each request.
    #[inline(always)]
    pub(crate) const fn words(self) -> usize {
        self.words.get() as usize
    }

    /// Words between the head and the first request: the one that all of them have in common, if there is
    /// one.
    #[inline(always)]
    pub(crate) const fn common_words(self) -> usize {
        self.has_common as usize
    }

    /// How many whole requests there are in so many words.
    #[inline(always)]
    pub(crate) const fn requests_in(self, words: usize) -> usize {
        // Most are of one word, and a division takes as long as some twenty other instructions.
        if self.words() == 1 { words } else { words / self.words() }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    /// The payload is the encoded result.
    Done = 0,
    /// The closure panicked; the payload is an encoded [`PanicReport`](crate::error::PanicReport).
    Panicked = 1,
    /// The request was refused before anything ran; the payload is the reason, encoded as a string.
    Refused = 2,
    /// A call of plain bytes failed; the payload is its error, encoded.
    Failed = 3,
    /// The launched closure waits: its result comes later, as a request. There is no payload.
    Later = 4,
}

impl Status {
    /// The status that travels as this number; `None` for one that means nothing.
    pub(crate) fn from_bits(bits: u64) -> Option<Status> {
        match bits {
            0 => Some(Status::Done),
            1 => Some(Status::Panicked),
            2 => Some(Status::Refused),
            3 => Some(Status::Failed),
            4 => Some(Status::Later),
            _ => None,
        }
    }
}

/// The head of a reply that stands apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyHead {
    pub(crate) status: Status,
    /// The payload comes by the lane's bulk path, and not behind this word.
    pub(crate) bulk: bool,
    /// The word at which the request's head was, counted from the start of the buffer.
    pub(crate) at: usize,
    /// Bytes of the payload.
    pub(crate) len: usize,
}

impl ReplyHead {
    pub(crate) fn pack(self) -> u64 {
        (self.len as u64) << 32
            | (self.at as u64) << AT_SHIFT
            | if self.bulk { REPLY_BULK_BIT } else { 0 }
            | self.status as u64
    }

    /// `None` for a status that means nothing.
    pub(crate) fn unpack(word: u64) -> Option<ReplyHead> {
        Some(ReplyHead {
            status: Status::from_bits(word & STATUS_MASK)?,
            bulk: word & REPLY_BULK_BIT != 0,
            at: (word as u32 >> AT_SHIFT) as usize,
            len: (word >> 32) as usize,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn signals_come_back(sequence in 1u32..=SEQUENCE_MASK, requests in 0usize..=0xffff, words in 0usize..SLOT_BYTES / WORD) {
            let signal = Signal { sequence, requests, end: words };
            prop_assert_eq!(Signal::unpack(signal.request()), signal);
            prop_assert_eq!(Signal::unpack(signal.reply()), signal);
            prop_assert!(Signal::is_request(signal.request(), sequence));
            prop_assert!(Signal::is_reply(signal.reply(), sequence));
            prop_assert!(!Signal::is_reply(signal.request(), sequence));
            prop_assert!(!Signal::is_request(signal.reply(), sequence));
            prop_assert!(!Signal::is_request(signal.request(), next_sequence(sequence)));
        }

        #[test]
        fn request_heads_come_back(property: u32, closure in 0u32..MAX_CLOSURES as u32, words in 0usize..2048, bulk: bool) {
            let head = RequestHead::new(property, closure, words, bulk);
            let head = RequestHead::from_word(head.word());
            prop_assert_eq!(
                (head.property(), head.closure(), head.words(), head.is_bulk()),
                (property, closure, words, bulk)
            );
            prop_assert!(!head.is_run());
        }

        #[test]
        fn heads_of_runs_come_back(property: u32, closure in 0u32..MAX_CLOSURES as u32, requests in 0..=MOST_REQUESTS) {
            let head = RequestHead::new(property, closure, 1, false).of_run(requests);
            prop_assert!(head.is_run() && !head.is_bulk());
            prop_assert_eq!((head.property(), head.closure(), head.words()), (property, closure, requests));
        }

        #[test]
        fn reply_heads_come_back(at in 0usize..1 << 28, len in 0usize..1 << 31, bulk: bool, status in 0u64..5) {
            let status = Status::from_bits(status).expect("a status");
            let head = ReplyHead { status, bulk, at, len };
            prop_assert_eq!(ReplyHead::unpack(head.pack()), Some(head));
        }

        #[test]
        fn any_word_is_understood_or_refused(word: u64) {
            let signal = Signal::unpack(word);
            prop_assert!(signal.end <= 0xffff);
            let head = RequestHead::from_word(word);
            prop_assert!((head.closure() as usize) < MAX_CLOSURES && head.words() < 2048);
            if let Some(reply) = ReplyHead::unpack(word) {
                prop_assert_eq!(ReplyHead::unpack(reply.pack()), Some(reply));
            }
        }
    }

    #[test]
    fn the_sequence_never_says_what_fresh_memory_says() {
        assert_eq!(next_sequence(0), 1);
        assert_eq!(next_sequence(SEQUENCE_MASK) % 2, (SEQUENCE_MASK + 1) % 2);
        assert!(!Signal::is_request(0, next_sequence(0)));
    }
}
