//! The shape of the table: how many slots it has, and where the search for a name begins.

use primitive::limits::REGISTRY_SLOTS;

use crate::name::Name;
use crate::probing::home_of;
use crate::table::entry::ENTRY_BYTES;

/// Slots of a registry.
pub const SLOTS: usize = REGISTRY_SLOTS;

/// Bytes of a registry.
pub const REGISTRY_BYTES: usize = SLOTS * ENTRY_BYTES;

/// The slot of a table of `slots` slots in which the search for `name` begins. It continues in the
/// next slot, and behind the last one in the first.
///
/// # Panics
/// If there are no slots.
#[inline]
pub fn home_slot(name: &Name, slots: usize) -> usize {
    home_of(name.as_bytes(), slots)
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
