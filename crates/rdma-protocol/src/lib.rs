//! What hosts say to each other over RDMA, and its encoding.
//!
//! It is a crate without a device, and without the libraries of one, so every machine can test and fuzz
//! what a peer may send. `gossamer-transport-rdma` moves these bytes. Of what moves there,
//! only the pieces of payloads too large for a slot are encoded by itself.
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
