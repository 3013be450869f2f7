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
//! The memory is a [`Record`](crate::Record) that says what the map is, and then the slots,
//! each a record: of an entry, of one that was removed, or never written. Entries are placed as in
//! the registry of names ([`Places`](crate::table)): linear probing, at most half of the slots taken,
//! entries never move.
//!
//! # What a reader sees
//! 1. A value that the key had at some moment of the lookup, whole; or nothing, if at some moment of
//!    the lookup the key had none. This is rule 3 of the registry ([`table`](crate::table)) and the
//!    checksum of each record.
//! 2. What the owner had written before something by which the reader knows of it: the reply to a
//!    delegated call, a notification, a word in a segment. The owner stores the record first. Where
//!    memory is mapped, whatever brings the news orders the loads behind it; elsewhere the READ
//!    starts only then, and the owner's side takes it from the same memory.
//!
mod layout;
mod owner;
mod reader;

#[cfg(all(test, not(loom)))]
mod tests;

pub use self::layout::Plain;
pub use self::owner::{MapFull, RecordMap};
pub use self::reader::{Probed, RemoteMap};
