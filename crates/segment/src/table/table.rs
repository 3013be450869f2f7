//! [`Table`]: the owner's side of its registry.
//!
//! The owner keeps what it published in its own memory and only ever writes the table, so what it
//! knows of its names does not depend on memory that is exported.
//!
//! Entries never move: a peer that has passed a slot would miss an entry that moves there. So removal
//! leaves a tombstone, but only where lookups of other names must look past the slot. For each slot
//! the table counts these names; when the last of them is removed, the tombstone is cleared. So no
//! sequence of insertions and removals fills the table with tombstones: with no names left every slot
//! is empty.
//!
//! ```text
//!   insert a, b, c (same home)    | a | b | c |   |     counts: 2 1 0 0
//!   remove b                      | a | x | c |   |             1 1 0 0
//!   remove c                      | a |   |   |   |             0 0 0 0
//! ```

use std::collections::HashMap;
use std::fmt;

use primitive::SharedBytes;
use primitive::sync::{Ordering, fence};
use thiserror::Error;

use crate::name::Name;
use crate::table::entry::{ENTRY_BYTES, ENTRY_WORDS, Entry, Slot};
use crate::table::home::{SLOTS, home_slot};

/// The names of this host, in memory that peers read. Only its owner writes it.
///
/// ```
/// use gossamer_segment::Name;
/// use gossamer_segment::table::{Entry, Published, REGISTRY_BYTES, Table};
/// use primitive::SharedBytes;
///
/// let mut table = Table::new(SharedBytes::heap(REGISTRY_BYTES));
/// let name = Name::new("orders")?;
/// let what = Published::Trust { thread: 1, id: 5, type_id: 77 };
/// table.insert(Entry { name, generation: 0, what })?;
/// assert_eq!(table.find(&name).map(|entry| entry.what), Some(what));
/// assert!(table.insert(Entry { name, generation: 1, what }).is_err());
/// assert!(table.remove(&name).is_some() && table.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Table {
    memory: SharedBytes,
    live: HashMap<Name, Place>,
    slots: Vec<State>,
    #[cfg(test)]
    after_store: Option<Box<dyn FnMut() + Send>>,
}

/// Where an entry is.
struct Place {
    home: usize,
    slot: usize,
    entry: Entry,
}

/// What the owner knows of a slot.
#[derive(Clone, Copy, Default)]
struct State {
    is_live: bool,
    /// Names in later slots whose lookups pass this one. It is not empty as long as there are any.
    passing: u16,
}

/// Why a name cannot be published, or not be changed.
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
    /// It is not published.
    #[error("name {0} is not published by this host; publish it first")]
    Unknown(Name),
}

impl Table {
    /// An empty table in `memory`, which is zeroed. A registry has [`REGISTRY_BYTES`]; peers must
    /// know how many slots there are.
    ///
    /// # Panics
    /// If the memory is not that of 1 to [`SLOTS`] slots.
    ///
    /// [`REGISTRY_BYTES`]: crate::table::REGISTRY_BYTES
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
            slots: vec![State::default(); slots],
            #[cfg(test)]
            after_store: None,
        }
    }

    /// The memory that peers read.
    pub fn memory(&self) -> &SharedBytes {
        &self.memory
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
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
        let home = home_slot(&name, self.slots.len());
        let Some(slot) = self.from(home).find(|slot| !self.slots[*slot].is_live) else {
            return Err(TableError::Full { name, slots: self.slots.len() });
        };
        for passed in path(home, slot, self.slots.len()) {
            self.slots[passed].passing += 1;
        }
        self.live.insert(name, Place { home, slot, entry });
        let old = self.without_entry(slot);
        self.slots[slot].is_live = true;
        self.write(slot, old, Slot::Entry(entry));
        Ok(())
    }

    /// Replaces the entry of a name. A concurrent lookup finds the old or the new one.
    ///
    /// # Errors
    /// [`TableError::Unknown`].
    pub fn replace(&mut self, entry: Entry) -> Result<Entry, TableError> {
        let place = self.live.get_mut(&entry.name).ok_or(TableError::Unknown(entry.name))?;
        let old = std::mem::replace(&mut place.entry, entry);
        let slot = place.slot;
        self.write(slot, Slot::Entry(old), Slot::Entry(entry));
        Ok(old)
    }

    /// Removes a name; its entry, if it was published.
    pub fn remove(&mut self, name: &Name) -> Option<Entry> {
        let Place { home, slot, entry } = self.live.remove(name)?;
        self.slots[slot].is_live = false;
        // Before its path: as long as it can be found, no lookup may end in front of it.
        self.write(slot, Slot::Entry(entry), self.without_entry(slot));
        for passed in path(home, slot, self.slots.len()) {
            self.slots[passed].passing -= 1;
            if self.slots[passed].passing == 0 && !self.slots[passed].is_live {
                self.write(passed, Slot::Deleted, Slot::Empty);
            }
        }
        Some(entry)
    }

    /// All slots, from `home` on.
    fn from(&self, home: usize) -> impl Iterator<Item = usize> + use<> {
        let slots = self.slots.len();
        (home..slots).chain(0..home)
    }

    /// What a slot contains if it has no entry.
    fn without_entry(&self, slot: usize) -> Slot {
        if self.slots[slot].passing > 0 { Slot::Deleted } else { Slot::Empty }
    }

    /// Changes the content of a slot. Only words that differ are stored: readers then wait for fewer
    /// cache lines.
    fn write(&mut self, slot: usize, old: Slot, new: Slot) {
        let (old, new) = (old.encode(), new.encode());
        debug_assert!(Slot::decode(&new).is_ok(), "an entry that peers refuse: {new:x?}");
        // Whoever reads one of the words below and then has a fence (`Probe::take`) sees everything
        // that was done before: the writes to other slots, and what the name stands for.
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

    /// Has `hook` called after every store, so that tests read what concurrent readers see.
    #[cfg(test)]
    pub(crate) fn after_store(&mut self, hook: impl FnMut() + Send + 'static) {
        self.after_store = Some(Box::new(hook));
    }
}

/// The slots that a lookup which begins at `home` passes before it reaches `slot`.
fn path(home: usize, slot: usize, slots: usize) -> impl Iterator<Item = usize> {
    let (first, wrapped) = if home <= slot { (home..slot, 0..0) } else { (home..slots, 0..slot) };
    first.chain(wrapped)
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} names in {} slots)", self.live.len(), self.slots.len())
    }
}
