//! [`Outgoing`]: a sender's side of a bank set, on any memory that takes writes in order.

use primitive::SharedBytes;
use primitive::sync::Ordering;
use transport_api::integrity::checksum;

use crate::frame::{self, FrameHeader, Lengths, Mode, Parts, encode};
pub use crate::layout::flag_at;
use crate::layout::{Cursor, FrameKind, Geometry, HEADER_BYTES, LINE, WORD};
use crate::target::Target;

/// Bytes of a body up to which the line of the header is prefetched before the body is written. For a longer
/// one [`Target::write`] prefetches it: too early, the receiver, which polls it, takes it back; a frame of 4
/// bytes with 352 of code takes 350 ns instead of 294.
const PREFETCHED: u64 = 128;

/// Lines of the next frame's body that are prefetched after a frame, at most. A copy prefetches the further
/// ones as it goes.
const NEXT_BODY_LINES: usize = 8;

/// What fills a part up to a whole word.
static ZEROES: [u8; WORD] = [0; WORD];

/// Words of a body that are in the line of its header.
const INLINE_WORDS: usize = (LINE - HEADER_BYTES) / WORD;

/// A sender's side of a bank set.
#[derive(Debug)]
pub struct Outgoing {
    cursor: Cursor,
    /// Frames that may be written from the next one on, as far as flags were looked at.
    room: u32,
    /// Frames of a bank.
    frames: u32,
    epoch: u32,
    mode: Mode,
    /// The bank behind those that make the room, and how often it was filled before.
    ahead: (u32, u64),
    geometry: Geometry,
    /// Memory in which a frame with a checksum is built, and from which it is sent. Allocated by the first one.
    scratch: Option<SharedBytes>,
}

impl Outgoing {
    /// The sender that has claimed the bank set `set`, with this epoch.
    pub fn new(geometry: Geometry, set: u32, epoch: u32, mode: Mode) -> Outgoing {
        let (cursor, frames) = (Cursor::new(&geometry, set), geometry.frames);
        let (ahead, scratch) = ((0, 0), None);
        Outgoing { cursor, room: 0, frames, epoch, mode, ahead, geometry, scratch }
    }

    /// The number of frames that were written.
    pub fn next(&self) -> u64 {
        self.cursor.next
    }

    /// Whether the next frame may be written: the receiver has emptied its bank as often as this has
    /// filled it. `flags` is what the receiver writes to.
    #[inline]
    pub fn may_write(&mut self, flags: &SharedBytes) -> bool {
        if self.room == 0 {
            self.look(flags);
        }
        self.has_room()
    }

    /// The byte of the flag that the next [`may_write`](Self::may_write) looks at, if there is no room.
    pub(crate) fn watched(&self) -> usize {
        flag_at(self.ahead.0)
    }

    /// Whether the next frame may be written, without a look at its flag.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.room > 0
    }

    /// Looks at the flag of the next bank behind the room.
    #[inline]
    fn look(&mut self, flags: &SharedBytes) {
        let (bank, filled) = self.ahead;
        if flags.load(flag_at(bank), Ordering::Acquire) == filled {
            self.room += self.frames;
            self.ahead = match bank + 1 == self.geometry.banks {
                true => (0, filled + 1),
                false => (bank + 1, filled),
            };
        }
    }

    /// Behind a frame: looks at the flag of the next bank once the first frame of the last known one was
    /// written, and at the end of that. The line of the flags is then the receiver's again when it sets
    /// the next one, and is not waited for in front of a frame.
    #[inline(always)]
    pub fn look_ahead(&mut self, flags: &SharedBytes) {
        if self.room + 1 == self.frames || self.room == 0 {
            self.look(flags);
        }
    }

    /// Stores a frame in place, whose lengths are those of `parts` and fit; only if it
    /// [may](Self::may_write), and is to be [advanced](Self::advance) behind.
    ///
    /// The line of the header is stored last, and its tag last of all: the receiver looks at no other line
    /// until it has that, and takes none away while it is written.
    ///
    /// # Errors
    /// Those of the target: the frame was not sent.
    #[inline(always)]
    pub(crate) fn store<T: Target>(
        &self,
        to: &T,
        header: &FrameHeader,
        parts: &Parts<'_>,
        lengths: Lengths,
    ) -> Result<(), T::Error> {
        let Cursor { at, next, .. } = self.cursor;
        debug_assert!(self.has_room(), "the bank of frame {next} is not empty");
        let words = encode(frame::tag(self.epoch, next), header, lengths);
        if parts.is_empty() {
            return to.signal(at, &words);
        }
        if lengths.body() <= PREFETCHED {
            to.prefetch(at..at + 1);
        }
        let inline = store_body(to, at, parts, lengths)?;
        let [tag, one, two, three, four, five] = words;
        if lengths.body() as usize <= WORD {
            return to.signal(at, &[tag, one, two, three, four, five, inline[0]]);
        }
        to.signal(at, &[tag, one, two, three, four, five, inline[0], inline[1]])
    }

    /// Called after a frame with these lengths: prefetches the lines of the next one's body, if that may be
    /// written, as if it were as long. So they come while no caller waits for them. The receiver polls the line of the next
    /// header and would take it back.
    #[inline(always)]
    pub(crate) fn prefetch_next<T: Target>(&self, to: &T, lengths: Lengths) {
        let (_, _, end) = lengths.places(Mode::Mapped);
        if self.room > 0 && end > LINE {
            let at = self.cursor.at;
            to.prefetch(at + LINE..at + end.min(LINE + NEXT_BODY_LINES * LINE));
        }
    }

    /// Goes on to the frame behind the one that was stored.
    #[inline(always)]
    pub(crate) fn advance(&mut self) {
        let _ = self.cursor.advance();
        self.room -= 1;
    }

    /// Writes a frame, whose lengths are those of `parts` and fit; only if it
    /// [may](Self::may_write).
    ///
    /// # Errors
    /// Those of the target: the frame was not sent.
    pub(crate) fn write_parts<T: Target>(
        &mut self,
        to: &T,
        header: &FrameHeader,
        parts: &Parts<'_>,
        lengths: Lengths,
    ) -> Result<(), T::Error> {
        match self.mode {
            Mode::Mapped => self.store(to, header, parts, lengths)?,
            Mode::Checked => self.write_at_once(to, header, parts, lengths)?,
            Mode::Streamed => self.write_in_parts(to, header, parts, lengths)?,
        }
        self.advance();
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

    /// Writes the frame, its tag behind the rest of it.
    fn write_in_parts<T: Target>(
        &self,
        to: &T,
        header: &FrameHeader,
        parts: &Parts<'_>,
        lengths: Lengths,
    ) -> Result<(), T::Error> {
        let Cursor { at, next, .. } = self.cursor;
        debug_assert!(self.has_room(), "the bank of frame {next} is not empty");
        let [tag, rest @ ..] = encode(frame::tag(self.epoch, next), header, lengths);
        let head = rest.map(u64::to_ne_bytes);
        // The head, and three parts with what fills each up to a whole word, as copies of those are the fast
        // ones. A run without bytes costs the lane as much as another, so it is left out.
        let (mut all, mut count) = ([head.as_flattened(); 7], 1);
        for part in [parts.args, parts.payload, parts.attachment] {
            if !part.is_empty() {
                (all[count], count) = (part, count + 1);
                let filling = part.len().wrapping_neg() % WORD;
                if filling > 0 {
                    (all[count], count) = (&ZEROES[..filling], count + 1);
                }
            }
        }
        to.write_tagged(at, tag, &all[..count])
    }

    /// Writes the frame, with its checksum, at once.
    fn write_at_once<T: Target>(
        &mut self,
        to: &T,
        header: &FrameHeader,
        parts: &Parts<'_>,
        lengths: Lengths,
    ) -> Result<(), T::Error> {
        let Cursor { at, next, .. } = self.cursor;
        debug_assert!(self.has_room(), "the bank of frame {next} is not empty");
        let (payload, attachment, end) = lengths.places(self.mode);
        let stride = self.cursor.stride();
        let end = match self.geometry.kind {
            FrameKind::Fixed => stride - WORD,
            FrameKind::Variable => end,
        };
        let frame = self.scratch.get_or_insert_with(|| SharedBytes::heap(stride));
        let head = encode(frame::tag(self.epoch, next), header, lengths);
        for (number, word) in head.into_iter().enumerate() {
            frame.words().store(number, word, Ordering::Relaxed);
        }
        put(frame, (HEADER_BYTES, payload), parts.args);
        put(frame, (payload, attachment), parts.payload);
        put(frame, (attachment, end), parts.attachment);
        let sum = checksum(frame, 0, end / WORD);
        frame.store(end, sum, Ordering::Relaxed);
        to.write_frame(at, &frame.slice(0, end + WORD))
    }
}

/// Writes a part at byte `from` of the frame and zeroes the rest up to byte `to`, so that no bytes of an
/// earlier frame are sent. Both places are multiples of a word.
#[inline]
fn put(frame: &SharedBytes, (from, to): (usize, usize), part: &[u8]) {
    if !part.is_empty() {
        frame.write_from(from, part);
    }
    let end = from + part.len();
    let behind = end.next_multiple_of(WORD);
    if end < behind {
        frame.write_from(end, &ZEROES[..behind - end]);
    }
    (behind..to).step_by(WORD).for_each(|at| frame.store(at, 0, Ordering::Relaxed));
}

/// Writes the body of the frame at byte `at`, but for what belongs into the line of the header: returns
/// that.
#[inline(always)]
fn store_body<T: Target>(
    to: &T,
    at: usize,
    parts: &Parts<'_>,
    lengths: Lengths,
) -> Result<[u64; INLINE_WORDS], T::Error> {
    let (payload, attachment, _) = lengths.places(Mode::Mapped);
    let mut inline = [0; INLINE_WORDS];
    // The line of the header is written behind the last part.
    let behind = if parts.attachment.is_empty() { 0 } else { attachment };
    if !parts.args.is_empty() {
        let next = if parts.payload.is_empty() { behind } else { payload };
        store_part(to, at, (HEADER_BYTES, next), parts.args, &mut inline)?;
    }
    if !parts.payload.is_empty() {
        store_part(to, at, (payload, behind), parts.payload, &mut inline)?;
    }
    if !parts.attachment.is_empty() {
        store_part(to, at, (attachment, 0), parts.attachment, &mut inline)?;
    }
    Ok(inline)
}

/// Writes one part of a body, at byte `place` of the frame at byte `at`, but for what belongs into the
/// line of the header, which is put into `inline`. What is written behind it is at byte `next` of the frame.
#[inline(always)]
fn store_part<T: Target>(
    to: &T,
    at: usize,
    (place, next): (usize, usize),
    part: &[u8],
    inline: &mut [u64; INLINE_WORDS],
) -> Result<(), T::Error> {
    // Places are multiples of a word.
    let first = place.saturating_sub(HEADER_BYTES) / WORD;
    for (number, word) in inline.iter_mut().skip(first).enumerate() {
        *word = word_of(part, number * WORD);
    }
    let len = part.len().min(INLINE_WORDS.saturating_sub(first) * WORD);
    match part.len() == len {
        true => Ok(()),
        false => to.write(at + place + len, &part[len..], at + next),
    }
}

/// The word that `part` has from byte `at` on, filled up with zeroes; zero behind its end.
///
/// Loaded from the part itself. Bytes that were copied together first are stores which no load of a whole
/// word can take over: it waits until they are in the cache, behind all lines of earlier frames, which
/// have to come from the receiver's processor.
#[inline(always)]
fn word_of(part: &[u8], at: usize) -> u64 {
    let rest = part.get(at..).unwrap_or(&[]);
    match (rest.first_chunk(), rest.first_chunk(), rest.last_chunk()) {
        (Some(word), ..) => u64::from_ne_bytes(*word),
        (None, Some(first), Some(last)) => {
            // Of four to seven bytes, both halves together are all.
            let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
            let shift = 8 * (rest.len() - size_of::<u32>());
            u64::from_le(u64::from(first) | u64::from(last) << shift)
        }
        _ => {
            let word = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            u64::from_le(word)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_the_bytes_of_a_part_and_zeroes_behind() {
        let part: Vec<u8> = (1..=20).collect();
        for len in 0..part.len() {
            for at in [0, 8] {
                let mut expected = [0; WORD];
                let rest = part[..len].get(at..).unwrap_or(&[]);
                let count = rest.len().min(WORD);
                expected[..count].copy_from_slice(&rest[..count]);
                assert_eq!(word_of(&part[..len], at).to_ne_bytes(), expected, "{len} {at}");
            }
        }
    }
}
