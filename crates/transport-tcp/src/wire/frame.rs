//! Frames: what travels on an established connection, as bytes.
//!
//! ```text
//!    0      1      2        4        8      16     24     32           36     40
//!    | kind | zero | thread | length | key  | at   | word | generation | zero | body ...
//! ```
//!
//! All numbers are little-endian. What a field means depends on the [`Kind`]; a field without a
//! meaning is zero. A header is checked as a whole before a byte of its body is waited for, so that
//! a frame cannot claim more than [`BODY_BYTES`] and nothing is ever allocated for a claim.

use transport_control::Violation;

/// Bytes before the body.
pub(crate) const HEADER: usize = 40;

/// Bytes of a body, at most: what travels between two looks at other traffic of the connection.
pub(crate) const BODY_BYTES: usize = 64 * 1024;

/// Bytes of a word that an operation stores.
pub(crate) const WORD: usize = 8;

/// Shorthand for a [`Violation`] made of parts.
macro_rules! violation {
    ($($part:tt)*) => { transport_control::Violation::new(format!($($part)*)) };
}
pub(crate) use violation;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Bytes to write; `word` is 1 on the last frame of one write.
    Write = 1,
    /// A word to store behind every earlier write.
    Signal,
    /// Asks for `word` bytes, at most [`BODY_BYTES`].
    Read,
    /// Compare `word`, and swap in the word that is the body.
    Swap,
    /// Adds `word`.
    Add,
    /// The answer to a swap or an add: the old `word`.
    Value,
    /// The answer to a read.
    Data,
    /// Region `key` is not exported, or no longer; `word` is 1 if it was an operation that waits for
    /// its answer.
    Revoked,
    /// `thread` must not sleep through what came before.
    Wake,
    /// A notification for `thread`; its body is how many bytes were written, and which write of the
    /// connection did so, counted from one: zero if no write did.
    Notify,
    /// A bulk payload of `word` bytes for `thread` begins; its tag is `key`.
    BulkStart,
    /// More of it.
    BulkData,
    /// `thread` has taken what cost `word`.
    Grant,
    /// Nothing follows on this connection.
    Goodbye,
    /// A message of the control plane, which is the body.
    Control,
    /// Asks whether all operations so far were carried out. The answer is a [`Value`](Kind::Value)
    /// if they were, and [`Revoked`](Kind::Revoked) with the first region that refused one if not.
    Fence,
    /// Bytes to write behind the word at `at`, and then `word` to store there: a reader that sees that sees
    /// the bytes.
    Tagged,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        use Kind::*;
        const ALL: [Kind; 17] = [
            Write, Signal, Read, Swap, Add, Value, Data, Revoked, Wake, Notify, BulkStart,
            BulkData, Grant, Goodbye, Control, Fence, Tagged,
        ];
        ALL.get(usize::from(byte).wrapping_sub(1)).copied()
    }

    /// The least and the most bytes of a body.
    fn body(self) -> (usize, usize) {
        match self {
            Kind::Write | Kind::Data | Kind::Tagged => (0, BODY_BYTES),
            Kind::BulkData => (1, BODY_BYTES),
            Kind::Swap => (8, 8),
            Kind::Notify => (16, 16),
            Kind::Control => (1, transport_control::MESSAGE_BYTES),
            _ => (0, 0),
        }
    }
}

/// A header; the length is that of the body that it goes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) thread: u16,
    pub(crate) key: u64,
    pub(crate) at: u64,
    pub(crate) word: u64,
    pub(crate) generation: u32,
}

impl Header {
    /// A header of `kind` whose fields are zero.
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { kind, thread: 0, key: 0, at: 0, word: 0, generation: 0 }
    }

    /// Appends the header of a frame whose body has `length` bytes, which the caller appends.
    pub(crate) fn encode(&self, length: usize, out: &mut Vec<u8>) {
        debug_assert!((self.kind.body().0..=self.kind.body().1).contains(&length));
        let mut bytes = [0; HEADER];
        bytes[0] = self.kind as u8;
        bytes[2..4].copy_from_slice(&self.thread.to_le_bytes());
        bytes[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.key.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.at.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.word.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&bytes);
    }

    /// Appends the whole frame.
    pub(crate) fn encode_with(&self, body: &[u8], out: &mut Vec<u8>) {
        self.encode(body.len(), out);
        out.extend_from_slice(body);
    }

    /// Reads and checks a header; with it, the length of its body.
    fn decode(bytes: &[u8; HEADER]) -> Result<(Header, usize), Violation> {
        let word = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        let (first, last) = (word(0), word(32));
        let kind = Kind::from_byte(first as u8);
        let kind = kind.ok_or_else(|| violation!("a frame of kind {}", first as u8))?;
        let length = (first >> 32) as usize;
        let (least, most) = kind.body();
        if !(least..=most).contains(&length) {
            return Err(violation!("a {kind:?} frame that declares {length} bytes"));
        }
        if first >> 8 & 0xff != 0 || last >> 32 != 0 {
            return Err(violation!("a {kind:?} frame with bits that mean nothing"));
        }
        let header = Header {
            kind,
            thread: (first >> 16) as u16,
            key: word(8),
            at: word(16),
            word: word(24),
            generation: last as u32,
        };
        Ok((header, length))
    }
}

/// Cuts the bytes of a connection, in whatever pieces they come, into frames.
///
/// Keeps at most one frame that is not complete.
#[derive(Default)]
pub(crate) struct Frames {
    partial: Vec<u8>,
}

impl Frames {
    /// Takes the next bytes, and hands every frame that they complete to `each`.
    ///
    /// # Errors
    /// When the bytes are no frames, or `each` refuses one; the connection is of no use then.
    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Header, &[u8]) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        while !self.partial.is_empty() {
            let (header, length) = match self.partial.first_chunk::<HEADER>() {
                None => {
                    if !self.fill(HEADER, &mut bytes) {
                        return Ok(());
                    }
                    continue;
                }
                Some(header) => Header::decode(header)?,
            };
            if !self.fill(HEADER + length, &mut bytes) {
                return Ok(());
            }
            each(header, &self.partial[HEADER..])?;
            self.partial.clear();
        }
        while let Some((first, rest)) = bytes.split_first_chunk::<HEADER>() {
            let (header, length) = Header::decode(first)?;
            let Some((body, rest)) = rest.split_at_checked(length) else { break };
            each(header, body)?;
            bytes = rest;
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Takes from `bytes` what is missing to `length`; whether that was there.
    fn fill(&mut self, length: usize, bytes: &mut &[u8]) -> bool {
        let missing = length - self.partial.len();
        let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
        self.partial.extend_from_slice(taken);
        *bytes = rest;
        self.partial.len() == length
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Any frame that keeps the rules of its header.
    pub(crate) fn frame() -> impl Strategy<Value = (Header, Vec<u8>)> {
        let fields = (1u8..=17, any::<u16>(), any::<[u64; 3]>(), any::<u32>(), 0usize..300);
        fields.prop_map(|(kind, thread, [key, at, word], generation, length)| {
            let kind = Kind::from_byte(kind).expect("a kind");
            let (least, most) = kind.body();
            let body = vec![kind as u8; length.clamp(least, most)];
            (Header { kind, thread, key, at, word, generation }, body)
        })
    }

    /// Feeds `bytes` in pieces of the sizes `cuts`, over and over.
    fn feed(bytes: &[u8], cuts: &[usize]) -> Result<Vec<(Header, Vec<u8>)>, Violation> {
        let (mut frames, mut seen, mut rest) = (Frames::default(), Vec::new(), bytes);
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at(rest.len().min(*cut));
            rest = after;
            frames.feed(piece, |header, body| {
                seen.push((header, body.to_vec()));
                Ok(())
            })?;
            assert!(frames.partial.len() < HEADER + BODY_BYTES, "at most one frame is kept");
            assert!(frames.partial.capacity() <= 2 * (HEADER + BODY_BYTES + bytes.len()));
        }
        Ok(seen)
    }

    proptest! {
        #[test]
        fn frames_come_back_however_they_are_cut(
            sent in vec(frame(), 0..20),
            cuts in vec(1usize..200, 1..10),
        ) {
            let mut bytes = Vec::new();
            sent.iter().for_each(|(header, body)| header.encode_with(body, &mut bytes));
            prop_assert_eq!(feed(&bytes, &cuts), Ok(sent));
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(
            bytes in vec(any::<u8>(), 0..3000),
            first in 0u8..25,
            cuts in vec(1usize..200, 1..10),
        ) {
            // The first bytes make it likely that a frame begins.
            let mut bytes = bytes;
            bytes.splice(..0, [first, 0, 0, 0, 8, 0, 0, 0]);
            let whole = feed(&bytes, &[usize::MAX]);
            prop_assert_eq!(feed(&bytes, &cuts).is_err(), whole.is_err());
        }
    }

    #[test]
    fn a_frame_that_declares_four_gibibytes_is_refused_at_its_header() {
        for kind in 1..=17 {
            let mut header = [0; HEADER];
            header[0] = kind;
            header[4..8].fill(0xff);
            let error = feed(&header, &[HEADER]).expect_err("a refusal");
            assert!(error.to_string().contains("declares 4294967295 bytes"), "{error}");
        }
    }
}
