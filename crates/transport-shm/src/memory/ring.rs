//! What one thread sends another: notifications in notice slots, and a byte ring of bulk payloads and
//! of the notifications that found no free slot.
//!
//! Both lie in the receiver's host memory; the sender writes them one-sidedly. A payload larger
//! than the ring streams through it: both ends work in pieces, and neither ever waits for the
//! other.
//!
//! ```text
//!   +0     tail     bytes ever written;  written by the sender, after the bytes
//!   +128   head     bytes ever consumed; written by the receiver, after it copied them out
//!   +256   waiting  a park word (`transport_api::park_word`): the sender sleeps for room
//!   +384   noticed  notifications ever taken out of the ring; written by the receiver
//!   +512   slots    notice slots (`transport_api::NoticeEnd`)
//!   +4096  data     frames: four header words, then the payload padded to 8 bytes
//! ```
//!
//! 1. The sender alone writes `tail` and believes its own copy of it; likewise the receiver and
//!    `head`.
//! 2. The receiver publishes `head` after every quarter of the ring, not after every frame: each
//!    publication costs both sides a transfer of its cache line. The sender loads it only if there is
//!    no room behind the last one it saw. A sender that waits for room has filled all but a part of a
//!    header of the ring, counted from the published `head`; when the receiver has consumed that, it
//!    has consumed more than a quarter since, and publishes.
//! 3. Notifications arrive in order. The sender uses a slot only while the receiver has taken all
//!    notifications that went into the ring; so what is in a slot is older than what is in the ring.
//!    The receiver loads `tail`, then takes what is in slots, and only then consumes the ring up to
//!    that `tail`. Bulk payloads have no order with notifications.
//! 4. What the other side wrote is read once, then checked, then used. A counter or a header that
//!    no peer of this build writes is an error in words, never a panic and never a wild access:
//!    positions are taken modulo the ring, which both sides know from the rack's size.
//!
//! `ring/frame.rs` has what travels, `ring/sender.rs` and `ring/receiver.rs` the two ends.

mod frame;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use primitive::SharedBytes;
use primitive::sync::AtomicU32;
use transport_api::NOTICE_SLOTS_BYTES;

pub(crate) use self::frame::Frame;
pub(crate) use self::receiver::{Arrival, Receiver};
pub(crate) use self::sender::Sender;
use crate::memory::host_memory::RING_HEADER;

const TAIL: usize = 0;
const HEAD: usize = 128;
const WAITING: usize = 256;
const NOTICED: usize = 384;

/// Where the notice slots are, from the beginning of the header.
pub(crate) const SLOTS: usize = 512;

const _: () = assert!(SLOTS + NOTICE_SLOTS_BYTES <= RING_HEADER);

/// Bytes of a frame header.
const HEADER: u64 = 32;

/// Bytes after which one side publishes its position, so that both work at the same time.
const STEP: u64 = 64 << 10;

/// One end's view of a ring: where it is in a host memory.
#[derive(Clone)]
pub(crate) struct Place {
    memory: SharedBytes,
    bytes: u64,
}

impl Place {
    /// The ring at byte `at` of `host_memory`, with `ring_bytes` of data.
    pub(crate) fn new(host_memory: &SharedBytes, at: usize, ring_bytes: usize) -> Self {
        let memory = host_memory.slice(at, RING_HEADER + ring_bytes);
        Self { memory, bytes: ring_bytes as u64 }
    }

    fn waiting(&self) -> &AtomicU32 {
        self.memory.word32(WAITING)
    }

    /// Its notice slots.
    pub(crate) fn slots(&self) -> SharedBytes {
        self.memory.slice(SLOTS, NOTICE_SLOTS_BYTES)
    }

    fn at(&self, position: u64) -> usize {
        RING_HEADER + (position % self.bytes) as usize
    }

    /// Bytes from `position` to the end of the ring's memory.
    fn run(&self, position: u64) -> usize {
        (self.bytes - position % self.bytes) as usize
    }
}
