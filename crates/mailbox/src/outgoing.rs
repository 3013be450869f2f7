//! [`Outgoing`]: a sender's side of a bank set, on any memory that takes writes in order.

use primitive::SharedBytes;
use primitive::sync::Ordering;

use crate::frame::{self, FrameHeader, Lengths, Mode, Parts, checksum, encode};
pub use crate::layout::flag_at;
use crate::layout::{Cursor, FrameKind, Geometry, HEADER_BYTES, HEADER_WORDS, WORD};

/// Memory of the receiver, as a sender writes to it. Writes and signals of one caller take effect in
/// their order.
pub trait Target {
    /// Why nothing was written.
    type Error;

    /// Writes `bytes`, any number, at byte `at`, in no order among themselves.
    ///
    /// # Errors
    /// If they cannot be written.
    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Stores `word` at byte `at`: a receiver that sees it sees every earlier write.
    ///
    /// # Errors
    /// If it cannot be written.
    fn signal(&self, at: usize, word: u64) -> Result<(), Self::Error>;

    /// Stores words from byte `at` on: a receiver that sees the last one sees the others, and every
    /// earlier write.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn signal_words<const N: usize>(&self, at: usize, words: &[u64; N]) -> Result<(), Self::Error>;

    /// As [`write`](Self::write), of a whole frame; it may also wake the receiver.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn write_frame(&self, at: usize, bytes: &[u8]) -> Result<(), Self::Error> {
        self.write(at, bytes)
    }
}

/// A sender's side of a bank set.
#[derive(Debug)]
pub struct Outgoing {
    geometry: Geometry,
    epoch: u32,
    mode: Mode,
    cursor: Cursor,
    /// Whether the bank of the next frame may be written to.
    may_write: bool,
    /// Whether frames are stored in place, and an empty one is a cache line.
    has_lines: bool,
    /// Where a frame is put together that is written at once.
    scratch: Vec<u8>,
}

impl Outgoing {
    /// The sender that has claimed the bank set `set`, with this epoch.
    pub fn new(geometry: Geometry, set: u32, epoch: u32, mode: Mode) -> Outgoing {
        let (cursor, scratch) = (Cursor::new(&geometry, set), Vec::new());
        let has_lines = mode == Mode::Mapped && cursor.stride() == (HEADER_WORDS + 2) * WORD;
        Outgoing { geometry, epoch, mode, cursor, may_write: false, has_lines, scratch }
    }

    /// The number of frames that were written.
    pub fn next(&self) -> u64 {
        self.cursor.next
    }

    /// Whether the next frame may be written: the receiver has emptied its bank as often as this has
    /// filled it. `flags` is what the receiver writes to.
    #[inline]
    pub fn may_write(&mut self, flags: &SharedBytes) -> bool {
        if !self.may_write {
            let Cursor { bank, filled, .. } = self.cursor;
            self.may_write = flags.load(flag_at(bank), Ordering::Acquire) == filled;
        }
        self.may_write
    }

    /// Writes a frame, whose lengths are those of `parts` and fit; only if it
    /// [may](Self::may_write).
    ///
    /// # Errors
    /// Those of the target: the frame was not sent.
    #[inline]
    pub(crate) fn write_parts<T: Target>(
        &mut self,
        to: &T,
        header: &FrameHeader,
        parts: &Parts<'_>,
        lengths: Lengths,
    ) -> Result<(), T::Error> {
        let Cursor { at, next, .. } = self.cursor;
        debug_assert!(self.may_write, "the bank of frame {next} is not empty");
        let tag = frame::tag(self.epoch, next);
        let words = encode(tag, header, lengths);
        match self.mode {
            Mode::Mapped => self.store(to, at, &words, parts, lengths)?,
            Mode::Checked => self.write_at_once(to, at, &words, parts, lengths)?,
        }
        self.cursor.advance();
        self.may_write = !self.cursor.begins_bank();
        Ok(())
    }

    /// Whether [`write_empty`](Self::write_empty) writes the next frame, if that has no body.
    #[inline(always)]
    pub(crate) fn can_write_line(&self) -> bool {
        self.has_lines && self.may_write
    }

    /// Writes a frame without a body. Only if this [can](Self::can_write_line) be done.
    ///
    /// # Errors
    /// Those of the target: the frame was not sent.
    #[inline(always)]
    pub(crate) fn write_empty<T: Target>(
        &mut self,
        to: &T,
        header: &FrameHeader,
    ) -> Result<(), T::Error> {
        let Cursor { at, next, .. } = self.cursor;
        let words = encode(frame::tag(self.epoch, next), header, Lengths::default());
        self.store_empty(to, at, &words)?;
        self.cursor.advance();
        self.may_write = !self.cursor.begins_bank();
        Ok(())
    }

    /// As [`write_parts`](Self::write_parts), for models.
    ///
    /// # Errors
    /// Those of the target.
    ///
    /// # Panics
    /// If the parts do not fit.
    #[cfg(any(test, loom))]
    pub fn write<T: Target>(
        &mut self,
        to: &T,
        header: &FrameHeader,
        parts: &Parts<'_>,
    ) -> Result<(), T::Error> {
        let lengths = parts.lengths(&self.geometry).expect("parts that fit");
        self.write_parts(to, header, parts, lengths)
    }

    /// Stores the frame in place: the closing word last.
    #[inline(always)]
    fn store<T: Target>(
        &self,
        to: &T,
        at: usize,
        words: &[u64; HEADER_WORDS],
        parts: &Parts<'_>,
        lengths: Lengths,
    ) -> Result<(), T::Error> {
        let (payload, attachment, end) = lengths.places();
        let [tag, rest @ ..] = words;
        if end == HEADER_BYTES && self.has_lines {
            return self.store_empty(to, at, words);
        }
        let closing = match self.geometry.kind {
            FrameKind::Fixed => {
                to.signal_words(at, words)?;
                at + self.cursor.stride() - WORD
            }
            FrameKind::Variable => {
                to.signal(at + end, 0)?;
                to.signal_words(at + WORD, rest)?;
                to.signal(at, *tag)?;
                at + end
            }
        };
        for (place, part) in
            [(HEADER_BYTES, parts.args), (payload, parts.payload), (attachment, parts.attachment)]
        {
            if !part.is_empty() {
                to.write(at + place, part)?;
            }
        }
        to.signal(closing, *tag)
    }

    /// Stores a frame without a body whose place is one cache line, all words in order.
    #[inline(always)]
    fn store_empty<T: Target>(
        &self,
        to: &T,
        at: usize,
        words: &[u64; HEADER_WORDS],
    ) -> Result<(), T::Error> {
        let [tag, one, two, three, four, five] = *words;
        match self.geometry.kind {
            FrameKind::Fixed => to.signal_words(at, &[tag, one, two, three, four, five, 0, tag]),
            // Behind an empty frame is its closing word. It is no part of another frame's body that the
            // tag could be guessed for: the tag comes last.
            FrameKind::Variable => {
                to.signal_words(at + WORD, &[one, two, three, four, five, tag])?;
                to.signal(at, tag)
            }
        }
    }

    /// Writes the frame, with its checksum, at once.
    fn write_at_once<T: Target>(
        &mut self,
        to: &T,
        at: usize,
        words: &[u64; HEADER_WORDS],
        parts: &Parts<'_>,
        lengths: Lengths,
    ) -> Result<(), T::Error> {
        let (payload, attachment, end) = lengths.places();
        let end = match self.geometry.kind {
            FrameKind::Fixed => self.cursor.stride() - WORD,
            FrameKind::Variable => end,
        };
        let bytes = &mut self.scratch;
        bytes.clear();
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        for (place, part) in
            [(HEADER_BYTES, parts.args), (payload, parts.payload), (attachment, parts.attachment)]
        {
            bytes.resize(place, 0);
            bytes.extend_from_slice(part);
        }
        bytes.resize(end, 0);
        let (all, _) = bytes.as_chunks::<WORD>();
        let sum = checksum(all.len(), |at| u64::from_ne_bytes(all[at]));
        bytes.extend_from_slice(&sum.to_ne_bytes());
        to.write_frame(at, bytes)
    }
}
