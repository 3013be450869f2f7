//! What the key-value store `kv` keeps and how its clients speak, without a rack.
//!
//! Two folders, lowest first:
//! - [`store`]: one shard, as a plain value: items, expiry, eviction, and the requests that reach
//!   it. It knows no clock, no socket and no thread, so a rack can keep one per thread.
//! - [`memcached`]: the memcached text protocol, as a state machine without sockets.
//!
//! `gossamer-kv` has both under the same names, with the rack, the sockets and a bench on top. They are
//! a crate of their own so that they are tested and fuzzed without those.

#![forbid(unsafe_code)]

pub mod memcached;
pub mod store;
