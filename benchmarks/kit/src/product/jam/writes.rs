//! Writes in the place of frames: [`Writes`], and how many of a stream's messages were sent and taken.

use primitive::sync::Ordering::Acquire;
use segment::MAX_OPERATION;

use super::ends::End;
use super::frames::{BANKS, FRAMES, FramePlan, Message, Shape};
use crate::product::segment::board::{Board, DATA, HostError};

/// The word that says how many messages of a stream were taken: in the segment of the host that sends them.
/// Writes need it for each bank of places, as frames have a flag for each; both for the last message.
const TAKEN: usize = DATA;
/// Where writes go, in a segment of [`Board`]: places of as many bytes, in turn.
const RING: usize = DATA + 256;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Frames of a mailbox.
const PLACES: u64 = (BANKS * FRAMES) as u64;
/// Looks that find nothing between two polls of the lanes, where memory is mapped, as mailboxes have it.
const LANES_EVERY: u32 = 32;

/// Messages that were sent and taken.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) taken: u64,
    is_stream: bool,
}

impl Counts {
    pub(super) fn of(plan: FramePlan) -> Counts {
        Counts { is_stream: plan.shape == Shape::Stream, ..Counts::default() }
    }

    /// Writes how many were taken to the host that sent them.
    pub(super) fn tell(&self, board: &Board) -> Result<(), HostError> {
        Ok(board.remote.signal(TAKEN, self.taken)?)
    }

    /// Waits until at least `taken` were taken.
    #[inline(always)]
    pub(super) fn wait(&self, board: &Board, taken: u64) -> Result<(), HostError> {
        match board.word(TAKEN) >= taken || board.poll_until(|| board.word(TAKEN) >= taken)? {
            true => Ok(()),
            false => Err(HostError::other("stopped by itself")),
        }
    }
}

/// Writes into places of the other's segment, of which one word says that all of a place is there, as the
/// header of a frame does, unless they are [bare](Message::BareWrite): then their own last word does.
pub(super) struct Writes {
    buffer: Vec<u8>,
    counts: Counts,
    misses: u32,
    /// Where in a place its word is.
    word_at: usize,
    is_bare: bool,
}

/// Set in the word of a message that is the last.
const LAST: u64 = 1 << 63;

impl Writes {
    fn place(&self, number: u64) -> usize {
        RING + (number % PLACES) as usize * self.buffer.len()
    }

    /// Writes the buffer, whose place begins at byte `at`, and its word.
    #[inline(always)]
    fn write(&mut self, board: &Board, at: usize, word: u64) -> Result<(), HostError> {
        let write = |bytes: &[u8]| match bytes.len() {
            0 => Ok(()),
            len if len <= MAX_OPERATION => board.remote.write(at, bytes),
            _ => board.remote.write_block(at, bytes),
        };
        // The bytes of a write come in no order: only a word behind it says that all are there.
        if board.remote.is_mapped() {
            let last = self.buffer.len() - LINE;
            write(&self.buffer[..last])?;
            board.remote.signal_words(at + last, &[word, 0, 0, 0, 0, 0, 0, word])?;
        } else if self.is_bare {
            self.buffer[self.word_at..].copy_from_slice(&word.to_ne_bytes());
            write(&self.buffer)?;
        } else {
            board.remote.write_tagged(at, word, &[&self.buffer[8..]], false)?;
        }
        Ok(())
    }
}

impl End for Writes {
    fn new(board: &Board, plan: FramePlan) -> Result<Self, HostError> {
        let buffer = vec![0; plan.message_bytes()];
        let is_bare = plan.message == Message::BareWrite;
        let is_at_end = board.remote.is_mapped() || is_bare;
        let word_at = if is_at_end { buffer.len() - 8 } else { 0 };
        Ok(Writes { buffer, counts: Counts::of(plan), misses: 0, word_at, is_bare })
    }

    #[inline(always)]
    fn send(&mut self, board: &Board, is_last: bool) -> Result<(), HostError> {
        let Counts { sent, is_stream, .. } = self.counts;
        if is_stream && sent >= PLACES && sent.is_multiple_of(FRAMES.into()) {
            self.counts.wait(board, sent + u64::from(FRAMES) - PLACES)?;
        }
        let word = if is_last { (sent + 1) | LAST } else { sent + 1 };
        self.write(board, self.place(sent), word)?;
        self.counts.sent += 1;
        Ok(())
    }

    #[inline(always)]
    fn take(&mut self, board: &Board) -> Result<bool, HostError> {
        let at = self.place(self.counts.taken) + self.word_at;
        let word = board.own.memory().load(at, Acquire);
        if word & !LAST != self.counts.taken + 1 {
            self.misses += 1;
            if !board.remote.is_mapped() || self.misses.is_multiple_of(LANES_EVERY) {
                board.attached.poll();
            }
            return Ok(false);
        }
        self.counts.taken += 1;
        let is_bank = self.counts.is_stream && self.counts.taken.is_multiple_of(FRAMES.into());
        if is_bank || word & LAST != 0 {
            self.counts.tell(board)?;
        }
        Ok(true)
    }

    fn wait(&mut self, board: &Board) -> Result<bool, HostError> {
        self.take(board)
    }

    fn flush(&mut self, board: &Board) -> Result<(), HostError> {
        self.counts.wait(board, self.counts.sent)
    }
}
