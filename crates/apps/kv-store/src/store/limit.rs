//! [`MemoryLimit`]: one memory limit for the stores of a host, and `Share`: what one of them has borrowed
//! of it.
//!
//! A store borrows from the limit in chunks as it grows and returns them as it shrinks, so one store can
//! use what the others do not. Once nothing is free, a store that grows evicts items of its own.
//! `donations` says how much stores with older items evict instead, which leaves memory to the others.
//!
//! A store without other items keeps its newest one even if nothing is free. So memory can exceed the limit
//! by one item of each store, until donations have made up for it.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

/// A store borrows at least this part of an even share at a time, up to [`CHUNK_BYTES_MAX`].
const CHUNK_PART: usize = 64;
const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// A store donates at most this part of its memory at a time.
const DONATED_PART: u64 = 8;

/// A memory limit that the stores of a host share.
#[derive(Debug)]
pub struct MemoryLimit {
    bytes: AtomicUsize,
    /// Bytes that the stores have borrowed.
    borrowed: AtomicUsize,
    stores: usize,
}

impl MemoryLimit {
    /// A limit of `bytes` for `stores` stores (at least one).
    pub fn new(bytes: usize, stores: usize) -> Self {
        let (bytes, borrowed) = (AtomicUsize::new(bytes), AtomicUsize::new(0));
        Self { bytes, borrowed, stores: stores.max(1) }
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn borrowed(&self) -> usize {
        self.borrowed.load(Ordering::Relaxed)
    }

    fn chunk(&self) -> usize {
        (self.bytes() / self.stores / CHUNK_PART).min(CHUNK_BYTES_MAX)
    }
}

/// What a store has borrowed of a limit; returned on drop.
#[derive(Debug)]
pub(super) struct Share {
    limit: Arc<MemoryLimit>,
    borrowed: usize,
    /// What it borrows at once, at least.
    chunk: usize,
}

impl Share {
    /// Nothing yet.
    pub(super) fn of(limit: &Arc<MemoryLimit>) -> Self {
        Self { limit: Arc::clone(limit), borrowed: 0, chunk: limit.chunk() }
    }

    /// The part of the limit for each store if all use the same.
    pub(super) fn even_share(&self) -> usize {
        self.limit.bytes() / self.limit.stores
    }

    /// Whether the store may ever use `bytes`.
    pub(super) fn may_reach(&self, bytes: usize) -> bool {
        bytes <= self.limit.bytes()
    }

    /// Borrows what is missing for `memory`; false if not as much is free.
    pub(super) fn try_cover(&mut self, memory: usize) -> bool {
        let needed = memory.saturating_sub(self.borrowed);
        if needed == 0 {
            return true;
        }
        self.chunk = self.limit.chunk();
        let (bytes, mut more) = (self.limit.bytes(), 0);
        let borrow = |borrowed: usize| {
            let free = bytes.saturating_sub(borrowed);
            more = needed.max(self.chunk).min(free);
            (free >= needed).then_some(borrowed + more)
        };
        let order = Ordering::Relaxed;
        let is_free = self.limit.borrowed.fetch_update(order, order, borrow).is_ok();
        if is_free {
            self.borrowed += more;
        }
        is_free
    }

    /// Borrows what is missing for `memory`, also beyond the limit.
    pub(super) fn cover_beyond_limit(&mut self, memory: usize) {
        let more = memory.saturating_sub(self.borrowed);
        if more > 0 {
            self.limit.borrowed.fetch_add(more, Ordering::Relaxed);
            self.borrowed += more;
        }
    }

    /// Returns what is not needed for `memory`, if it is more than two chunks, but for one; all of it if
    /// the limit is exceeded.
    pub(super) fn return_unused(&mut self, memory: usize) {
        let unused = self.borrowed.saturating_sub(memory);
        if unused > 0 {
            let kept = if self.exceeded() > 0 { 0 } else { self.chunk };
            if unused > 2 * kept {
                self.give_back(unused - kept);
            }
        }
    }

    /// Returns all that is not needed for `memory`.
    pub(super) fn return_all_unused(&mut self, memory: usize) {
        self.give_back(self.borrowed.saturating_sub(memory));
    }

    fn give_back(&mut self, bytes: usize) {
        self.limit.borrowed.fetch_sub(bytes, Ordering::Relaxed);
        self.borrowed -= bytes;
    }

    /// Bytes by which the stores together exceed the limit.
    pub(super) fn exceeded(&self) -> usize {
        self.limit.borrowed().saturating_sub(self.limit.bytes())
    }

    /// Sets the limit to `each` bytes per store; every store of the limit gets the same request. Returns
    /// what this one is to shrink to, from `memory`, if the stores together exceed the limit: all of them
    /// by the same part.
    pub(super) fn set_limit(&mut self, each: usize, memory: usize) -> Option<usize> {
        let bytes = each.saturating_mul(self.limit.stores);
        self.limit.bytes.store(bytes, Ordering::Relaxed);
        self.return_unused(memory);
        let borrowed = self.limit.borrowed();
        // As wide as two words: the product is.
        let part = |memory: usize| memory as u128 * bytes as u128 / borrowed as u128;
        (borrowed > bytes).then(|| part(memory) as usize)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back(self.borrowed);
    }
}

/// What a store says of its need for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// Bytes in use.
    pub bytes: u64,
    /// Bytes that it has evicted to make room since it was last asked.
    pub evicted: u64,
    /// Seconds since the last use of the item that it evicts next.
    pub idle: u32,
    /// Bytes by which the stores together exceed the limit; 0 while this one shrinks.
    pub exceeded: u64,
}

/// How many bytes each of the stores that share a limit must free: what stores with more recently used
/// items have evicted, and what exceeds the limit, from those with the oldest items on.
pub(crate) fn donations(stores: &[Pressure]) -> Vec<u64> {
    let evicts = stores.iter().filter(|store| store.evicted > 0);
    let youngest = evicts.map(|store| store.idle).min().unwrap_or(u32::MAX);
    // Times are whole seconds, and those of equal stores differ a little.
    let is_older = |store: &&Pressure| store.idle > youngest.saturating_add(youngest / 8 + 1);
    let others = stores.iter().filter(|store| !is_older(store));
    let evicted: u64 = others.map(|store| store.evicted).sum();
    let donors = stores.iter().filter(is_older).count().max(1) as u64;
    let each = evicted.div_ceil(donors);
    let gives = |store: &Pressure| match is_older(&store) {
        true => each.min(store.bytes / DONATED_PART),
        false => 0,
    };
    let mut donations: Vec<u64> = stores.iter().map(gives).collect();
    // Once all have shrunk to a lowered limit.
    let exceeded = stores.iter().map(|store| store.exceeded).min().unwrap_or(0);
    let mut left = exceeded.saturating_sub(donations.iter().sum());
    let mut oldest_first: Vec<usize> = (0..stores.len()).collect();
    oldest_first.sort_by_key(|&index| Reverse((stores[index].idle, stores[index].bytes)));
    for index in oldest_first {
        let more = left.min(stores[index].bytes - donations[index]);
        donations[index] += more;
        left -= more;
    }
    donations
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shares<const N: usize>(bytes: usize) -> (Arc<MemoryLimit>, [Share; N]) {
        let limit = Arc::new(MemoryLimit::new(bytes, N));
        (limit.clone(), std::array::from_fn(|_| Share::of(&limit)))
    }

    #[test]
    fn a_share_uses_what_others_leave() {
        let (_, [mut one, mut two]) = shares(1600);
        assert!(one.try_cover(1600) && !one.try_cover(1601));
        assert!(one.may_reach(1600) && !one.may_reach(1601));
        assert!(!two.try_cover(1));
        one.return_unused(1000);
        assert!(two.try_cover(500));
        // Less than two chunks of 12 are not returned, unless all is.
        one.return_unused(990);
        assert!(!two.try_cover(600));
        one.return_all_unused(990);
        assert!(two.try_cover(610) && !two.try_cover(611));
        drop(one);
        assert!(two.try_cover(1600));
    }

    #[test]
    fn what_exceeds_the_limit_is_returned_first() {
        let (_, [mut one, mut two]) = shares(1600);
        assert!(one.try_cover(1600));
        two.cover_beyond_limit(400);
        assert_eq!(two.exceeded(), 400);
        assert!(two.try_cover(400) && !two.try_cover(401));
        one.return_unused(1590);
        assert_eq!(two.exceeded(), 390);
        assert!(!one.try_cover(1591), "the limit is still exceeded");
        one.return_unused(1200);
        assert!(!two.try_cover(401) && two.exceeded() == 0);
    }

    #[test]
    fn a_lowered_limit_falls_to_all_stores() {
        let (_, [mut one, mut two]) = shares(1600);
        assert!(one.try_cover(1200) && two.try_cover(400));
        assert_eq!([one.set_limit(400, 1200), two.set_limit(400, 400)], [Some(600), Some(200)]);
        one.return_unused(600);
        two.return_unused(200);
        assert!(!two.try_cover(201));
        // A larger one is there at once.
        assert_eq!([one.set_limit(800, 600), two.set_limit(800, 200)], [None, None]);
        assert!(two.try_cover(1000));
    }

    #[test]
    fn a_lowered_limit_evicts_nothing_that_fits() {
        let (_, [mut one, mut two, mut three, mut four]) = shares(1 << 30);
        let used = [40, 1, 1, 1].map(|mib| mib << 20);
        let mut all = [&mut one, &mut two, &mut three, &mut four];
        for (share, memory) in all.iter_mut().zip(used) {
            assert!(share.try_cover(memory));
        }
        for (share, memory) in all.iter_mut().zip(used) {
            assert_eq!(share.set_limit(16 << 20, memory), None);
        }
    }

    #[test]
    fn a_limit_that_threads_change_at_once_is_one_of_theirs() {
        let (limit, [one, two]) = shares(1 << 30);
        let change = |mut share: Share, each: usize| {
            move || {
                for _ in 0..1000 {
                    share.set_limit(each, 0);
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(change(one, 4 << 20));
            scope.spawn(change(two, 1 << 40));
        });
        assert!([8 << 20, 2 << 40].contains(&limit.bytes()));
        assert_eq!(limit.borrowed(), 0);
    }

    #[test]
    fn stores_with_older_items_donate_what_others_evict() {
        let store = |evicted, idle| Pressure { bytes: 800, evicted, idle, exceeded: 0 };
        assert_eq!(donations(&[store(0, 50), store(0, 7)]), [0, 0]);
        assert_eq!(donations(&[store(0, 50), store(60, 7), store(0, 40)]), [30, 0, 30]);
        assert_eq!(donations(&[store(9, 50), store(60, 7)]), [60, 0]);
        assert_eq!(donations(&[store(0, 50), store(500, 7)]), [100, 0], "a part at a time");
        assert_eq!(donations(&[store(60, 50), store(60, 51), store(60, 49)]), [0, 0, 0]);
        assert_eq!(donations(&[store(60, 50), store(0, 7)]), [0, 0]);
    }

    #[test]
    fn what_exceeds_the_limit_is_donated_by_the_stores_with_the_oldest_items() {
        let store = |bytes, idle| Pressure { bytes, evicted: 0, idle, exceeded: 150 };
        assert_eq!(donations(&[store(800, 3), store(800, 4), store(800, 2)]), [0, 150, 0]);
        assert_eq!(donations(&[store(800, 3), store(0, 4), store(100, 5)]), [50, 0, 100]);
        let shrinks = Pressure { exceeded: 0, ..store(800, 9) };
        assert_eq!(donations(&[shrinks, store(800, 4)]), [0, 0]);
    }

    proptest! {
        /// Whatever stores do, the limit knows what they have borrowed, and they have borrowed what they use.
        #[test]
        fn what_stores_use_is_counted(
            steps in proptest::collection::vec((0usize..3, 0usize..5, 0usize..2000), 1..100),
        ) {
            let (limit, mut shares) = shares::<3>(1600);
            let mut used = [0; 3];
            for (index, step, amount) in steps {
                let (share, memory) = (&mut shares[index], &mut used[index]);
                match step {
                    0 => {
                        let target = (*memory + amount).min(limit.bytes());
                        if share.try_cover(target) {
                            *memory = (*memory).max(target);
                        }
                    }
                    1 => {
                        *memory += amount;
                        share.cover_beyond_limit(*memory);
                    }
                    2 => {
                        *memory = memory.saturating_sub(amount);
                        share.return_unused(*memory);
                    }
                    3 => share.return_all_unused(*memory),
                    _ => {
                        let target = share.set_limit(amount, *memory);
                        prop_assert!(target.is_none_or(|target| target <= *memory));
                    }
                }
                let borrowed: usize = shares.iter().map(|share| share.borrowed).sum();
                prop_assert_eq!(limit.borrowed(), borrowed);
                prop_assert!(shares.iter().zip(used).all(|(share, used)| used <= share.borrowed));
                let exceeded = shares[0].exceeded();
                prop_assert!(used.iter().sum::<usize>() <= limit.bytes() + exceeded);
            }
        }
    }
}
