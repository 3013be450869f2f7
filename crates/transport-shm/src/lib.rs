//! The transport between the threads and processes of one machine.
//!
//! Regions are memory that is really shared, so a write is a copy (or nothing at all, where the
//! writer composed in place), a signal is one atomic store, and waking is a futex in memory that
//! every host maps. Regions of processes are unnamed, sealed files in memory, handed over through
//! Unix sockets: nothing has a name in a file system, so nothing is left behind by a crash.
//!
//! Reading order:
//! 1. `mapping`: where memory comes from; the only file with `unsafe`.
//! 2. `export`: the regions of this host.
//! 3. `control`: parkers, attention words and rings, the memory that every host exports to all.
//! 4. `ring`: bulk payloads and notifications of one pair of threads.
//! 5. `host`: what all threads of a process share.
//! 6. `lane`: the operations.
//! 7. [`ShmTransport`]: puts them together.
//! 8. `message`, `socket`: what processes say to each other, and how.
//! 9. `service`: the thread that answers imports and watches the peers.
//! 10. `handshake`, [`Rendezvous`]: how processes become a rack; [`Neighbours`]: how they do if
//!     none of them has started the others, and how they become part of one.
//! 11. [`Alarm`]: how threads are woken that wait for other machines, too.
//! 12. `fuzzing`: what must hold for any packet, for `cargo xtask fuzz`.

#![deny(unsafe_code)]

mod alarm;
mod control;
mod export;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod handshake;
mod host;
mod import;
mod join;
mod lane;
#[allow(unsafe_code)]
mod mapping;
mod meeting;
mod message;
mod quiet;
mod ring;
mod service;
mod shm;
mod socket;

pub use alarm::Alarm;
pub use handshake::{HANDSHAKE, JoinError, Party};
pub use join::Rendezvous;
pub use meeting::Neighbours;
pub use shm::ShmTransport;
