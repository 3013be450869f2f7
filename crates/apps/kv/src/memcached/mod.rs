//! The memcached text protocol, without sockets.
//!
//! Bytes go in, bytes come out; in between, commands wait for somebody who can reach the store.
//! Nothing here blocks, reads a clock, or panics on what a client sends, and every buffer has a
//! limit. Answers are those of memcached 1.6, byte for byte, for malformed input too.
//!
//! ```text
//!   socket --bytes--> Parser --Command--> Batch --run--> Shards (the store, wherever it is)
//!   socket <--bytes-- Connection <------- output
//! ```
//!
//! In reading order: [`command`] (what a line means), [`parser`] (where a line and its data end),
//! [`output`] (answers and the memory that all of them may take), [`batch`] (running commands and
//! writing answers), [`local`] (the store without a rack), [`connection`] (one client: order, limits).
//! For any bytes at all: `fuzzing`.

/// The version that clients are told. It begins with that of the memcached whose answers these are:
/// clients choose what to expect by it.
macro_rules! version {
    () => {
        concat!("1.6.18-gossamer-", env!("CARGO_PKG_VERSION"))
    };
}

pub mod batch;
pub mod command;
pub mod connection;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod local;
pub mod output;
pub mod parser;

/// The version that clients are told.
pub const VERSION: &str = version!();

pub use batch::{Batch, Progress, ServerStats, Shards};
pub use command::{Command, Line};
pub use connection::Connection;
pub use output::{Budget, Output, Shortage};
pub use parser::Parser;
