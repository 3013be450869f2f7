//! [`Offers`]: payloads on the sending side.

use std::collections::VecDeque;

use primitive::SharedBytes;
use transport_api::{Tag, Waiting};

use crate::payloads::{BLOCKS, Piece, WINDOW, cost_of};

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
pub struct Offers {
    /// The blocks, unless the carrier carries payloads.
    pub(super) memory: Option<SharedBytes>,
    /// In the order of their turns.
    streams: VecDeque<Stream>,
    /// The payloads that are not offered completely.
    waiting: Waiting,
    offered: u64,
    fetched: u64,
}

impl Offers {
    /// The peer reads payloads from `memory`, [`BLOCKS`] blocks. Without it none is ever offered.
    pub fn new(memory: Option<SharedBytes>) -> Self {
        let (streams, waiting) = (VecDeque::new(), Waiting::default());
        Self { memory, streams, waiting, offered: 0, fetched: 0 }
    }

    /// The payloads that are not offered completely, because the peer does not take them.
    pub fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// Queues a payload of up to [`MESSAGE_BYTES`](primitive::limits::MESSAGE_BYTES) for `thread` of the
    /// peer.
    pub fn push(&mut self, thread: u32, tag: u64, payload: Vec<u8>) {
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
    pub fn offer(&mut self) -> Option<Piece> {
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
    pub fn blocks_fetched(&mut self, count: u32) -> Result<(), String> {
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
    pub fn add_credits(&mut self, thread: u32, cost: u32) -> Result<(), String> {
        let stream = self.streams.iter_mut().find(|stream| stream.thread == thread);
        let charged = stream.map(|stream| &mut stream.charged);
        let enough = charged.filter(|charged| **charged >= cost);
        let charged = enough.ok_or_else(|| {
            format!("credits of {cost} for thread {thread}, which was charged less")
        })?;
        *charged -= cost;
        Ok(())
    }

    /// Whether no payload waits to be offered or read.
    pub fn is_quiet(&self) -> bool {
        self.offered == self.fetched && self.streams.iter().all(|stream| stream.queue.is_empty())
    }

    /// Drops waiting payloads: the queue pair has failed.
    pub fn clear(&mut self) {
        self.streams.clear();
        self.waiting = Waiting::default();
        self.fetched = self.offered;
    }
}
