//! The RDMA wire protocol: what hosts say to each other beside data, its encoding and its flow control.
//!
//! This crate needs no device and none of the libraries of RDMA, so what a peer may send is tested and
//! fuzzed on every machine. `gossamer-transport-rdma` moves these bytes.
//!
//! Reading order, lowest first:
//! 1. [`Endpoint`], [`MemoryDescriptor`]: addresses that a host gives a peer.
//! 2. [`Message`]: the handshake, over the carrier.
//! 3. [`immediate`]: immediate data and records, over queue pairs; [`immediate::Notifications`], their
//!    flow control.
//! 4. [`payloads`]: how the two ends hand over what has no room in a slot.
//! 5. `fuzzing`: what must hold for any bytes, for `cargo xtask fuzz`.

#![forbid(unsafe_code)]

mod address;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod immediate;
mod message;
pub mod payloads;

pub use address::{Endpoint, MemoryDescriptor};
pub use message::{CONTROL_BYTES, Message, TAG};
