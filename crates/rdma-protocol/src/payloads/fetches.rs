//! [`Fetches`]: payloads on the receiving side.

use std::collections::{BTreeMap, VecDeque};

use primitive::SharedBytes;
use primitive::limits::MESSAGE_BYTES;
use transport_api::{Event, Tag, ThreadId};

use crate::immediate::RECORD;
use crate::payloads::{BLOCKS, Piece, WINDOW, cost_of};

/// Pieces that are read at a time: the second arrives while the first is copied, and requests behind
/// them do not wait for more.
pub(super) const AT_ONCE: usize = 2;

/// Bytes for which memory is reserved before they arrive.
pub(super) const AHEAD: usize = 1 << 20;

/// Payloads to one thread of this host.
#[derive(Default)]
pub(super) struct Inflow {
    /// The payload that has not arrived completely: its tag, its length, and the bytes so far.
    pub(super) payload: Option<(u64, usize, Vec<u8>)>,
    charged: u32,
    /// The credits that the peer has not been sent.
    owed: u32,
}

impl Inflow {
    /// The payload so far, with memory for the next piece of it.
    fn make_room(&mut self, piece: &Piece) -> Result<&mut Vec<u8>, String> {
        let (len, total) = (piece.len as usize, piece.total as usize);
        if self.payload.is_none() {
            if self.charged >= WINDOW {
                return Err(format!("a payload beyond the window of thread {}", piece.thread));
            }
            self.charged += cost_of(total);
        }
        let (tag, expected, bytes) = self.payload.get_or_insert((piece.tag, total, Vec::new()));
        let left = *expected - bytes.len();
        if (*tag, *expected) != (piece.tag, total) || len > left || len == 0 && total > 0 {
            return Err(format!("{piece:?}, expected {left} more bytes of {expected}"));
        }
        if bytes.capacity() - bytes.len() < len {
            // In steps, so that a large total alone allocates little.
            let step = left.min(AHEAD.max(bytes.len()));
            bytes
                .try_reserve_exact(step)
                .map_err(|_| format!("a payload of {total} bytes, for which there is no memory"))?;
        }
        Ok(bytes)
    }
}

/// Payloads that are read from the peer.
pub struct Fetches {
    /// The thread at the other end, and threads of this host.
    peer: ThreadId,
    threads: u32,
    /// Bytes of a block of the peer.
    block: usize,
    /// Announced pieces that have not arrived, in order; the first are being read.
    pub(super) pieces: VecDeque<Piece>,
    reading: usize,
    /// Pieces that have arrived, in all.
    here: u64,
    /// Those that are not acknowledged.
    owed: u32,
    /// By thread of this host.
    pub(super) inflows: BTreeMap<u32, Inflow>,
}

impl Fetches {
    /// From `peer`, for a host with `threads` threads.
    pub fn new(peer: ThreadId, threads: u32) -> Self {
        Self {
            peer,
            threads,
            block: 0,
            pieces: VecDeque::new(),
            reading: 0,
            here: 0,
            owed: 0,
            inflows: BTreeMap::new(),
        }
    }

    /// The size of the peer's blocks in bytes.
    pub fn blocks_of(&mut self, bytes: usize) {
        self.block = bytes;
    }

    /// Handles a record of `len` bytes that begins with `bytes`, and announces a piece.
    ///
    /// # Errors
    /// The violation, in words.
    pub fn announced(&mut self, bytes: &[u8; RECORD], len: usize) -> Result<(), String> {
        let is_fine = |piece: &Piece| {
            let fits = piece.len as usize <= self.block && piece.total as usize <= MESSAGE_BYTES;
            fits && self.block > 0 && piece.thread < self.threads && len == RECORD
        };
        let Some(piece) = Piece::decode(bytes).filter(is_fine) else {
            return Err(format!("a piece of a payload in {len} bytes: {bytes:?}"));
        };
        if self.pieces.len() == BLOCKS {
            return Err(format!("a piece of a payload beyond {BLOCKS} unread ones"));
        }
        self.pieces.push_back(piece);
        Ok(())
    }

    /// The next READ of the peer's blocks, if there is one: the first byte, and how many.
    pub fn read(&mut self) -> Option<(usize, usize)> {
        let piece = self.pieces.get(self.reading).filter(|_| self.reading < AT_ONCE)?;
        let index = (self.here + self.reading as u64) % BLOCKS as u64;
        self.reading += 1;
        // One unused byte for an empty payload, so that it arrives in its turn.
        Some((index as usize * self.block, piece.len.max(1) as usize))
    }

    /// The next piece has arrived, at byte `at` of `staging`. Returns the thread and the event if that
    /// completes a payload.
    ///
    /// # Errors
    /// As [`announced`](Self::announced); also if there is no memory.
    ///
    /// # Panics
    /// If the piece is not being [read](Self::read).
    pub fn arrived(
        &mut self,
        staging: &SharedBytes,
        at: usize,
    ) -> Result<Option<(u32, Event)>, String> {
        let piece = self.pieces.pop_front().ok_or("a piece that was not announced")?;
        self.reading = self.reading.checked_sub(1).expect("a piece that is being read");
        self.here += 1;
        self.owed += 1;
        let inflow = self.inflows.entry(piece.thread).or_default();
        let bytes = inflow.make_room(&piece)?;
        let have = bytes.len();
        bytes.resize(have + piece.len as usize, 0);
        staging.read_into(at, &mut bytes[have..]);
        if bytes.len() < piece.total as usize {
            return Ok(None);
        }
        let payload = std::mem::take(bytes);
        inflow.payload = None;
        Ok(Some((piece.thread, Event::Bulk { from: self.peer, tag: Tag(piece.tag), payload })))
    }

    /// The number of pieces to acknowledge now.
    pub fn acknowledge(&mut self) -> Option<u32> {
        let is_time = self.owed >= BLOCKS as u32 / 2 || self.pieces.is_empty();
        (is_time && self.owed > 0).then(|| std::mem::take(&mut self.owed))
    }

    /// This host's `thread` has taken payloads that were charged `cost`. Returns the credits to send the
    /// peer, once enough have accumulated.
    pub fn taken(&mut self, thread: u32, cost: u32) -> Option<u32> {
        let inflow = self.inflows.entry(thread).or_default();
        inflow.charged = inflow.charged.saturating_sub(cost);
        inflow.owed += cost;
        (inflow.owed >= WINDOW / 2).then(|| std::mem::take(&mut inflow.owed))
    }

    /// Drops incomplete payloads: the queue pair has failed.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.inflows.clear();
    }
}
