//! A key-value store on a rack, in two faces: a YCSB bench and a memcached server.
//!
//! The program `kv` (`src/bin/kv`) reads the command line, starts the rack and calls into this
//! library. What knows no rack is the crate `gossamer-kv-store`, whose modules are here under their names:
//! [`store`], one shard as a plain value, and [`memcached`], the protocol as a state machine. The folders
//! above it, lowest first; each uses only those before it in this list:
//! - [`ycsb`]: workload files and the key distributions that YCSB defines.
//! - [`fibers`]: blocking work and many requests at a time, from a fiber.
//! - [`server`]: the sockets, and the store on a rack behind them.
//! - [`bench`](mod@bench): runs a workload on the rack's store or on lock-based ones, and reports.

#![forbid(unsafe_code)]

pub mod bench;
pub mod fibers;
pub mod server;
pub mod ycsb;

pub use gossamer_kv_store::{memcached, store};
