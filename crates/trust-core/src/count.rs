//! Which trusts of a property are alive: a set of ids under symmetric difference (thesis 3.2.6).
//!
//! Every trust has an id of its own. Whoever drops a trust sends one request that *toggles* ids in
//! the property's set: an id that is there is removed, one that is not there is added. When the set
//! is empty, no trust is left. All of it is asynchronous, and no order is needed between requests.
//!
//! The thesis sends one toggle when a trust is cloned and one when it is dropped. That is not
//! enough: if `a` is cloned to `b`, moved to another thread and dropped there, the drop of `a` may
//! arrive before the clone's toggle of `b`; the set is empty, and the property dies under a living
//! trust. So here a trust remembers the ids it was cloned into, and *its own drop* toggles them
//! together with itself:
//!
//! ```text
//!   create a:  {a}      clone a -> b: nothing is sent      drop a: toggle a, b
//! ```
//!
//! Why the set is empty exactly when all trusts are dropped and all drops have arrived: take any
//! living trust and walk to the trust it was cloned from, and so on to the first; among these, take
//! the first whose drop has not been served. Either it is the very first trust, which has been in
//! the set since the property was made, or its parent's drop has put it there; and nothing but its
//! own drop would take it out. Conversely every id but the first is toggled exactly twice.
//!
//! So cloning sends nothing at all. A trust that is cloned very often renames itself now and then:
//! it sends the drop of its old self, with its new self among the children ([`RENAME_AFTER`]).

use std::collections::BTreeSet;

/// Clones of one trust after which it renames itself, so that its memory stays bounded.
pub(crate) const RENAME_AFTER: usize = 64;

/// The ids that have been toggled an odd number of times.
#[derive(Debug, Default)]
pub(crate) struct IdSet(BTreeSet<u64>);

impl IdSet {
    /// The set of a new property, whose only trust is `first`.
    pub(crate) fn new(first: u64) -> Self {
        IdSet(BTreeSet::from([first]))
    }

    /// The symmetric difference with `ids`; true when nothing is left.
    pub(crate) fn toggle(&mut self, ids: impl IntoIterator<Item = u64>) -> bool {
        for id in ids {
            if !self.0.remove(&id) {
                self.0.insert(id);
            }
        }
        self.0.is_empty()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A model of trusts: who is alive, whose children are whose, and the drops still under way.
    #[derive(Default)]
    struct Model {
        alive: Vec<(u64, Vec<u64>)>,
        under_way: Vec<Vec<u64>>,
        next: u64,
    }

    impl Model {
        fn mint(&mut self) -> u64 {
            self.next += 1;
            self.next
        }
        fn drop_one(&mut self, which: usize) {
            let (id, mut ids) = self.alive.remove(which % self.alive.len());
            ids.push(id);
            self.under_way.push(ids);
        }
    }

    proptest! {
        #[test]
        fn a_property_dies_exactly_once_after_its_last_trust(steps in proptest::collection::vec((0u8..4, any::<usize>()), 0..200)) {
            let mut model = Model::default();
            let first = model.mint();
            model.alive.push((first, vec![]));
            let mut set = IdSet::new(first);
            let mut died = 0;
            let mut serve = |model: &mut Model, which: usize| {
                let ids = model.under_way.remove(which % model.under_way.len());
                if set.toggle(ids) {
                    died += 1;
                    assert!(model.alive.is_empty() && model.under_way.is_empty(), "died under a living trust");
                }
            };
            for (what, which) in steps {
                match what {
                    0 | 1 if !model.alive.is_empty() => {
                        let child = model.mint();
                        let parent = which % model.alive.len();
                        model.alive[parent].1.push(child);
                        model.alive.push((child, vec![]));
                        if model.alive[parent].1.len() >= 3 {
                            let new = model.mint();
                            let (old, mut ids) = std::mem::replace(&mut model.alive[parent], (new, vec![]));
                            ids.extend([old, new]);
                            model.under_way.push(ids);
                        }
                    }
                    2 if !model.alive.is_empty() => model.drop_one(which),
                    3 if !model.under_way.is_empty() => serve(&mut model, which),
                    _ => {}
                }
            }
            while !model.alive.is_empty() {
                model.drop_one(0);
            }
            while !model.under_way.is_empty() {
                let last = model.under_way.len() - 1;
                serve(&mut model, last);
            }
            prop_assert_eq!(died, 1);
        }
    }

    #[test]
    fn a_drop_that_overtakes_a_clone_does_not_kill() {
        let mut set = IdSet::new(1);
        assert!(!set.toggle([1, 2]), "1 was cloned into 2, moved, and dropped first");
        assert!(set.toggle([2]));
    }
}
