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
//! whole window and one unit, and its charge is returned as credits when it is taken. Payloads to different threads
//! take turns, a piece each.
//!
//! ```
//! use gossamer_rdma_protocol::immediate::RECORD;
//! use gossamer_rdma_protocol::payloads::{BLOCKS, Fetches, Offers};
//! use primitive::SharedBytes;
//! use transport_api::{Event, HostId, ThreadId};
//!
//! // Blocks of 64 bytes, which the peer's device READs: here it is a copy.
//! let (blocks, staging) = (SharedBytes::heap(BLOCKS * 64), SharedBytes::heap(64));
//! let mut offers = Offers::new(Some(blocks.clone()));
//! let mut fetches = Fetches::new(ThreadId { host: HostId(0), thread: 0 }, 1);
//! fetches.blocks_of(64);
//! offers.push(0, 7, b"a payload".to_vec());
//!
//! let piece = offers.offer().expect("a free block");
//! fetches.announced(&piece.encode(), RECORD)?;
//! let (at, len) = fetches.read().expect("a piece to read");
//! let mut bytes = vec![0; len];
//! blocks.read_into(at, &mut bytes);
//! staging.write_from(0, &bytes);
//! let Some((0, Event::Bulk { payload, .. })) = fetches.arrived(&staging, 0)? else { panic!() };
//! assert_eq!(payload, b"a payload");
//! offers.blocks_fetched(fetches.acknowledge().expect("a piece"))?;
//! # Ok::<(), String>(())
//! ```

use transport_api::Rights;

use crate::address::MemoryDescriptor;
use crate::immediate::RECORD;

mod fetches;
mod offers;
#[cfg(test)]
mod tests;

pub use fetches::Fetches;
pub use offers::Offers;

/// Blocks of a queue pair.
pub const BLOCKS: usize = 8;

/// Bytes that are charged as one unit.
const UNIT: usize = 64;

/// The charge of a thread beyond which no payload to it may start, in units of 64 bytes: 1 MiB.
pub const WINDOW: u32 = 1 << 14;

/// The last bytes of the record of a piece; those of a notification differ.
pub const PIECE: [u8; 4] = 1u32.to_le_bytes();

/// The charge of a payload of this length, in units of 64 bytes: one unit, and its bytes, of which at most a
/// [`WINDOW`] counts.
pub fn cost_of(bytes: usize) -> u32 {
    let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
    units.min(WINDOW) + 1
}

/// What is wrong with the blocks that a peer offers to `threads` threads that read `max_len` bytes at a
/// time, in words.
pub fn invalid(descriptor: &MemoryDescriptor, threads: usize, max_len: usize) -> Option<String> {
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
pub struct Piece {
    /// The tag of the payload.
    pub tag: u64,
    /// Bytes of the whole payload.
    pub total: u32,
    /// Bytes of this piece, at the beginning of its block.
    pub len: u32,
    /// The receiving thread.
    pub thread: u32,
}

impl Piece {
    /// The record as bytes.
    pub fn encode(&self) -> [u8; RECORD] {
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
