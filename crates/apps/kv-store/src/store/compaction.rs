//! Gives back the memory that removed items have left in the tables.
//!
//! What removed items took counts as free for all stores that share the limit. So their places must not
//! stay with one store, or clients that fill and empty one after the other would take several times the
//! limit. A store moves its items together once it has more free places than items. It has then removed
//! more than half of the most items that it has had since the last time, so that takes constant time per
//! removal.

use crate::store::index::{Store, spread};

/// Free places that a store may have besides as many as items.
const FREE_PLACES: usize = 1024;

impl Store {
    /// Gives back the memory of free places, if there are many. Items may move: returns where the item
    /// at `position` is then, or where a crawl that has come to `position` goes on.
    pub(super) fn compact(&mut self, position: u32) -> u32 {
        if self.items.free() <= self.items.len() + FREE_PLACES {
            return position;
        }
        let moved = self.items.compact();
        for index in self.index.iter_mut() {
            *index = moved[*index as usize];
        }
        let items = &self.items;
        self.index.shrink_to_fit(|&index| spread(items.get(index).hash));
        let follow = |position: u32| moved.get(position as usize).copied().unwrap_or(0);
        self.crawler = follow(self.crawler);
        follow(position)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::{Control, Key, MemoryLimit, MetaStore, Request, Response, Verb};

    const NOW: u64 = 1_700_000_000;

    const ITEMS: u32 = 10_000;

    fn filled(exptime: i32) -> Store {
        let mut store = Store::sharing(&Arc::new(MemoryLimit::new(1 << 30, 1)));
        (0..ITEMS).for_each(|n| set(&mut store, n, exptime, b"x"));
        store
    }

    fn set(store: &mut Store, n: u32, exptime: i32, data: &[u8]) {
        let stored = store.store(Verb::Set, n.to_string().as_bytes(), 0, exptime, data, NOW);
        assert_eq!(stored, Response::Stored);
    }

    fn key(n: u32) -> Key {
        Key::new(n.to_string().as_bytes())
    }

    /// Checks that the tables are small, and that the store has these items.
    fn check(store: &mut Store, left: impl Iterator<Item = u32>) {
        let mut count = 0;
        for n in left {
            assert!(store.peek(n.to_string().as_bytes(), NOW).is_some(), "item {n}");
            count += 1;
        }
        assert_eq!((store.len(), store.memory()), (count, store.memory_recounted()));
        let places = store.items.free() + count;
        assert!(places <= 2 * count + FREE_PLACES, "{places} places of {count} items");
        let bytes = store.index.allocation_size();
        assert!(bytes <= 32 * places + 64, "{bytes} bytes of hash table for {count} items");
    }

    #[test]
    fn deleted_items_leave_no_memory() {
        let mut store = filled(0);
        for n in 0..ITEMS - 5 {
            assert_eq!(store.execute(Request::Delete { key: key(n) }, NOW), Response::Deleted);
        }
        check(&mut store, ITEMS - 5..ITEMS);
    }

    #[test]
    fn items_that_a_read_finds_expired_leave_no_memory() {
        let mut store = filled(10);
        set(&mut store, 7, 0, b"x");
        for n in 0..ITEMS {
            store.execute(Request::Get { key: key(n), max_bytes: 1 }, NOW + 10);
        }
        check(&mut store, 7..8);
    }

    #[test]
    fn a_crawl_goes_on_where_it_was_when_items_move() {
        let mut store = filled(10);
        (0..ITEMS).step_by(100).for_each(|n| set(&mut store, n, 0, b"x"));
        let (before, mut from) = (store.stats().crawler_items_checked, 0);
        loop {
            let crawl = Control::Crawl { from, count: 50 };
            match store.control(crawl, NOW + 10) {
                Response::Crawled { next: Some(next) } => from = next,
                _ => break,
            }
        }
        assert_eq!(store.stats().crawler_items_checked - before, u64::from(ITEMS));
        check(&mut store, (0..ITEMS).step_by(100));
    }

    #[test]
    fn a_write_that_evicts_many_items_finds_its_own() {
        let mut store = filled(0);
        // To what the items take.
        let bytes = store.memory() as u64;
        store.control(Control::MemoryLimit { bytes }, NOW);
        let large = vec![b'x'; 1_000_000];
        let meta = Some(MetaStore::default());
        let (verb, flags, exptime) = (Verb::Set, 0, 0);
        let key = key(ITEMS - 1);
        let write = Request::Store { verb, key, flags, exptime, data: large.clone(), meta };
        let Response::MetaStored { cas } = store.execute(write, NOW) else { panic!() };
        let item = store.peek(b"9999", NOW).unwrap();
        assert_eq!((item.data(), item.cas), (&large[..], cas));
        assert!(store.len() < 2000, "{} items", store.len());
        assert_eq!(store.memory(), store.memory_recounted());
        assert!(store.items.free() <= store.len() + FREE_PLACES);
    }
}
