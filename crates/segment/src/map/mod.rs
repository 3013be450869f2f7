//! A map in a segment: its owner writes, and every host of the rack reads, mostly by one READ.
//!
//! ```text
//!   owner                                        any host
//!   -----                                        --------
//!   RecordMap::put, remove                       RemoteMap::get
//!     one record of the key's slot  <----------    READ of the slot where the key's search begins,
//!                                                  then of the next ones
//! ```
//!
//! The memory begins with a [`Record`](crate::Record) that describes the map. The slots follow,
//! each a record: with an entry, a tombstone, or never written. Entries are placed as in the
//! registry of names ([`Places`](crate::probing::Places)): linear probing, at most half of the slots
//! taken, entries never move.
//!
//! # Why a lookup sees what [`RemoteMap`] promises
//! 1. One moment: rule 3 of the registry ([`table`](crate::table)), and the checksum of each record.
//! 2. Writes before a message: the owner stores the record before it sends the message. Where memory
//!    is mapped, receiving the message orders the loads after it; elsewhere the READ starts after it,
//!    and is served from the same memory.

mod layout;
mod owner;
mod reader;

#[cfg(all(test, not(loom)))]
mod tests;

pub use self::layout::Plain;
pub use self::owner::{MapFull, RecordMap};
pub use self::reader::{Probed, RemoteMap};
