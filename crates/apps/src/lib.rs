//! Applications on Gossamer, and what they are made of.
//!
//! Everything a program of this package does lives here, as modules with tests; the files in
//! `src/bin` read the command line, start the rack and call into them.
//!
//! - [`kv`]: the key-value store: YCSB bench, lock-based stores to compare with, memcached server.
//! - [`chaos`]: racks whose processes are killed at random moments, and what must be true then.
//! - [`svg`]: pictures of results.

#![forbid(unsafe_code)]

pub mod chaos;
pub mod kv;
pub mod svg;
