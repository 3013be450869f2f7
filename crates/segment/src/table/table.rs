//! [`Table`]: the owner's side of its registry.
//!
//! The owner keeps its entries in private memory and only ever writes the table, so it never trusts
//! exported memory.
//!
//! [`Places`] decides which slot an entry gets, and when a slot whose entry was removed is empty.

use std::fmt;

use foldhash::{HashMap, HashMapExt};
use primitive::SharedBytes;
use primitive::sync::{Ordering, fence};
use thiserror::Error;

use crate::name::Name;
use crate::probing::{Places, Vacant};
use crate::table::entry::{ENTRY_BYTES, ENTRY_WORDS, Entry, Slot};
use crate::table::home::{SLOTS, home_slot};

/// The names of this host, in memory that peers read. Only its owner writes it.
///
/// ```
/// use gossamer_segment::testing::{REGISTRY_BYTES, Table};
/// use gossamer_segment::{Entry, Name, Published};
/// use primitive::SharedBytes;
///
/// let mut table = Table::new(SharedBytes::heap(REGISTRY_BYTES));
/// let name = Name::new("orders")?;
/// let what = Published::Trust { thread: 1, id: 5 };
/// table.insert(Entry { name, generation: 0, what })?;
/// assert_eq!(table.find(&name).map(|entry| entry.what), Some(what));
/// assert!(table.insert(Entry { name, generation: 1, what }).is_err());
/// assert!(table.remove(&name).is_some() && table.find(&name).is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Table {
    memory: SharedBytes,
    live: HashMap<Name, LiveEntry>,
    places: Places,
    #[cfg(test)]
    after_store: Option<Box<dyn FnMut() + Send>>,
}

/// Where an entry is.
struct LiveEntry {
    home: usize,
    slot: usize,
    entry: Entry,
}

/// Why a name cannot be published.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TableError {
    /// It is published already.
    #[error("name {0} is already published by this host; delete it first or choose another name")]
    Taken(Name),
    /// There is no room for another one.
    #[error(
        "cannot publish {name}: this host has published {slots} names, the most it can; delete one first"
    )]
    Full {
        /// The name.
        name: Name,
        /// Names in the table.
        slots: usize,
    },
}

impl Table {
    /// An empty table in `memory`, which is zeroed. A registry has `REGISTRY_BYTES`; peers must
    /// know how many slots there are.
    ///
    /// # Panics
    /// If the memory is not that of 1 to [`SLOTS`] slots.
    pub fn new(memory: SharedBytes) -> Self {
        let slots = memory.len() / ENTRY_BYTES;
        assert!(
            memory.len().is_multiple_of(ENTRY_BYTES) && (1..=SLOTS).contains(&slots),
            "a registry in {} bytes: expected 1 to {SLOTS} slots of {ENTRY_BYTES}",
            memory.len()
        );
        Self {
            memory,
            live: HashMap::new(),
            places: Places::new(slots),
            #[cfg(test)]
            after_store: None,
        }
    }

    /// The memory that peers read.
    #[cfg(any(test, feature = "testing", loom))]
    pub fn memory(&self) -> &SharedBytes {
        &self.memory
    }

    /// The number of names.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// The entry of `name`.
    pub fn find(&self, name: &Name) -> Option<&Entry> {
        self.live.get(name).map(|place| &place.entry)
    }

    /// Publishes an entry under a new name.
    ///
    /// # Errors
    /// [`TableError::Taken`], [`TableError::Full`].
    pub fn insert(&mut self, entry: Entry) -> Result<(), TableError> {
        let name = entry.name;
        if self.live.contains_key(&name) {
            return Err(TableError::Taken(name));
        }
        let slots = self.places.len();
        let home = home_slot(&name, slots);
        let slot = self.places.take(home).ok_or(TableError::Full { name, slots })?;
        self.live.insert(name, LiveEntry { home, slot, entry });
        self.write(slot, self.places.vacant(slot).into(), Slot::Entry(entry));
        Ok(())
    }

    /// Removes a name; its entry, if it was published.
    pub fn remove(&mut self, name: &Name) -> Option<Entry> {
        let LiveEntry { home, slot, entry } = self.live.remove(name)?;
        for (at, vacant) in self.places.remove(home, slot) {
            let old = if at == slot { Slot::Entry(entry) } else { Slot::Deleted };
            self.write(at, old, vacant.into());
        }
        Some(entry)
    }

    /// Changes the content of a slot. Only words that differ are stored: readers then wait for fewer
    /// cache lines.
    fn write(&mut self, slot: usize, old: Slot, new: Slot) {
        let (old, new) = (old.encode(), new.encode());
        debug_assert!(Slot::decode(&new).is_ok(), "an entry that peers refuse: {new:x?}");
        // A reader that loads one of the words below and then has a fence (`Probe::take`) sees all
        // earlier writes: those to other slots, and to the memory that the name stands for.
        fence(Ordering::Release);
        for (at, (old, new)) in old.into_iter().zip(new).enumerate() {
            if old != new {
                self.memory.words().store(slot * ENTRY_WORDS + at, new, Ordering::Relaxed);
                #[cfg(test)]
                if let Some(after_store) = &mut self.after_store {
                    after_store();
                }
            }
        }
    }

    /// Calls `hook` after every store, so that tests read what concurrent readers see.
    #[cfg(test)]
    pub(crate) fn after_store(&mut self, hook: impl FnMut() + Send + 'static) {
        self.after_store = Some(Box::new(hook));
    }
}

impl From<Vacant> for Slot {
    fn from(vacant: Vacant) -> Slot {
        match vacant {
            Vacant::Empty => Slot::Empty,
            Vacant::Tombstone => Slot::Deleted,
        }
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} names in {} slots)", self.live.len(), self.places.len())
    }
}
