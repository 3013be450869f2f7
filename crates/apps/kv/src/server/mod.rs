//! The memcached server: sockets, and the store on a rack behind them.
//!
//! A connection belongs to the thread that owns its socket. When the socket is readable, a fiber of
//! that thread reads, sends the requests of all commands that have arrived to the trustees in one
//! round, waits for the responses, and writes. The sockets of a thread are polled by its worker
//! ([`gossamer::Polled`]), so no request passes through another thread than its trustee's.
//!
//! ```text
//!   accepting fiber --socket--> pool <--connection--> fiber <--requests, responses--> trustees
//!                                ^-- readable -- socket --^-- reads, writes
//! ```
//!
//! In reading order: [`socket`] (TCP and Unix sockets), [`limits`] (open files), `counters` (what the
//! connections of a host share), `reports` (what the server reports of itself), `client` (one
//! connection), `pool` (the fibers that serve a thread's connections), [`host`] (a host's listeners), [`rack`] (the store on a rack).

mod client;
mod counters;
pub mod host;
pub mod limits;
mod pool;
pub mod rack;
mod reports;
pub mod socket;

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use host::{Drained, Host, drain, find_free, serve};

#[cfg(test)]
mod tests;

/// Options of the server on each host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Options {
    /// The TCP address to listen on; port 0 picks a free port.
    pub address: Option<SocketAddr>,
    /// Whether other processes may listen on the same port, each of which gets a part of the
    /// connections.
    pub shares_port: bool,
    /// The path of a Unix socket on which the first host of the rack listens.
    pub unix: Option<String>,
    /// Maximum number of connections of the host; further ones are told so and closed.
    pub connections_max: usize,
    /// Number of threads of the rack, reported by `stats`.
    pub threads: usize,
    /// Memory budget in bytes for unsent responses of all connections; at least 2 MiB, so that the
    /// largest item can be read.
    pub output_bytes: usize,
    /// Memory budget in bytes for unfinished and running commands of all connections, beyond 16 KiB of
    /// each; at least 3 MiB, so that the largest item can be stored, which takes twice its size.
    pub input_bytes: usize,
    /// While connections wait for memory, others that hold some and whose client reads or sends less
    /// than 64 KiB in this time are closed, one at a time.
    pub stall: Duration,
    /// Connections without a command are closed after this time, in whole seconds.
    pub idle: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: None,
            shares_port: false,
            unix: None,
            connections_max: 1024,
            threads: 1,
            output_bytes: 64 << 20,
            input_bytes: 64 << 20,
            stall: Duration::from_secs(2),
            idle: None,
        }
    }
}
