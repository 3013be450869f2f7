//! [`Store`]: lookup, memory accounting, dead items.

use std::sync::Arc;

use hashbrown::HashTable;
use trust_core::Step;

use crate::store::eviction::LruSettings;
use crate::store::item::{Item, Seconds};
use crate::store::key::KeyHasher;
use crate::store::limit::{MemoryLimit, Share};
use crate::store::lru::{Lru, SEGMENTS};
use crate::store::prefixes::Prefixes;
use crate::store::reports::Settings;
use crate::store::sizes::Sizes;
use crate::store::stats::Stats;

const _: () = assert!(
    std::mem::size_of::<crate::store::lru::Node<Item>>() == 64,
    "an item and its LRU links must share one cache line"
);

/// Items keep 32 bits of their hash. The table uses the low bits for buckets and the high bits for
/// tags, so the hash is spread over 64 bits.
pub(super) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// One shard: items by key.
///
/// The table holds indices of the items, which have their keys. A store has a [`KeyHasher`] of its own,
/// whose seed makes the order of keys unpredictable for clients, unless it is given one that its callers
/// have as well. The hash that picks the shard of a key must differ from it, or each shard would use
/// only a part of its table; a seed of its own also ensures that.
#[derive(Debug)]
pub struct Store {
    pub(super) items: Lru<Item>,
    pub(super) index: HashTable<u32>,
    hasher: KeyHasher,
    /// What it may use of its memory limit, if it has one.
    pub(super) share: Option<Share>,
    pub(super) lru: LruSettings,
    pub(super) settings: Settings,
    /// Whether a crawl of all shards runs; known to the first one.
    pub(super) is_crawled: bool,
    /// Where the next insertion goes on to look for dead items.
    pub(super) crawler: u32,
    pub(super) memory: usize,
    /// The memory to shrink to, a few items at a time: since the limit was lowered, or for another store.
    pub(super) shrinks_to: Option<usize>,
    /// Bytes evicted to make room, for [`Pressure`](crate::store::Pressure).
    pub(super) evicted_bytes: u64,
    /// The memory of each segment's items; not counted without a memory limit.
    pub(super) segment_bytes: [usize; SEGMENTS],
    /// Seconds for which the item that was evicted last had not been used.
    pub(super) evicted_idle: u32,
    /// Items evicted that would have expired.
    pub(super) evicted_with_deadline: u64,
    /// Counters by prefix of the key.
    pub(super) prefixes: Prefixes,
    /// Reads that found an item, by segment.
    pub(super) segment_hits: [u64; SEGMENTS],
    /// Items by size, once `stats sizes_enable` has asked for it.
    pub(super) sizes: Option<Box<Sizes>>,
    last_cas: u64,
    /// Number of flushes; items of an older generation are dead.
    generation: u32,
    /// The time of a delayed flush.
    pub(super) flush_at: Option<Seconds>,
    pub(super) stats: Stats,
}

impl Default for Store {
    fn default() -> Self {
        Self::hashing_by(KeyHasher::random())
    }
}

impl Store {
    /// An empty store that shares a memory limit, for items with their keys and data, with others.
    pub fn sharing(limit: &Arc<MemoryLimit>) -> Self {
        Self { share: Some(Share::of(limit)), ..Self::default() }
    }

    /// An empty store without a memory limit, which evicts nothing, whose callers may hash keys, too, by
    /// `hasher`.
    ///
    /// A key that comes with another hash is not found; nothing else depends on it.
    pub fn hashing_by(hasher: KeyHasher) -> Self {
        Self {
            items: Lru::new(),
            index: HashTable::new(),
            hasher,
            share: None,
            lru: LruSettings::default(),
            settings: Settings::default(),
            is_crawled: false,
            crawler: 0,
            memory: 0,
            shrinks_to: None,
            evicted_bytes: 0,
            segment_bytes: [0; SEGMENTS],
            evicted_idle: 0,
            evicted_with_deadline: 0,
            prefixes: Prefixes::default(),
            segment_hits: [0; SEGMENTS],
            sizes: None,
            last_cas: 0,
            generation: 0,
            flush_at: None,
            stats: Stats::default(),
        }
    }

    /// The number of items, including dead items that were not removed yet.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        Stats {
            bytes: self.memory as u64,
            curr_items: self.items.len() as u64,
            limit_maxbytes: self.share.as_ref().map_or(0, Share::even_share) as u64,
            lru_crawler_running: self.is_crawled.into(),
            hash_bytes: self.index.allocation_size() as u64,
            ..self.stats
        }
    }

    /// Reads an item without counting the access or changing the order of use. Does not remove dead
    /// items.
    pub fn peek(&self, key: &[u8], now: Seconds) -> Option<&Item> {
        self.peek_hashed(self.hash(key), key, now)
    }

    /// As [`peek`](Self::peek), of a key with this [hash](Self::hash).
    #[inline]
    pub fn peek_hashed(&self, hash: u32, key: &[u8], now: Seconds) -> Option<&Item> {
        let item = self.items.get(self.find(hash, key)?);
        (!self.is_dead(item, now)).then_some(item)
    }

    /// Asks the processor for the memory that an operation on a key with this hash will touch: in the
    /// first step for the item, in the second for its key and data.
    #[inline]
    pub fn prefetch(&self, hash: u32, step: Step) {
        match step {
            // The first with the same tag, nearly always the right one: to compare its hash would wait
            // for it.
            Step::First => {
                if let Some(&index) = self.index.find(spread(hash), |_| true) {
                    self.items.prefetch(index);
                }
            }
            Step::Second => {
                let same = |&index: &u32| self.items.get(index).hash == hash;
                if let Some(&index) = self.index.find(spread(hash), same) {
                    self.items.get(index).prefetch();
                }
            }
        }
    }

    /// Overwrites part of an item's data in place, from `offset` on; `false` if the item does not
    /// exist or is too short. The length does not change. The key comes with its hash.
    #[inline]
    pub fn write_at(
        &mut self,
        (hash, key): (u32, &[u8]),
        offset: usize,
        part: &[u8],
        now: Seconds,
    ) -> bool {
        let Some(index) = self.live(hash, key, now) else { return false };
        let cas = self.next_cas();
        let item = self.items.get_mut(index);
        let Some(end) = offset.checked_add(part.len()) else { return false };
        let Some(target) = item.data_mut().get_mut(offset..end) else { return false };
        target.copy_from_slice(part);
        item.cas = cas;
        self.mark_changed(index, now);
        true
    }

    /// What a key is found by: the lower half of its hash.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u32 {
        self.hasher.hash(key) as u32
    }

    pub(super) fn find(&self, hash: u32, key: &[u8]) -> Option<u32> {
        let same = |&index: &u32| {
            let item = self.items.get(index);
            item.hash == hash && item.key() == key
        };
        self.index.find(spread(hash), same).copied()
    }

    pub(super) fn is_dead(&self, item: &Item, now: Seconds) -> bool {
        let flush_due = self.flush_at.is_some_and(|at| at <= now);
        flush_due || item.is_flushed(self.generation) || item.is_expired(now)
    }

    /// The live item of a key; removes a dead one.
    pub(super) fn live(&mut self, hash: u32, key: &[u8], now: Seconds) -> Option<u32> {
        let index = self.find(hash, key)?;
        if self.is_dead(self.items.get(index), now) {
            self.remove(index);
            return None;
        }
        Some(index)
    }

    /// As [`live`](Self::live), for a read: a dead item counts as expired or flushed.
    pub(super) fn live_for_read(&mut self, hash: u32, key: &[u8], now: Seconds) -> Option<u32> {
        let index = self.find(hash, key)?;
        let item = self.items.get(index);
        if !self.is_dead(item, now) {
            return Some(index);
        }
        match item.is_expired(now) {
            true => self.stats.get_expired += 1,
            false => self.stats.get_flushed += 1,
        }
        self.remove(index);
        None
    }

    /// Performs a delayed flush that is due. Every operation that changes items calls this first.
    pub(super) fn apply_due_flush(&mut self, now: Seconds) {
        if self.flush_at.is_some_and(|at| at <= now) {
            self.flush();
        }
    }

    /// Makes all items dead in constant time. Each is removed when its key is accessed or its
    /// memory is needed.
    pub(super) fn flush(&mut self) {
        self.flush_at = None;
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 {
            // After 2^32 flushes generations repeat: remove all items.
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.index.clear();
        self.items = Lru::new();
        (self.memory, self.shrinks_to) = (0, None);
        self.return_unused_memory();
        self.segment_bytes = [0; SEGMENTS];
        self.sizes = self.sizes.take().map(|_| Box::default());
    }

    pub(super) fn next_cas(&mut self) -> u64 {
        self.last_cas += 1;
        self.last_cas
    }

    /// Whether an item with `content` bytes of key and data fits into the store if that is empty and others
    /// leave it their memory.
    pub(super) fn fits_limit(&self, content: usize) -> bool {
        let memory = Item::memory_for(content);
        self.share.as_ref().is_none_or(|share| share.may_reach(memory))
    }

    /// Adds an item whose key is not in the store, and evicts others if needed; see
    /// [`Store::fits_limit`]. Returns its index.
    pub(super) fn insert(&mut self, mut item: Item, now: Seconds) -> u32 {
        // Before the item is there, which may have expired already.
        self.crawl_a_little(now);
        item.generation = self.generation;
        item.set_used(now);
        let hash = item.hash;
        let segment = self.first_segment(&item, now);
        self.count_in(&item, segment as usize);
        let index = self.items.insert(item, segment);
        let items = &self.items;
        self.index.insert_unique(spread(hash), index, |&index| spread(items.get(index).hash));
        self.make_room(index, now)
    }

    /// Applies `change` to an item, which is as a new one then, and accounts for its change of size.
    /// Returns where it is then.
    pub(super) fn replace(
        &mut self,
        index: u32,
        now: Seconds,
        change: impl FnOnce(&mut Item),
    ) -> u32 {
        self.resize(index, change);
        self.items.get_mut(index).set_used(now);
        if self.share.is_some() {
            let (item, from) = (self.items.get(index), self.items.segment(index));
            let to = self.first_segment(item, now);
            let bytes = item.memory();
            self.segment_bytes[from as usize] -= bytes;
            self.segment_bytes[to as usize] += bytes;
            self.items.place(index, to);
        }
        self.make_room(index, now)
    }

    /// Applies `change` to an item and accounts for its change of size.
    fn resize(&mut self, index: u32, change: impl FnOnce(&mut Item)) {
        let (generation, segment) = (self.generation, self.items.segment(index) as usize);
        let item = self.items.get_mut(index);
        let before = item.memory();
        change(item);
        item.generation = generation;
        let after = item.memory();
        self.memory = self.memory - before + after;
        if self.share.is_some() {
            self.segment_bytes[segment] = self.segment_bytes[segment] - before + after;
        }
        if let Some(sizes) = &mut self.sizes {
            sizes.remove(before);
            sizes.add(after);
        }
    }

    fn count_in(&mut self, item: &Item, segment: usize) {
        self.memory += item.memory();
        if self.share.is_some() {
            self.segment_bytes[segment] += item.memory();
        }
        if let Some(sizes) = &mut self.sizes {
            sizes.add(item.memory());
        }
    }

    /// Removes an item. Others may move.
    pub(super) fn remove(&mut self, index: u32) {
        self.take_out(index);
        self.compact(0);
    }

    /// Removes an item, for a caller that has the index of another; it calls [`Store::compact`] later.
    pub(super) fn take_out(&mut self, index: u32) {
        let segment = self.items.segment(index) as usize;
        let item = self.items.remove(index);
        self.memory -= item.memory();
        if self.share.is_some() {
            self.segment_bytes[segment] -= item.memory();
        }
        if let Some(sizes) = &mut self.sizes {
            sizes.remove(item.memory());
        }
        if let Ok(entry) = self.index.find_entry(spread(item.hash), |&other| other == index) {
            entry.remove();
        }
        self.return_unused_memory();
    }

    /// Leaves memory that is not needed any more to the stores that share the limit.
    fn return_unused_memory(&mut self) {
        if let Some(share) = &mut self.share {
            share.return_unused(self.memory);
        }
    }
}

#[cfg(test)]
impl Store {
    /// The memory of all items, recounted; also checks that every item is found by its key.
    pub(super) fn memory_recounted(&self) -> usize {
        assert_eq!(self.items.len(), self.index.len());
        let sum = self.index.iter().map(|&index| {
            let item = self.items.get(index);
            assert_eq!(self.find(self.hash(item.key()), item.key()), Some(index));
            item.memory()
        });
        sum.sum()
    }
}
