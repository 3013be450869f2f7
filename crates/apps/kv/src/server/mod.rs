//! The memcached server: sockets, and the store on a rack.
//!
//! One I/O thread owns all sockets. It reads, parses commands and writes responses, and never waits
//! for the store: complete commands become a [`Job`] for an [`Executor`], which runs them where
//! blocking is allowed (in a fiber of the rack) and returns the output through a channel and a
//! wake-up. So trustees and fibers never touch sockets, and a slow client delays only itself.
//!
//! ```text
//!   sockets <--> I/O thread (mio) --Job--> fibers --requests--> trustees
//!                     ^---- Completion + wake --'
//! ```
//!
//! In reading order: [`counters`] (server statistics), [`job`] (jobs and completions), `client`
//! (one client's socket), [`io`] (the I/O thread), [`rack`] (the store on a rack, and fibers that
//! run jobs), [`local`] (an executor without a rack).

mod client;
pub mod counters;
pub mod io;
pub mod job;
pub mod local;
pub mod rack;

pub use io::{Options, Server, StopHandle};
pub use job::{Executor, Job};

#[cfg(test)]
mod tests;
