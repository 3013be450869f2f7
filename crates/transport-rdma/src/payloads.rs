//! [`Offers`] and [`Fetches`]: payloads that have no room in a slot, on their way over one queue
//! pair, without the device.
//!
//! Their sender copies them to *blocks*, memory that the peer's device may read, and the receiver
//! has its device READ them from there. So a payload costs neither side's processor more than a
//! copy, and none of it is in memory of the receiver that nobody has asked for.
//!
//! ```text
//!   sender                                          receiver
//!   copies a piece to the next block
//!   record: tag, bytes in all, of this piece  --->  READs the block, appends it to the payload
//!   so many blocks are free again             <---  notice: fetched
//!                                                   hands the whole payload to its thread
//!   more may be sent to that thread           <---  notice: granted, once the thread has taken it
//! ```
//!
//! Blocks are used in turn and fetched in order, so that both ends know where the next piece is. As
//! with the carrier's streams, a receiving thread that does not look must not be buried, and must
//! not hold up the others: a payload may start while less than [`WINDOW`] is charged for earlier
//! ones to its thread, is charged at most the whole window, and is granted back when it was taken.
//! Payloads to different threads take turns, a piece each.

use crate::{message::Told, notices::RECORD};
use primitive::{SharedBytes, limits::MESSAGE_BYTES};
use std::collections::{BTreeMap, VecDeque};
use transport_api::{Event, Rights, Tag, ThreadId};

#[cfg(test)]
mod tests;

/// Blocks of a lane.
pub(crate) const BLOCKS: usize = 8;

/// Pieces that are read at a time: the second is on its way while the first is copied, and what is
/// started behind them does not wait for more.
const AT_ONCE: usize = 2;

/// Bytes that are charged as one.
const UNIT: usize = 64;

/// What may be charged to a thread before it must take something, in [`UNIT`]s: 1 MiB.
pub(crate) const WINDOW: u32 = 1 << 14;

/// Bytes for which there is memory before they have come.
const AHEAD: usize = 1 << 20;

/// What the last bytes of a record are when it is that of a piece, and not of a notification.
pub(crate) const PIECE: [u8; 4] = 1u32.to_le_bytes();

/// What a payload of so many bytes is charged: one for being there, and its bytes.
pub(crate) fn cost_of(bytes: usize) -> u32 {
    let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
    units.min(WINDOW) + 1
}

/// What is wrong with the blocks that a peer of so many threads offers to one that reads `most`
/// bytes at a time, in words.
pub(crate) fn objection(told: &Told, threads: usize, most: usize) -> Option<String> {
    let blocks = (threads * BLOCKS) as u64;
    let is_even = told.len.is_multiple_of(blocks) && told.rights.allow(Rights::READ);
    if !is_even {
        return Some(format!("{told:?}, for the payloads of {threads} threads"));
    }
    let each = told.len / blocks;
    (each > most as u64).then(|| {
        format!(
            "it has payloads read in pieces of {each} bytes, and this host reads {most} at a time: \
             give both hosts the same settings"
        )
    })
}

/// A part of a payload, as its record says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) tag: u64,
    /// Bytes of the whole payload.
    pub(crate) total: u32,
    /// Bytes of this piece, which are the first of its block.
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
        bytes[RECORD - 4..].copy_from_slice(&PIECE);
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

/// What is to be sent to one thread of the peer.
struct Stream {
    thread: u32,
    queue: VecDeque<(u64, Vec<u8>)>,
    /// How much of the first payload was offered, if it has been started.
    offered: Option<usize>,
    charged: u32,
}

impl Stream {
    /// The next piece of up to `most` bytes, which `copy` is shown, if one may be offered.
    fn next(&mut self, most: usize, copy: impl FnOnce(&[u8])) -> Option<Piece> {
        let (tag, bytes) = self.queue.front()?;
        let at = match self.offered {
            Some(at) => at,
            None if self.charged < WINDOW => {
                self.charged += cost_of(bytes.len());
                0
            }
            None => return None,
        };
        let end = bytes.len().min(at + most);
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

/// Payloads that wait to be fetched by the peer.
pub(crate) struct Offers {
    /// Where they are fetched from, if they are.
    memory: Option<SharedBytes>,
    /// In the order of their turns.
    streams: VecDeque<Stream>,
    offered: u64,
    fetched: u64,
}

impl Offers {
    /// Payloads are fetched from `memory`, [`BLOCKS`] blocks. Without it none may be left here.
    pub(crate) fn new(memory: Option<SharedBytes>) -> Self {
        Self { memory, streams: VecDeque::new(), offered: 0, fetched: 0 }
    }

    /// Leaves a payload of up to [`MESSAGE_BYTES`] for `thread` of the peer.
    pub(crate) fn push(&mut self, thread: u32, tag: u64, payload: Vec<u8>) {
        let known = self.streams.iter_mut().find(|stream| stream.thread == thread);
        if let Some(stream) = known {
            stream.queue.push_back((tag, payload));
            return;
        }
        let queue = VecDeque::from([(tag, payload)]);
        self.streams.push_back(Stream { thread, queue, offered: None, charged: 0 });
    }

    /// Copies the next piece to the next block, if there is one to be offered and a block is free.
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
            self.streams.push_back(stream);
            if piece.is_some() {
                self.offered += 1;
                return piece;
            }
        }
        None
    }

    /// The peer has fetched so many pieces more.
    ///
    /// # Errors
    /// In words, if no peer of this build would say so.
    pub(crate) fn fetched(&mut self, count: u32) -> Result<(), String> {
        let open = self.offered - self.fetched;
        if u64::from(count) > open {
            return Err(format!("{count} pieces of payloads fetched, of {open}"));
        }
        self.fetched += u64::from(count);
        Ok(())
    }

    /// The peer's `thread` has taken what was charged `cost`.
    ///
    /// # Errors
    /// As [`fetched`](Self::fetched).
    pub(crate) fn granted(&mut self, thread: u32, cost: u32) -> Result<(), String> {
        let stream = self.streams.iter_mut().find(|stream| stream.thread == thread);
        let charged = stream.map(|stream| &mut stream.charged);
        let enough = charged.filter(|charged| **charged >= cost);
        let charged = enough.ok_or(format!("a grant of {cost} for thread {thread}, too much"))?;
        *charged -= cost;
        Ok(())
    }

    /// Whether nothing waits to be offered, nor to be fetched.
    pub(crate) fn is_quiet(&self) -> bool {
        self.offered == self.fetched && self.streams.iter().all(|stream| stream.queue.is_empty())
    }

    /// Forgets what waits: the queue pair has failed.
    pub(crate) fn clear(&mut self) {
        self.streams.clear();
        self.fetched = self.offered;
    }
}

// ---- The receiving side.

/// What comes for one thread of this host.
#[derive(Default)]
struct Inflow {
    /// The payload of which not all has come: its tag, its length, and what there is of it.
    payload: Option<(u64, usize, Vec<u8>)>,
    charged: u32,
    /// What was taken, and the peer is not told of.
    owed: u32,
}

impl Inflow {
    /// Memory for the next piece, a part of the payload; the payload so far.
    fn room_for(&mut self, piece: &Piece) -> Result<&mut Vec<u8>, String> {
        let (len, total) = (piece.len as usize, piece.total as usize);
        if self.payload.is_none() {
            if self.charged >= WINDOW {
                return Err(format!("more than the window of thread {} allows", piece.thread));
            }
            self.charged += cost_of(total);
        }
        let (tag, expected, bytes) = self.payload.get_or_insert((piece.tag, total, Vec::new()));
        let left = *expected - bytes.len();
        if (*tag, *expected) != (piece.tag, total) || len > left || len == 0 && total > 0 {
            return Err(format!("{piece:?}, where {left} bytes of {expected} are to come"));
        }
        if bytes.capacity() - bytes.len() < len {
            // In steps, so that a claim alone costs nothing.
            let step = left.min(AHEAD.max(bytes.len()));
            bytes
                .try_reserve_exact(step)
                .map_err(|_| format!("a payload of {total} bytes, for which memory is short"))?;
        }
        Ok(bytes)
    }
}

/// Payloads that are fetched from the peer.
pub(crate) struct Fetches {
    /// The thread at the other end, and threads of this host.
    peer: ThreadId,
    threads: u32,
    /// Bytes of a block of the peer.
    block: usize,
    /// What was announced and is not here, in order; the first are being read.
    pieces: VecDeque<Piece>,
    reading: usize,
    /// Pieces that have come, ever.
    here: u64,
    /// Those that the peer is not told of.
    owed: u32,
    /// By thread of this host.
    inflows: BTreeMap<u32, Inflow>,
}

impl Fetches {
    /// From `peer`, for a host with so many threads.
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

    /// The peer has said that its blocks have so many bytes.
    pub(crate) fn blocks_of(&mut self, bytes: usize) {
        self.block = bytes;
    }

    /// A record of `len` bytes, of which `bytes` are the first, announces a piece.
    ///
    /// # Errors
    /// In words, if no peer of this build would say so.
    pub(crate) fn announced(&mut self, bytes: &[u8; RECORD], len: usize) -> Result<(), String> {
        let is_fine = |piece: &Piece| {
            let fits = piece.len as usize <= self.block && piece.total as usize <= MESSAGE_BYTES;
            fits && self.block > 0 && piece.thread < self.threads && len == RECORD
        };
        let Some(piece) = Piece::decode(bytes).filter(is_fine) else {
            return Err(format!("a piece of a payload in {len} bytes: {bytes:?}"));
        };
        if self.pieces.len() == BLOCKS {
            return Err(format!("a piece of a payload behind {BLOCKS} that are not fetched"));
        }
        self.pieces.push_back(piece);
        Ok(())
    }

    /// What is to be read next of the peer's blocks, if anything: from which byte, and how many.
    pub(crate) fn next(&mut self) -> Option<(usize, usize)> {
        let piece = self.pieces.get(self.reading).filter(|_| self.reading < AT_ONCE)?;
        let index = (self.here + self.reading as u64) % BLOCKS as u64;
        self.reading += 1;
        // Of an empty payload a byte that nobody looks at, so that it comes in its turn.
        Some((index as usize * self.block, piece.len.max(1) as usize))
    }

    /// What was to be read next has come, to byte `at` of `staging`. If that was the last of a
    /// payload: for which thread, and what it is to be told.
    ///
    /// # Errors
    /// As [`announced`](Self::announced); also when there is no memory.
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
        let bytes = inflow.room_for(&piece)?;
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

    /// So many pieces have come that the peer is to be told of now.
    pub(crate) fn tell(&mut self) -> Option<u32> {
        let is_time = self.owed >= BLOCKS as u32 / 2 || self.pieces.is_empty();
        (is_time && self.owed > 0).then(|| std::mem::take(&mut self.owed))
    }

    /// This host's `thread` has taken what was charged `cost`; how much the peer is to be granted,
    /// if it is time to.
    pub(crate) fn taken(&mut self, thread: u32, cost: u32) -> Option<u32> {
        let inflow = self.inflows.entry(thread).or_default();
        inflow.charged = inflow.charged.saturating_sub(cost);
        inflow.owed += cost;
        (inflow.owed >= WINDOW / 2).then(|| std::mem::take(&mut inflow.owed))
    }

    /// Forgets what is not here: the queue pair has failed.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.inflows.clear();
    }
}
