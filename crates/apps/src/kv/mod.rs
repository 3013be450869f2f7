//! The key-value store, in two faces: a YCSB bench and a memcached server.
//!
//! In reading order:
//! - [`store`]: one shard, as a plain value: items, expiry, eviction, and the requests that reach
//!   it. It knows no clock, no socket and no thread, so a rack can keep one per thread.
//! - [`key`]: keys and values as they cross the rack.
//! - [`table`]: a shard as the bench uses it: the store, and an order over its keys for scans.
//! - [`ycsb`]: workload files and the key distributions that YCSB defines.
//! - [`driver`]: runs a workload against anything that answers its operations, and reports.
//! - [`baseline`]: lock-based stores that the driver runs for comparison.
//! - [`memcached`]: the memcached text protocol, as a state machine without sockets.
//! - [`server`]: the sockets.
//! - [`rack`]: the store on a rack, for the driver and for the server.

pub mod baseline;
pub mod driver;
pub mod key;
pub mod memcached;
pub mod rack;
pub mod server;
pub mod store;
pub mod table;
pub mod ycsb;
