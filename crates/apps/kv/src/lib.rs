//! A key-value store on a rack, in two faces: a YCSB bench and a memcached server.
//!
//! The program `kv` (`src/bin/kv`) reads the command line, starts the rack and calls into this
//! library. The folders, lowest first; each uses only those above it in this list:
//! - [`store`]: one shard, as a plain value: items, expiry, eviction, and the requests that reach
//!   it. It knows no clock, no socket and no thread, so a rack can keep one per thread.
//! - [`ycsb`]: workload files and the key distributions that YCSB defines.
//! - [`fibers`]: blocking work and many requests at a time, from a fiber.
//! - [`memcached`]: the memcached text protocol, as a state machine without sockets.
//! - [`server`]: the sockets, and the store on a rack behind them.
//! - [`bench`](mod@bench): runs a workload on the rack's store or on lock-based ones, and reports.

#![forbid(unsafe_code)]

pub mod bench;
pub mod fibers;
pub mod memcached;
pub mod server;
pub mod store;
pub mod ycsb;
