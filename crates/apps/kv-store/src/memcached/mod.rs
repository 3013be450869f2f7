//! The memcached text protocol, without sockets.
//!
//! A state machine from received bytes to bytes to send; the caller runs the commands in between
//! against the store. Nothing here reads a clock or panics on input, nothing but [`local`] blocks, and
//! every buffer is bounded. Responses are those of memcached 1.6.18, also to malformed input, as far as
//! `tests/memcached_same.rs` and `tests/fixtures` of `gossamer-kv` compare them; [`admin`] lists
//! what is missing.
//!
//! ```text
//!   socket --bytes--> Parser --Command--> Batch --run--> Shards (the store)
//!   socket <--bytes-- Connection <------- output
//! ```
//!
//! In reading order: [`command`] (command lines), [`keys`] (of retrievals), [`meta`] and [`admin`]
//! (lines of meta commands and of commands on the server), [`parser`] (framing), [`budget`] (memory that
//! connections share), [`output`] (unsent responses), [`target`] (what commands run on), [`batch`]
//! (executing them), `format` (writing responses), `control` (executing commands on the server), `balance`
//! (moving memory among shards), `stats` (reports), [`local`] (a store without a rack), [`connection`] (one
//! client: order, limits), `fuzzing` (properties for arbitrary input); `base64`, `float`.

/// The version reported to clients. It starts with the version of memcached whose responses these
/// match, because clients select behaviour by it.
macro_rules! version {
    () => {
        concat!("1.6.18-gossamer-", env!("CARGO_PKG_VERSION"))
    };
}

pub mod admin;
mod balance;
mod base64;
pub mod batch;
pub mod budget;
pub mod command;
pub mod connection;
mod control;
mod float;
mod format;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod keys;
pub mod local;
pub mod meta;
pub mod output;
pub mod parser;
mod stats;
pub mod target;

/// The version reported to clients.
pub const VERSION: &str = version!();

pub use balance::balance_memory;
pub use batch::{Batch, Progress};
pub use budget::{Budget, Place, Reservation};
pub use command::{Command, Line};
pub use connection::Connection;
pub use control::crawl;
pub use keys::Keys;
pub use output::{Output, Shortage};
pub use parser::Parser;
pub use target::{ConnectionReport, ServerState, Shards};
