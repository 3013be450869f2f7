//! [`Outgoing`]: a sender's side of a bank set, on any memory that takes writes in order.

use primitive::SharedBytes;
use primitive::sync::Ordering;

use crate::frame::{self, FrameHeader, Lengths, Mode, Parts, checksum, encode};
pub use crate::layout::flag_at;
use crate::layout::{FrameKind, Geometry, HEADER_BYTES, HEADER_WORDS, WORD};

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
    /// Where the bank set begins.
    base: usize,
    epoch: u32,
    mode: Mode,
    /// The sequence number of the next frame.
    next: u64,
    /// Whether the bank of the next frame may be written to.
    may_write: bool,
    /// Where a frame is put together that is written at once.
    scratch: Vec<u8>,
}

impl Outgoing {
    /// The sender that has claimed the bank set `set`, with this epoch.
    pub fn new(geometry: Geometry, set: u32, epoch: u32, mode: Mode) -> Outgoing {
        let (base, scratch) = (geometry.set_at(set), Vec::new());
        Outgoing { geometry, base, epoch, mode, next: 0, may_write: false, scratch }
    }

    /// The number of frames that were written.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether the next frame may be written: the receiver has emptied its bank as often as this has
    /// filled it. `flags` is what the receiver writes to.
    #[inline]
    pub fn may_write(&mut self, flags: &SharedBytes) -> bool {
        if !self.may_write {
            let (bank, filled) = self.geometry.bank_of(self.next);
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
        debug_assert!(self.may_write, "the bank of frame {} is not empty", self.next);
        let at = self.base + self.geometry.frame_at(self.next);
        let tag = frame::tag(self.epoch, self.next);
        let words = encode(tag, header, lengths);
        match self.mode {
            Mode::Mapped => self.store(to, at, &words, parts, lengths)?,
            Mode::Checked => self.write_at_once(to, at, &words, parts, lengths)?,
        }
        self.next += 1;
        self.may_write = !self.geometry.begins_bank(self.next);
        Ok(())
    }

    /// As [`write_parts`](Self::write_parts), for models.
    ///
    /// # Errors
    /// Those of the target.
    ///
    /// # Panics
    /// If the parts do not fit.
    #[cfg(any(test, fuzzing, loom))]
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
    #[inline]
    fn store<T: Target>(
        &self,
        to: &T,
        at: usize,
        words: &[u64; HEADER_WORDS],
        parts: &Parts<'_>,
        lengths: Lengths,
    ) -> Result<(), T::Error> {
        let mut header = [0; HEADER_BYTES];
        for (word, bytes) in words.iter().zip(header.as_chunks_mut().0) {
            *bytes = word.to_ne_bytes();
        }
        let (payload, attachment, end) = lengths.places();
        let closing = match self.geometry.kind {
            FrameKind::Fixed => {
                to.write(at, &header)?;
                at + self.geometry.stride() - WORD
            }
            FrameKind::Variable => {
                to.signal(at + end, 0)?;
                to.write(at + WORD, &header[WORD..])?;
                to.signal(at, words[0])?;
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
        to.signal(closing, words[0])
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
            FrameKind::Fixed => self.geometry.stride() - WORD,
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
