//! The progress engine of one thread: it owns the thread's lanes of the transport.
//!
//! As with the engines of MPI and UCX, communication makes progress only inside calls of
//! [`Progress::poll`]. Several layers share the engine of a thread: delegation and its neighbours.
//! Each is the [`Owner`] of a name space, and gets the events of that name space.
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
//! | set-up of a thread | [`Progress::new`], [`Progress::add_owner`] |
//! | its worker, in every round | [`Progress::poll`] if [`Progress::count_round`], and before it sleeps; [`Progress::put_off`] if it polls earlier in a round |
//! | its fibers | [`Progress::begin`] or another `begin_*`, then [`Operation::wait`] or [`Import::wait`] |
//! | its worker, at the end | [`Progress::close`], before fibers are unwound |
//!
//! Deliberately absent: a clock, threads, sockets. Lanes are handed in.

#![forbid(unsafe_code)]

mod operation;
mod owner;
mod progress;
mod tokens;
mod watched;

#[cfg(test)]
mod tests;

pub use crate::operation::{Import, Operation};
pub use crate::owner::{Owner, Violation};
pub use crate::progress::{LaneRef, Progress, TakenNotification};
pub use transport_api::Notification;
