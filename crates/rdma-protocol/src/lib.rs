//! What hosts say to each other over RDMA, and its encoding.
//!
//! This crate needs no device and none of the libraries of RDMA, so what a peer may send is tested and
//! fuzzed on every machine. `gossamer-transport-rdma` moves these bytes; it encodes only the pieces of
//! payloads that are too large for a slot itself.
//!
//! Reading order, lowest first:
//! 1. [`Endpoint`], [`MemoryDescriptor`]: addresses that a host gives a peer.
//! 2. [`Message`]: the handshake, over the carrier.
//! 3. [`immediate`]: immediate data and records, over queue pairs; [`immediate::Notifications`], their
//!    flow control.
//! 4. `fuzzing`: what must hold for any bytes, for `cargo xtask fuzz`.

#![forbid(unsafe_code)]

mod address;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod immediate;
mod message;

pub use address::{Endpoint, MemoryDescriptor};
pub use message::{Message, TAG};
