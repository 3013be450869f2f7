//! The registry of a host: a hash table of names in memory that peers read, and their lookups in it.
//!
//! ```text
//!   owner                                          peer
//!   -----                                          ----
//!   Table::insert, remove                          Probe::next: which slot to READ
//!     store the words of a slot  ------------>     Probe::take: 128 bytes; found, or the next slot
//! ```
//!
//! # Rules
//! 1. Only the owner writes, under its own lock.
//! 2. An entry stays in its slot until it is removed.
//! 3. The slots from the home slot of an entry to its own are never empty while it is there: a lookup
//!    that ends at an empty slot has passed every entry of that name.
//! 4. The words of a slot have no order. Readers check the checksum, and read a torn slot again.
//!
//! A lookup that runs while the owner changes the table returns an entry that the name had at some
//! moment of the lookup, or finds nothing if there was a moment without one.
//!
//! # Reading order
//! 1. [`Entry`], [`Slot`]: what a slot contains, and its encoding.
//! 2. [`home_slot`]: where the search for a name begins.
//! 3. [`Table`]: the owner's side, over [`Places`](crate::probing::Places).
//! 4. [`Probe`]: a peer's lookup.

mod entry;
mod home;
mod probe;
// The table of this folder.
#[allow(clippy::module_inception)]
mod table;

#[cfg(all(test, not(loom)))]
mod tests;

pub use self::entry::{ENTRY_BYTES, Entry, Malformed, Notify, Published, Slot};
pub(crate) use self::entry::{ENTRY_WORDS, is_intact};
#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) use self::entry::{EntryWords, sealed};
pub use self::home::REGISTRY_BYTES;
pub(crate) use self::home::SLOTS;
pub use self::home::home_slot;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) use self::probe::TORN_READS;
pub use self::probe::{Lookup, Next, Probe, Strategy};
pub use self::table::{Table, TableError};
