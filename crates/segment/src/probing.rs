//! Linear probing: where the search for a key begins, and which slots are taken, as the owner of the
//! table knows it ([`Places`]). The registry ([`Table`](crate::table::Table)) and maps of records
//! ([`RecordMap`](crate::RecordMap)) share this; the content of a slot is theirs.
//!
//! Entries never move: a peer that has passed a slot would miss an entry that moves there. So removal
//! leaves a tombstone, but only where lookups of other entries must look past the slot. For each slot
//! the owner counts these entries; when the last of them is removed, the tombstone is cleared. So no
//! sequence of insertions and removals fills the table with tombstones: with no entries left every
//! slot is empty.
//!
//! ```text
//!   insert a, b, c (same home)    | a | b | c |   |     counts: 2 1 0 0
//!   remove b                      | a | x | c |   |             1 1 0 0
//!   remove c                      | a |   |   |   |             0 0 0 0
//! ```

use std::hash::{BuildHasher, Hasher};

/// The same in every process of a build. Seed and constants are in the source, nothing is drawn when
/// a process starts, and only the name's bytes are hashed. How foldhash reads them depends on the
/// byte order of the processor, which is the same for all processes that run the same machine code.
const HASHER: foldhash::fast::FixedState =
    foldhash::fast::FixedState::with_seed(0x7365_676d_656e_7473);

/// The slot of a table of `slots` slots in which the search for a key of these bytes begins. It
/// continues in the next slot, and behind the last one in the first.
///
/// # Panics
/// If there are no slots.
#[inline]
pub(crate) fn home_of(key: &[u8], slots: usize) -> usize {
    assert!(slots > 0, "a table without slots");
    // Not `hash_one`: a slice also hashes its length, in a way that the standard library may change.
    let mut hasher = HASHER.build_hasher();
    hasher.write(key);
    // Multiply and shift instead of a remainder: the upper half of hash * slots.
    ((u128::from(hasher.finish()) * slots as u128) >> 64) as usize
}

/// The owner's state of a slot.
#[derive(Clone, Copy, Default)]
struct State {
    is_live: bool,
    /// Entries in later slots whose lookups pass this one. It is not empty as long as there are any.
    passing: u32,
}

/// What a slot without an entry contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vacant {
    /// Nothing: a lookup ends here.
    Empty,
    /// A tombstone: a lookup continues with the next slot.
    Tombstone,
}

/// Which slots are taken, and which of the others lookups must pass.
pub(crate) struct Places(Vec<State>);

impl Places {
    /// The slots of an empty table.
    pub(crate) fn new(slots: usize) -> Self {
        Self(vec![State::default(); slots])
    }

    /// The number of slots.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the first free slot from `home` on for a new entry; `None` if there is none.
    pub(crate) fn take(&mut self, home: usize) -> Option<usize> {
        let slots = self.len();
        let slot = (home..slots).chain(0..home).find(|slot| !self.0[*slot].is_live)?;
        for passed in path(home, slot, slots) {
            self.0[passed].passing += 1;
        }
        self.0[slot].is_live = true;
        Some(slot)
    }

    /// What a slot contains, or will contain, without an entry.
    pub(crate) fn vacant(&self, slot: usize) -> Vacant {
        if self.0[slot].passing > 0 { Vacant::Tombstone } else { Vacant::Empty }
    }

    /// Removes the entry in `slot`, the search for which began at `home`. Returns what to write, in
    /// this order: the slot itself comes first, since no lookup may end in front of an entry that can
    /// still be found. Then come those that needed a tombstone for this entry only.
    pub(crate) fn remove(&mut self, home: usize, slot: usize) -> Vec<(usize, Vacant)> {
        self.0[slot].is_live = false;
        let mut changed = vec![(slot, self.vacant(slot))];
        for passed in path(home, slot, self.len()) {
            let state = &mut self.0[passed];
            state.passing -= 1;
            if state.passing == 0 && !state.is_live {
                changed.push((passed, Vacant::Empty));
            }
        }
        changed
    }
}

/// The slots that a lookup which begins at `home` passes before it reaches `slot`.
fn path(home: usize, slot: usize, slots: usize) -> impl Iterator<Item = usize> {
    let (first, wrapped) = if home <= slot { (home..slot, 0..0) } else { (home..slots, 0..slot) };
    first.chain(wrapped)
}
