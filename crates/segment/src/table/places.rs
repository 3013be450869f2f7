//! [`Places`]: which slots of an open-addressed table are taken, as its owner knows it. The
//! registry ([`Table`](crate::table::Table)) and maps of records ([`RecordMap`](crate::RecordMap))
//! share it; the content of a slot is theirs.
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

/// The owner's state of a slot.
#[derive(Clone, Copy, Default)]
struct State {
    is_live: bool,
    /// Entries in later slots whose lookups pass this one. It is not empty as long as there are any.
    passing: u32,
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

    /// Whether lookups of entries in later slots pass this one, so that it must be a tombstone if it
    /// has no entry.
    pub(crate) fn is_passed(&self, slot: usize) -> bool {
        self.0[slot].passing > 0
    }

    /// The entry of a slot is removed. Write the slot, then call
    /// [`forget_path`](Self::forget_path).
    pub(crate) fn vacate(&mut self, slot: usize) {
        self.0[slot].is_live = false;
    }

    /// Lookups of the entry that was in `slot` no longer pass the slots before it. Returns the slots
    /// that need no tombstone any more; write them as empty.
    pub(crate) fn forget_path(&mut self, home: usize, slot: usize) -> Vec<usize> {
        let mut cleared = Vec::new();
        for passed in path(home, slot, self.len()) {
            let state = &mut self.0[passed];
            state.passing -= 1;
            if state.passing == 0 && !state.is_live {
                cleared.push(passed);
            }
        }
        cleared
    }
}

/// The slots that a lookup which begins at `home` passes before it reaches `slot`.
fn path(home: usize, slot: usize, slots: usize) -> impl Iterator<Item = usize> {
    let (first, wrapped) = if home <= slot { (home..slot, 0..0) } else { (home..slots, 0..slot) };
    first.chain(wrapped)
}
