//! [`Offers`] and [`Fetches`]: payloads that do not fit a slot, on their way over one queue pair,
//! without the device.
//!
//! The sender copies them to *blocks*, memory that the peer's device may read, and the receiver's
//! device READs them from there. So a payload costs each side's processor one copy, and uses no
//! memory of the receiver before the receiver reads it.
//!
//! ```text
//!   sender                                          receiver
//!   copies a piece to the next block
//!   record: tag, bytes in all, of this piece  --->  READs the block, appends it to the payload
//!   the blocks are free again                 <---  immediate data: pieces read
//!                                                   delivers the whole payload to its thread
//!   more may be sent to that thread           <---  immediate data: credits, once it has taken it
//! ```
//!
//! Blocks are used in turn and read in order, so that both ends know where the next piece is. A
//! receiving thread that does not poll must neither fill memory nor delay other threads: a payload may
//! start while less than [`WINDOW`] is charged for earlier ones to its thread, is charged at most the
//! whole window, and its charge is returned as credits when it is taken. Payloads to different threads
//! take turns, a piece each.

use std::collections::{BTreeMap, VecDeque};

use primitive::SharedBytes;
use primitive::limits::MESSAGE_BYTES;
use rdma_protocol::MemoryDescriptor;
use rdma_protocol::immediate::RECORD;
use transport_api::{Event, Rights, Tag, ThreadId, Waiting};

use crate::config::BLOCKS;

#[cfg(test)]
mod tests;

/// Pieces that are read at a time: the second arrives while the first is copied, and requests behind
/// them do not wait for more.
const AT_ONCE: usize = 2;

/// Bytes that are charged as one unit.
const UNIT: usize = 64;

/// The charge of a thread beyond which no payload to it may start, in [`UNIT`]s: 1 MiB.
pub(crate) const WINDOW: u32 = 1 << 14;

/// Bytes for which memory is reserved before they arrive.
const AHEAD: usize = 1 << 20;

/// The last bytes of the record of a piece; those of a notification differ.
pub(crate) const PIECE: [u8; 4] = 1u32.to_le_bytes();

/// The charge of a payload of this length: one unit, and its bytes.
pub(crate) fn cost_of(bytes: usize) -> u32 {
    let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
    units.min(WINDOW) + 1
}

/// What is wrong with the blocks that a peer offers to `threads` threads that read `max_len` bytes at a
/// time, in words.
pub(crate) fn invalid(
    descriptor: &MemoryDescriptor,
    threads: usize,
    max_len: usize,
) -> Option<String> {
    let blocks = (threads * BLOCKS) as u64;
    let is_even = descriptor.len.is_multiple_of(blocks) && descriptor.rights.allow(Rights::READ);
    if !is_even {
        return Some(format!("{descriptor:?} for the payloads of {threads} threads"));
    }
    let each = descriptor.len / blocks;
    (each > max_len as u64).then(|| {
        format!(
            "it offers payloads in pieces of {each} bytes, this host reads at most {max_len}: use the \
             same settings on all hosts"
        )
    })
}

/// The record of a part of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) tag: u64,
    /// Bytes of the whole payload.
    pub(crate) total: u32,
    /// Bytes of this piece, at the beginning of its block.
    pub(crate) len: u32,
    /// The receiving thread.
    pub(crate) thread: u32,
}

impl Piece {
    pub(crate) fn encode(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[0..8].copy_from_slice(&self.tag.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.total.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.thread.to_le_bytes());
        bytes[RECORD - PIECE.len()..].copy_from_slice(&PIECE);
        bytes
    }

    fn decode(bytes: &[u8; RECORD]) -> Option<Piece> {
        let (tag, rest) = bytes.split_first_chunk()?;
        let (total, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (thread, rest) = rest.split_first_chunk()?;
        let piece = Piece {
            tag: u64::from_le_bytes(*tag),
            total: u32::from_le_bytes(*total),
            len: u32::from_le_bytes(*len),
            thread: u32::from_le_bytes(*thread),
        };
        (rest.starts_with(&[0; 16]) && rest.ends_with(&PIECE)).then_some(piece)
    }
}

// ---- The sending side.

/// Payloads to one thread of the peer.
struct Stream {
    thread: u32,
    queue: VecDeque<(u64, Vec<u8>)>,
    /// How much of the first payload was offered, if it was started.
    offered: Option<usize>,
    charged: u32,
}

impl Stream {
    /// The next piece of up to `max_len` bytes, if one may be offered; `copy` is given its bytes.
    fn next(&mut self, max_len: usize, copy: impl FnOnce(&[u8])) -> Option<Piece> {
        let (tag, bytes) = self.queue.front()?;
        let at = match self.offered {
            Some(at) => at,
            None if self.charged < WINDOW => {
                self.charged += cost_of(bytes.len());
                0
            }
            None => return None,
        };
        let end = bytes.len().min(at + max_len);
        copy(&bytes[at..end]);
        let (tag, total, thread) = (*tag, bytes.len(), self.thread);
        let piece = Piece { tag, total: total as u32, len: (end - at) as u32, thread };
        self.offered = (end < total).then_some(end);
        if self.offered.is_none() {
            self.queue.pop_front();
        }
        Some(piece)
    }
}

/// Payloads that the peer is to read.
pub(crate) struct Offers {
    /// The blocks, unless the carrier carries payloads.
    memory: Option<SharedBytes>,
    /// In the order of their turns.
    streams: VecDeque<Stream>,
    /// The payloads that are not offered completely.
    waiting: Waiting,
    offered: u64,
    fetched: u64,
}

impl Offers {
    /// The peer reads payloads from `memory`, [`BLOCKS`] blocks. Without it none may be pushed.
    pub(crate) fn new(memory: Option<SharedBytes>) -> Self {
        let (streams, waiting) = (VecDeque::new(), Waiting::default());
        Self { memory, streams, waiting, offered: 0, fetched: 0 }
    }

    /// The payloads that are not offered completely, because the peer does not take them.
    pub(crate) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// Queues a payload of up to [`MESSAGE_BYTES`] for `thread` of the peer.
    pub(crate) fn push(&mut self, thread: u32, tag: u64, payload: Vec<u8>) {
        self.waiting.add_bulk(Tag(tag), payload.len());
        let known = self.streams.iter_mut().find(|stream| stream.thread == thread);
        if let Some(stream) = known {
            stream.queue.push_back((tag, payload));
            return;
        }
        let queue = VecDeque::from([(tag, payload)]);
        self.streams.push_back(Stream { thread, queue, offered: None, charged: 0 });
    }

    /// Copies the next piece to the next block, if one may be offered and a block is free.
    pub(crate) fn next(&mut self) -> Option<Piece> {
        let memory = self.memory.as_ref()?;
        if self.offered - self.fetched >= BLOCKS as u64 {
            return None;
        }
        let block = memory.len() / BLOCKS;
        let at = (self.offered % BLOCKS as u64) as usize * block;
        for _ in 0..self.streams.len() {
            let mut stream = self.streams.pop_front()?;
            let piece = stream.next(block, |bytes| memory.write_from(at, bytes));
            let is_last = stream.offered.is_none();
            self.streams.push_back(stream);
            if let Some(piece) = piece {
                self.offered += 1;
                if is_last {
                    self.waiting.remove_bulk(Tag(piece.tag), piece.total as usize);
                }
                return Some(piece);
            }
        }
        None
    }

    /// The peer has read `count` more pieces.
    ///
    /// # Errors
    /// The violation, in words.
    pub(crate) fn blocks_fetched(&mut self, count: u32) -> Result<(), String> {
        let open = self.offered - self.fetched;
        if u64::from(count) > open {
            return Err(format!("{count} pieces of payloads read, of {open} offered"));
        }
        self.fetched += u64::from(count);
        Ok(())
    }

    /// The peer's `thread` has taken payloads that were charged `cost`.
    ///
    /// # Errors
    /// As [`blocks_fetched`](Self::blocks_fetched).
    pub(crate) fn add_credits(&mut self, thread: u32, cost: u32) -> Result<(), String> {
        let stream = self.streams.iter_mut().find(|stream| stream.thread == thread);
        let charged = stream.map(|stream| &mut stream.charged);
        let enough = charged.filter(|charged| **charged >= cost);
        let charged = enough
            .ok_or(format!("credits of {cost} for thread {thread}, which was charged less"))?;
        *charged -= cost;
        Ok(())
    }

    /// Whether no payload waits to be offered or read.
    pub(crate) fn is_quiet(&self) -> bool {
        self.offered == self.fetched && self.streams.iter().all(|stream| stream.queue.is_empty())
    }

    /// Drops waiting payloads: the queue pair has failed.
    pub(crate) fn clear(&mut self) {
        self.streams.clear();
        self.waiting = Waiting::default();
        self.fetched = self.offered;
    }
}

// ---- The receiving side.

/// Payloads to one thread of this host.
#[derive(Default)]
struct Inflow {
    /// The payload that has not arrived completely: its tag, its length, and the bytes so far.
    payload: Option<(u64, usize, Vec<u8>)>,
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
pub(crate) struct Fetches {
    /// The thread at the other end, and threads of this host.
    peer: ThreadId,
    threads: u32,
    /// Bytes of a block of the peer.
    block: usize,
    /// Announced pieces that have not arrived, in order; the first are being read.
    pieces: VecDeque<Piece>,
    reading: usize,
    /// Pieces that have arrived, in all.
    here: u64,
    /// Those that are not acknowledged.
    owed: u32,
    /// By thread of this host.
    inflows: BTreeMap<u32, Inflow>,
}

impl Fetches {
    /// From `peer`, for a host with `threads` threads.
    pub(crate) fn new(peer: ThreadId, threads: u32) -> Self {
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
    pub(crate) fn blocks_of(&mut self, bytes: usize) {
        self.block = bytes;
    }

    /// Handles a record of `len` bytes that begins with `bytes`, and announces a piece.
    ///
    /// # Errors
    /// The violation, in words.
    pub(crate) fn announced(&mut self, bytes: &[u8; RECORD], len: usize) -> Result<(), String> {
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
    pub(crate) fn next(&mut self) -> Option<(usize, usize)> {
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
    pub(crate) fn arrived(
        &mut self,
        staging: &SharedBytes,
        at: usize,
    ) -> Result<Option<(u32, Event)>, String> {
        let piece = self.pieces.pop_front().ok_or("a piece that was not announced")?;
        self.reading -= 1;
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
    pub(crate) fn acknowledge(&mut self) -> Option<u32> {
        let is_time = self.owed >= BLOCKS as u32 / 2 || self.pieces.is_empty();
        (is_time && self.owed > 0).then(|| std::mem::take(&mut self.owed))
    }

    /// This host's `thread` has taken payloads that were charged `cost`. Returns the credits to send the
    /// peer, once enough have accumulated.
    pub(crate) fn taken(&mut self, thread: u32, cost: u32) -> Option<u32> {
        let inflow = self.inflows.entry(thread).or_default();
        inflow.charged = inflow.charged.saturating_sub(cost);
        inflow.owed += cost;
        (inflow.owed >= WINDOW / 2).then(|| std::mem::take(&mut inflow.owed))
    }

    /// Drops incomplete payloads: the queue pair has failed.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.inflows.clear();
    }
}
