//! The shape of the table: how many slots it has, and where the search for a name begins.

use std::hash::{BuildHasher, Hasher};

use primitive::limits::REGISTRY_SLOTS;

use crate::name::Name;
use crate::table::entry::ENTRY_BYTES;

/// Slots of a registry.
pub const SLOTS: usize = REGISTRY_SLOTS;

/// Bytes of a registry.
pub const REGISTRY_BYTES: usize = SLOTS * ENTRY_BYTES;

/// The same in every process of a build. Seed and constants are in the source, nothing is drawn when
/// a process starts, and only the name's bytes are hashed. How foldhash reads them depends on the
/// byte order of the processor, which is the same for all processes that run the same machine code.
const HASHER: foldhash::fast::FixedState =
    foldhash::fast::FixedState::with_seed(0x7365_676d_656e_7473);

/// The slot of a table of `slots` slots in which the search for `name` begins. It continues in the
/// next slot, and behind the last one in the first.
///
/// # Panics
/// If there are no slots.
#[inline]
pub fn home_slot(name: &Name, slots: usize) -> usize {
    home_of(name.as_bytes(), slots)
}

/// As [`home_slot`], of any key's bytes.
#[inline]
pub(crate) fn home_of(key: &[u8], slots: usize) -> usize {
    assert!(slots > 0, "a table without slots");
    // Not `hash_one`: a slice also hashes its length, in a way that the standard library may change.
    let mut hasher = HASHER.build_hasher();
    hasher.write(key);
    // Multiply and shift instead of a remainder: the upper half of hash * slots.
    ((u128::from(hasher.finish()) * slots as u128) >> 64) as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A program finds the names of another one of the rack only if both begin at the same slot. If
    /// a new release of foldhash changes these, programs built before and after do not.
    #[test]
    #[cfg(target_endian = "little")]
    fn the_home_slots_are_those_of_earlier_builds() {
        let long = "n".repeat(Name::MAX_LEN);
        let slots = ["a", "orders", "prices/eur-usd", &long]
            .map(|name| home_slot(&Name::new(name).expect("a name"), SLOTS));
        assert_eq!(slots, [2018, 3505, 2654, 2292]);
    }

    #[test]
    fn names_that_differ_little_are_spread() {
        // 4096 names thrown at random into 4096 slots leave 1507 of them empty, give or take 30.
        let mut is_used = vec![false; SLOTS];
        (0..SLOTS).for_each(|number| {
            let name = Name::new(&format!("segment-{number}")).expect("a name");
            is_used[home_slot(&name, SLOTS)] = true;
        });
        let used = is_used.iter().filter(|used| **used).count();
        assert!((2400..2800).contains(&used), "{used} slots used");
    }
}
