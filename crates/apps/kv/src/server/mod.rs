//! Sockets for the memcached protocol.
//!
//! One I/O thread owns all sockets. It reads, cuts bytes into commands and writes answers, and
//! never waits for the store: complete commands leave as a [`Job`] for an [`Execute`], which runs
//! them where blocking is fine (a fiber of the rack), and their output comes back through a channel
//! and a wake-up. So a trustee never meets a socket, a fiber never blocks on one, and a client that
//! reads slowly holds up nobody but itself.
//!
//! ```text
//!   sockets <--> I/O thread (mio) --Job--> fibers --requests--> trustees
//!                     ^-------- Done + wake ---'
//! ```
//!
//! In reading order: [`job`] (what leaves the I/O thread and comes back), `client` (one client's
//! socket), [`io`] (the I/O thread), [`counters`] (what `stats` says about the server), [`local`] (an
//! executor without a rack).

mod client;
pub mod counters;
pub mod io;
pub mod job;
pub mod local;
pub mod rack;

pub use io::{Options, Server, StopHandle};
pub use job::{Execute, Job};

#[cfg(test)]
mod tests;
