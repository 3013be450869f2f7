//! [`Incoming`]: the receiver's side of a bank set, on any memory. Nothing that a sender writes makes it
//! panic, read outside the bank set, or allocate.
//!
//! A peer can write to a mailbox at any time, even after the frame's tag. So no value is checked in shared
//! memory and then loaded again to be used:
//!
//! - Header: each word is loaded once; the loaded words are checked and used.
//! - Frame with a checksum (RDMA, where a device writes without this host): copied to private memory, checked
//!   and read there.
//! - Body of a frame without one: read in place. Nothing was checked that a later write could invalidate. The
//!   layer above copies the bytes out once and checks its copy.

use primitive::SharedBytes;
use primitive::sync::{Ordering, fence};
use transport_api::integrity::is_intact;

use crate::frame::{self, FrameHeader, Lengths, Malformed, Mode, decode};
use crate::layout::{Cursor, FrameKind, Geometry, HEADER_WORDS, WORD};

/// The most polls that skip a frame whose checksum was wrong before.
const LONGEST_SKIP: u32 = 1024;

/// What is at the place of the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Nothing, or not all of it.
    Nothing,
    /// A frame: [`Incoming::arrived`].
    Frame,
    /// Something that no sender of this build writes: [`Incoming::malformed`].
    Malformed,
}

/// A frame that has come, with checked lengths: its body is inside the memory where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    pub(crate) header: FrameHeader,
    pub(crate) lengths: Lengths,
    /// Where the frame begins: in the mailbox's memory, or, if it `is_copied`, in the copy.
    pub(crate) at: usize,
    pub(crate) is_copied: bool,
}

#[cfg(loom)]
impl Arrived {
    /// The reply token, and the word of the arguments at `index`, for models.
    pub fn args_word(&self, memory: &SharedBytes, index: usize) -> (u64, u64) {
        let at = self.at + (HEADER_WORDS + index) * WORD;
        (self.header.reply, memory.load(at, Ordering::Relaxed))
    }
}

/// The receiver's side of a bank set.
#[derive(Debug)]
pub struct Incoming {
    geometry: Geometry,
    epoch: u32,
    mode: Mode,
    cursor: Cursor,
    /// The next frame's tag.
    tag: u64,
    /// What the last poll has found. Kept here, because copies of it cost as much as the poll.
    arrived: Arrived,
    malformed: Malformed,
    /// Copies of the next frame whose checksum was wrong, and polls until the next copy: bytes that
    /// never become a frame must not cost a copy at each poll.
    wrong: u32,
    skip: u32,
}

impl Incoming {
    /// The frames of the sender that has claimed the bank set `set`, with this epoch.
    pub fn new(geometry: Geometry, set: u32, epoch: u32, mode: Mode) -> Incoming {
        let cursor = Cursor::new(&geometry, set);
        Incoming {
            geometry,
            epoch,
            mode,
            cursor,
            tag: frame::tag(epoch, 0),
            arrived: Arrived::default(),
            malformed: Malformed::default(),
            wrong: 0,
            skip: 0,
        }
    }

    /// How its frames come.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// The frame that the last poll has found.
    #[inline(always)]
    pub fn arrived(&self) -> &Arrived {
        &self.arrived
    }

    /// What is wrong with what the last poll has found.
    pub fn malformed(&self) -> Malformed {
        self.malformed
    }

    /// The number of frames that were taken.
    pub fn next(&self) -> u64 {
        self.cursor.next
    }

    /// Where the next frame's tag will be: the word that changes when the frame comes.
    #[inline(always)]
    pub(crate) fn watched(&self) -> usize {
        self.cursor.at
    }

    /// That tag.
    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }

    /// Looks for the next frame in `memory`, the mailbox's. `copy` has room for a frame: a frame with a
    /// checksum is checked there.
    #[inline(always)]
    pub fn poll(&mut self, memory: &SharedBytes, copy: &SharedBytes) -> Arrival {
        match self.has_come(memory) {
            true => self.take(memory, copy),
            false => Arrival::Nothing,
        }
    }

    /// Whether the next frame's tag has come.
    #[inline(always)]
    pub(crate) fn has_come(&self, memory: &SharedBytes) -> bool {
        memory.load(self.watched(), Ordering::Acquire) == self.tag
    }

    /// As [`poll`](Self::poll), once the tag [has come](Self::has_come).
    #[inline(always)]
    pub(crate) fn take(&mut self, memory: &SharedBytes, copy: &SharedBytes) -> Arrival {
        if self.mode == Mode::Checked {
            return self.take_checked(memory, copy);
        }
        // The sender or the transport stores the tag last: all of the frame is there.
        let at = self.cursor.at;
        match self.parse(memory, at) {
            Err(malformed) => self.refuse(malformed),
            Ok((header, lengths)) => {
                self.arrived = Arrived { header, lengths, at, is_copied: false };
                Arrival::Frame
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn refuse(&mut self, malformed: Malformed) -> Arrival {
        self.malformed = malformed;
        Arrival::Malformed
    }

    #[inline(never)]
    fn take_checked(&mut self, memory: &SharedBytes, copy: &SharedBytes) -> Arrival {
        if self.skip > 0 {
            self.skip -= 1;
            return Arrival::Nothing;
        }
        let claimed = self.claimed(memory);
        if claimed.is_some_and(|count| self.copy_intact(memory, copy, count)) {
            (self.wrong, self.skip) = (0, 0);
            return match self.parse(copy, 0) {
                Err(malformed) => self.refuse(malformed),
                Ok((header, lengths)) => {
                    self.arrived = Arrived { header, lengths, at: 0, is_copied: true };
                    Arrival::Frame
                }
            };
        }
        self.wrong = self.wrong.saturating_add(1);
        // The first few follow each other: the rest of a write is on its way.
        self.skip = (1 << self.wrong.saturating_sub(16).min(10)).min(LONGEST_SKIP) - 1;
        Arrival::Nothing
    }

    /// The words of the next frame in front of its checksum, as far as `memory` says so at this moment.
    pub(crate) fn claimed(&self, memory: &SharedBytes) -> Option<usize> {
        match self.geometry.kind {
            FrameKind::Fixed => Some(self.cursor.stride() / WORD - 1),
            // Perhaps the lengths of an earlier frame, or none that a frame can have.
            FrameKind::Variable => {
                let (_, lengths) = self.parse(memory, self.cursor.at).ok()?;
                Some(lengths.places(self.mode).2 / WORD)
            }
        }
    }

    /// Copies the next frame, of `count` words and their checksum, to `copy`; whether all of it is there.
    pub(crate) fn copy_intact(
        &self,
        memory: &SharedBytes,
        copy: &SharedBytes,
        count: usize,
    ) -> bool {
        let at = self.cursor.at;
        memory.copy_out(at..at + (count + 1) * WORD, copy, 0);
        // What acts on the frame must see everything that its sender wrote before it.
        fence(Ordering::Acquire);
        // The tag and the lengths were loaded before, and may have been others.
        let is_expected = || {
            let is_next = copy.load(0, Ordering::Relaxed) == self.tag;
            let is_same_len = self.geometry.kind == FrameKind::Fixed
                || self.parse(copy, 0).is_ok_and(|(_, it)| it.places(self.mode).2 / WORD == count);
            is_next && is_same_len
        };
        is_intact(copy, 0, count) && is_expected()
    }

    /// The header at byte `at` of `memory`, each of whose words is loaded once.
    #[inline(always)]
    fn parse(&self, memory: &SharedBytes, at: usize) -> Result<(FrameHeader, Lengths), Malformed> {
        // One check for all of them.
        let from = memory.words().part(at / WORD, HEADER_WORDS);
        let words = std::array::from_fn(|number| from.load(number, Ordering::Relaxed));
        decode(&words, self.cursor.next, &self.geometry)
    }

    /// The next frame was taken: its place may be written again once its bank is empty. Returns the
    /// bank, and how often it was emptied, if this was the last of its frames.
    #[inline(always)]
    pub fn advance(&mut self) -> Option<(u32, u64)> {
        let Cursor { bank, filled, .. } = self.cursor;
        let is_end = self.cursor.advance();
        self.tag = frame::tag(self.epoch, self.cursor.next);
        is_end.then_some((bank, filled + 1))
    }

    /// The bank of the next frame, if that is the last one there.
    #[inline(always)]
    pub(crate) fn ending_bank(&self) -> Option<u32> {
        (self.cursor.left == 1).then_some(self.cursor.bank)
    }

    /// Whether the sender may write frame `number`, of which this is the low half and which it has not
    /// written yet: the flags of the banks that were emptied say so.
    pub(crate) fn has_room_for(&self, number: u32) -> bool {
        let Cursor { next, left, .. } = self.cursor;
        let emptied = next.wrapping_sub(u64::from(self.geometry.frames - left));
        u64::from(number.wrapping_sub(emptied as u32)) < self.geometry.set_frames()
    }

    /// How often each bank was emptied.
    pub(crate) fn emptied(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let Cursor { bank, filled, .. } = self.cursor;
        (0..self.geometry.banks).map(move |it| (it, filled + u64::from(it < bank)))
    }
}
