//! [`MemoryLimit`]: one memory limit for the stores of a host, and `Share`: what one of them has of it.
//!
//! A store borrows from the limit in chunks as it grows, and returns chunks as it shrinks. So it may use
//! what the others leave, wherever keys hash to. A sixteenth of an even share is kept for each store, so
//! that the others cannot take all.
//!
//! ```text
//!   | kept for each store | borrowed, by any of them | free |
//!   '------------------------- limit ----------------------'
//! ```
//!
//! Once nothing is free, a store that grows evicts items of its own. If the items of another one have not
//! been used for longer, `donations` says how much that one evicts instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The part of an even share that is kept for a store: one in so many.
const KEPT_PART: usize = 16;

/// The part of an even share that is borrowed at once: one in so many, up to [`CHUNK_BYTES_MAX`].
const CHUNK_PART: usize = 64;
const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// The part of its memory that a store gives at once: one in so many.
const DONATED_PART: u64 = 8;

/// A memory limit that some stores share; a clone is the same limit.
#[derive(Clone, Debug)]
pub struct MemoryLimit(Arc<Pool>);

#[derive(Debug)]
pub(super) struct Pool {
    bytes: AtomicUsize,
    /// Bytes that all stores together may borrow.
    room: AtomicUsize,
    /// Bytes that they have borrowed.
    borrowed: AtomicUsize,
    stores: usize,
}

impl MemoryLimit {
    /// A limit of `bytes` for `stores` stores (at least one).
    pub fn new(bytes: usize, stores: usize) -> Self {
        let [limit, room, borrowed] = [0; 3].map(AtomicUsize::new);
        let pool = Pool { bytes: limit, room, borrowed, stores: stores.max(1) };
        pool.set_bytes(bytes);
        Self(Arc::new(pool))
    }

    /// The limit, of which a store is to hold a weak reference.
    pub(crate) fn weak(&self) -> WeakLimit {
        WeakLimit(Arc::downgrade(&self.0))
    }
}

/// A limit that ends with its stores.
#[derive(Debug)]
pub(crate) struct WeakLimit(std::sync::Weak<Pool>);

impl WeakLimit {
    pub(crate) fn upgrade(&self) -> Option<MemoryLimit> {
        self.0.upgrade().map(MemoryLimit)
    }
}

impl Pool {
    fn even_share(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) / self.stores
    }

    fn kept(&self) -> usize {
        self.even_share() / KEPT_PART
    }

    fn chunk(&self) -> usize {
        (self.even_share() / CHUNK_PART).min(CHUNK_BYTES_MAX)
    }

    fn set_bytes(&self, bytes: usize) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.room.store(bytes - self.stores * self.kept(), Ordering::Relaxed);
    }

    fn room(&self) -> usize {
        self.room.load(Ordering::Relaxed)
    }
}

/// What a store may use of a limit; returned on drop.
#[derive(Debug)]
pub(super) struct Share {
    pool: Arc<Pool>,
    /// What is kept for the store, since it was last told the limit.
    kept: usize,
    borrowed: usize,
    /// What it borrows at once, at least.
    chunk: usize,
}

impl Share {
    /// What is kept for a new store.
    pub(super) fn of(limit: &MemoryLimit) -> Self {
        let pool = limit.0.clone();
        Self { kept: pool.kept(), borrowed: 0, chunk: pool.chunk(), pool }
    }

    /// The limit that falls to each store if all use as much.
    pub(super) fn even(&self) -> usize {
        self.pool.even_share()
    }

    /// Whether the store may ever use so many bytes.
    pub(super) fn may_reach(&self, bytes: usize) -> bool {
        bytes <= self.pool.room() + self.pool.kept()
    }

    /// Whether `memory` is within the share, for which it borrows more if there is more.
    pub(super) fn covers(&mut self, memory: usize) -> bool {
        let needed = memory.saturating_sub(self.kept + self.borrowed);
        if needed == 0 {
            return true;
        }
        let (room, chunk) = (self.pool.room(), self.chunk);
        let mut more = 0;
        let borrow = |borrowed: usize| {
            let free = room.saturating_sub(borrowed);
            more = needed.max(chunk).min(free);
            (free >= needed).then_some(borrowed + more)
        };
        let order = Ordering::Relaxed;
        let is_there = self.pool.borrowed.fetch_update(order, order, borrow).is_ok();
        self.borrowed += if is_there { more } else { 0 };
        is_there
    }

    /// Covers `memory` even if that exceeds the limit: with an item that is new in a store without others.
    pub(super) fn exceed(&mut self, memory: usize) {
        let more = memory.saturating_sub(self.kept + self.borrowed);
        if more > 0 {
            self.pool.borrowed.fetch_add(more, Ordering::Relaxed);
            self.borrowed += more;
        }
    }

    /// Returns what is not needed for `memory`: all of it if the limit is exceeded, otherwise it keeps a
    /// chunk, and returns no less than another one.
    pub(super) fn settle(&mut self, memory: usize) {
        let unused = (self.kept + self.borrowed).saturating_sub(memory);
        if unused == 0 {
            return;
        }
        let chunk = if self.exceeded() > 0 { 0 } else { self.chunk };
        if unused > 2 * chunk {
            let less = (unused - chunk).min(self.borrowed);
            self.pool.borrowed.fetch_sub(less, Ordering::Relaxed);
            self.borrowed -= less;
        }
    }

    /// Bytes by which the stores together exceed the limit.
    pub(super) fn exceeded(&self) -> usize {
        self.pool.borrowed.load(Ordering::Relaxed).saturating_sub(self.pool.room())
    }

    /// Sets the limit, as all of its stores are told to, to so many bytes for each. The memory that the
    /// store is to shrink to, if it is beyond its part.
    pub(super) fn set_limit(&mut self, each: usize, memory: usize) -> Option<usize> {
        let pool = &self.pool;
        pool.set_bytes(each.saturating_mul(pool.stores));
        // What was kept and is not any more counts as borrowed, until the store has shrunk.
        let kept = pool.kept();
        let more = self.kept.saturating_sub(kept);
        let borrowed = pool.borrowed.fetch_add(more, Ordering::Relaxed) + more;
        self.borrowed += more;
        (self.kept, self.chunk) = (kept, pool.chunk());
        // Each store by the same part. Not all of them may have counted what is not kept any more.
        let borrowed = borrowed + more * (pool.stores - 1);
        let part = pool.room() as f64 / borrowed.max(1) as f64;
        let target = kept + (self.borrowed as f64 * part.min(1.0)) as usize;
        self.settle(memory);
        (memory > target).then_some(target)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool.borrowed.fetch_sub(self.borrowed, Ordering::Relaxed);
    }
}

/// What a store says of its need for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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

/// How many bytes each of the stores that share a limit is to free: as much as others have evicted although
/// their items were in use later, and what exceeds the limit.
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
    let exceeded = stores.iter().map(|store| store.exceeded).min();
    let oldest = (0..stores.len()).max_by_key(|&index| (stores[index].idle, stores[index].bytes));
    if let (Some(exceeded), Some(oldest)) = (exceeded, oldest) {
        donations[oldest] = donations[oldest].max(exceeded);
    }
    donations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_uses_what_others_leave() {
        let limit = MemoryLimit::new(1600, 2);
        let [mut one, mut two] = [(); 2].map(|()| Share::of(&limit));
        assert!(one.covers(1550) && !one.covers(1551), "50 are kept for the other one");
        assert!(one.may_reach(1550) && !one.may_reach(1551));
        assert!(two.covers(50) && !two.covers(51));
        one.settle(1000);
        assert!(two.covers(500));
        // Less than a chunk of 12 is not returned.
        one.settle(995);
        assert!(!two.covers(600));
        drop(one);
        assert!(two.covers(1550));
    }

    #[test]
    fn a_share_that_exceeds_the_limit_is_returned_first() {
        let limit = MemoryLimit::new(1600, 2);
        let [mut one, mut two] = [(); 2].map(|()| Share::of(&limit));
        assert!(one.covers(1550));
        two.exceed(400);
        assert!(two.covers(400) && !two.covers(401));
        one.settle(1540);
        assert!(!one.covers(1541), "the limit is still exceeded");
        one.settle(1200);
        assert!(two.covers(400) && !two.covers(401));
    }

    #[test]
    fn a_lowered_limit_falls_to_all_stores() {
        let limit = MemoryLimit::new(1600, 2);
        let [mut one, mut two] = [(); 2].map(|()| Share::of(&limit));
        assert!(one.covers(1250) && two.covers(350));
        let targets = [one.set_limit(400, 1250), two.set_limit(400, 350)];
        let [Some(first), Some(second)] = targets else { panic!("{targets:?}") };
        assert!((600..=800).contains(&(first + second)) && first > 3 * second, "{targets:?}");
        one.settle(first);
        two.settle(second);
        assert!(!two.covers(800 - first + 10));
        // A larger one is there at once.
        assert_eq!([one.set_limit(800, first), two.set_limit(800, second)], [None, None]);
        assert!(two.covers(1600 - first - 50));
    }

    #[test]
    fn stores_with_older_items_give_what_others_evict() {
        let store = |evicted, idle| Pressure { bytes: 800, evicted, idle, exceeded: 0 };
        assert_eq!(donations(&[store(0, 50), store(0, 7)]), [0, 0]);
        assert_eq!(donations(&[store(0, 50), store(60, 7), store(0, 40)]), [30, 0, 30]);
        assert_eq!(donations(&[store(9, 50), store(60, 7)]), [60, 0]);
        assert_eq!(donations(&[store(0, 50), store(500, 7)]), [100, 0], "a part at a time");
        assert_eq!(donations(&[store(60, 50), store(60, 51), store(60, 49)]), [0, 0, 0]);
        assert_eq!(donations(&[store(60, 50), store(0, 7)]), [0, 0]);
        let exceeded = |idle| Pressure { exceeded: 300, ..store(0, idle) };
        assert_eq!(donations(&[exceeded(3), exceeded(4)]), [0, 300], "whatever its age");
    }
}
