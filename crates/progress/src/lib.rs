//! The progress engine of one thread: everything that the thread has of the transport.
//!
//! MPI and UCX call it so, too: communication makes progress only while somebody calls
//! [`Progress::poll`]. Several layers share the engine of a thread: delegation, and what stands
//! beside it. Each is an [`Owner`] of a name space, and gets what arrives in that.
//!
//! ```text
//!   fiber                       Progress                       Lane
//!   begin(host, start) -------> token, start(lane, token) ---> read, fetch_add, fence ..
//!   Operation::wait: parks      poll: flush, then poll <------ Completed, Failed, Imported
//!   gets value or error <------ ends the token, unparks
//!                 Owner <------ by name space <--------------- Bulk, Notified
//!        every Owner, tokens <- once per host <--------------- Peer
//! ```
//!
//! | Caller | Calls, in this order |
//! |---|---|
//! | who sets up a thread | [`Progress::new`], [`Progress::add_owner`] |
//! | its worker, in every round | [`Progress::poll_if_due`], or [`Progress::poll`] before it sleeps |
//! | its fibers | [`Progress::begin`] and its relatives, then [`Operation::wait`] or [`Import::wait`] |
//! | its worker, at the end | [`Progress::close`], before fibers are unwound |
//!
//! Deliberately absent: a clock, threads, sockets. What it uses of them it is handed as lanes.

#![forbid(unsafe_code)]

mod operation;
mod owner;
mod progress;
mod tokens;

#[cfg(test)]
mod tests;

pub use crate::operation::{Import, Operation};
pub use crate::owner::{Notification, Owner, Violation};
pub use crate::progress::{LaneRef, Progress};
