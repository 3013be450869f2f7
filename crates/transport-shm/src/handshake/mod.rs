//! How processes become a rack: the uppermost layer, which makes transports.
//!
//! 1. [`error`]: what can go wrong, and with whom.
//! 2. [`end`]: one side of a handshake between two processes.
//! 3. [`assemble`]: what all do once they are connected; racks within one process.
//! 4. [`leader`]: processes that one of them starts.
//! 5. [`rendezvous`]: processes that none of them has started.

pub(crate) mod assemble;
pub(crate) mod end;
pub(crate) mod error;
pub(crate) mod leader;
pub(crate) mod rendezvous;
