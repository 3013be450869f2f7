//! One shard of the key-value store, as a plain value.
//!
//! A [`Store`] owns its items and nothing else: no lock, no clock, no socket. Every call passes the
//! time in whole seconds since the Unix epoch, which only decides what has expired. Requests and
//! responses are plain data ([`wire`]), so a store can belong to a trustee in another process.
//!
//! The semantics are memcached's: items have flags, an expiry and a unique number (cas) that
//! changes with every write; expiry is lazy; a store with a memory limit evicts the least recently
//! used items.
//!
//! In reading order: [`wire`] and [`reports`] (requests and responses), `key` and [`data`] (the bytes of
//! an item), [`item`] (an item and its expiry), `lru` (lists in order of use), [`limit`] (a memory limit
//! that stores share), `index` (lookup, memory accounting), `compaction` (memory of removed items),
//! [`eviction`] (the order of use), `ops` and `meta` (the operations), `control` (those on the whole
//! store), [`number`] (numbers in items), [`stats`], [`prefixes`] and `sizes` (counters).
//!
//! ```
//! use gossamer_kv_store::store::{Key, Request, Response, Store, Verb};
//! let mut store = Store::default();
//! let (key, data) = (Key::new(b"answer"), b"42".to_vec());
//! let set =
//!     Request::Store { verb: Verb::Set, key: key.clone(), flags: 7, exptime: 10, data, meta: None };
//! assert_eq!(store.execute(set, 1000), Response::Stored);
//! let get = Request::Get { key, max_bytes: 100 };
//! assert!(matches!(store.execute(get.clone(), 1009), Response::Value { flags: 7, .. }));
//! assert_eq!(store.execute(get, 1010), Response::Miss);
//! ```

mod compaction;
mod control;
pub mod data;
pub mod eviction;
mod index;
pub mod item;
mod key;
pub mod limit;
mod lru;
mod meta;
pub mod number;
mod ops;
pub mod prefixes;
pub mod reports;
mod sizes;
pub mod stats;
pub mod wire;

pub use data::Data;
pub use eviction::LruSettings;
pub use index::Store;
pub use item::{ITEM_BYTES_MAX, KEY_BYTES_MAX, Seconds, is_too_large};
pub use key::{Key, KeyHasher};
pub use limit::{MemoryLimit, Pressure};
pub use reports::{ItemsReport, MetaItem, Setting, Settings};
pub use stats::Stats;
pub use wire::{Control, Direction, MetaStore, Refusal, Request, Response, Step, Verb};

#[cfg(test)]
mod tests;
