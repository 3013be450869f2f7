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
//! registry of names ([`Places`](crate::table)): linear probing, at most half of the slots taken,
//! entries never move.
//!
//! # What a reader sees
//! 1. A value that the key had at some moment of the lookup, never a mixture of two; or `None`, if
//!    at some moment of the lookup the key had no value. This is rule 3 of the registry
//!    ([`table`](crate::table)) and the checksum of each record.
//! 2. Every write that happened before a message that the reader has received from the owner: the
//!    reply to a delegated call or a notification. The owner stores the record before it sends the
//!    message. Where memory is mapped, receiving the message orders the loads after it; elsewhere the
//!    READ starts after it, and is served from the same memory.
mod layout;
mod owner;
mod reader;

#[cfg(all(test, not(loom)))]
mod tests;

pub use self::layout::Plain;
pub use self::owner::{MapFull, RecordMap};
pub use self::reader::{Probed, RemoteMap};
