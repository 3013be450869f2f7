//! The transport between the threads and processes of one machine.
//!
//! Regions are memory that is really shared, so a write is a copy (or nothing at all, where the
//! writer composed in place), a signal is one atomic store, and waking is a futex in memory that
//! every host maps. Regions of processes are unnamed, sealed files in memory, handed over through
//! Unix sockets: nothing has a name in a file system, so nothing is left behind by a crash.
//!
//! Each folder uses only those above it in this list, which is also the reading order:
//! 1. `wire`: packets between processes, and whether a process has ended.
//! 2. `memory`: mapped memory (the only `unsafe`), parkers and rings in it.
//! 3. `control`: the control plane of [`transport_control`] on this transport: regions, imports,
//!    revocation, the service thread.
//! 4. `data`: lanes, parkers, and the [`Alarm`]s of threads that wait for other machines, too.
//! 5. `transport`: [`ShmTransport`] puts them together.
//! 6. `handshake`: how processes become a rack: [`Leader`] if one starts the others, [`Neighbours`]
//!    if none does.
//! 7. `fuzzing`: what must hold for any packet, for `cargo xtask fuzz`.

#![deny(unsafe_code)]

mod control;
mod data;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod handshake;
mod memory;
mod transport;
mod wire;

pub use data::alarm::Alarm;
pub use handshake::error::{HANDSHAKE, JoinError, Party};
pub use handshake::leader::Leader;
pub use handshake::rendezvous::Neighbours;
pub use transport::ShmTransport;
