//! A shard as the bench uses it: the store, and the order of its keys where scans need one.
//!
//! The delegated store and the lock-based ones keep their records in this very type, so that a
//! comparison between them compares nothing but how they share it.

use std::collections::BTreeSet;
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::store::{Limits, Response, Store, Verb};

/// The bench stores nothing that expires, so the time does not matter.
const NO_TIME: u64 = 0;

/// One record of a scan: its key and its fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Record {
    /// The key.
    #[serde(with = "serde_bytes")]
    pub key: Vec<u8>,
    /// The fields asked for, one after the other.
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
}

/// The part of a record that an operation is about, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The first byte.
    pub offset: u32,
    /// How many; a part that reaches over the end of a record is cut there.
    pub length: u32,
}

impl Part {
    /// The whole record.
    pub const WHOLE: Self = Self { offset: 0, length: u32::MAX };

    /// This part of `value`.
    pub fn of(self, value: &[u8]) -> &[u8] {
        let start = (self.offset as usize).min(value.len());
        let end = start.saturating_add(self.length as usize).min(value.len());
        &value[start..end]
    }
}

/// Records by key.
#[derive(Debug, Default)]
pub struct Table {
    store: Store,
    order: Option<BTreeSet<Box<[u8]>>>,
}

impl Table {
    /// An empty table without a memory limit; `ordered` where scans will be asked for.
    pub fn new(ordered: bool) -> Self {
        Self { store: Store::new(Limits::default()), order: ordered.then(BTreeSet::new) }
    }

    /// The part of a record, if there is the record.
    pub fn read(&self, key: &[u8], part: Part) -> Option<&[u8]> {
        self.store.peek(key, NO_TIME).map(|item| part.of(item.data()))
    }

    /// Overwrites a record from `offset` on; `false` when there is none or it is too short.
    pub fn update(&mut self, key: &[u8], offset: u32, value: &[u8]) -> bool {
        self.store.write_at(key, offset as usize, value, NO_TIME)
    }

    /// Adds or replaces a record; `false` when the key or the value is too large.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> bool {
        if self.store.store(Verb::Set, key, 0, 0, value, NO_TIME) != Response::Stored {
            return false;
        }
        if let Some(order) = &mut self.order
            && !order.contains(key)
        {
            order.insert(key.into());
        }
        true
    }

    /// Up to `count` keys in their order, from the first one not below `start`. None in a table that
    /// was not made for scans.
    pub fn keys_from<'a>(
        &'a self,
        start: &'a [u8],
        count: usize,
    ) -> impl Iterator<Item = &'a [u8]> + 'a {
        let bounds = (Bound::Included(start), Bound::Unbounded);
        let order = self.order.iter().flat_map(move |order| order.range::<[u8], _>(bounds));
        order.take(count).map(|key| &**key)
    }

    /// Up to `count` records in the order of their keys, from the first key not below `start`.
    pub fn scan(&self, start: &[u8], count: usize, part: Part) -> Vec<Record> {
        self.keys_from(start, count)
            .filter_map(|key| {
                let value = self.read(key, part)?.to_vec();
                Some(Record { key: key.to_vec(), value })
            })
            .collect()
    }

    /// Records in it.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }
}

/// The first `count` records, by key, of the scans of several tables.
pub fn merge_scans(parts: impl IntoIterator<Item = Vec<Record>>, count: usize) -> Vec<Record> {
    let mut records: Vec<Record> = parts.into_iter().flatten().collect();
    records.sort_unstable();
    records.truncate(count);
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(keys: &[&str]) -> Table {
        let mut table = Table::new(true);
        for key in keys {
            assert!(table.insert(key.as_bytes(), b"0123456789"));
        }
        table
    }

    #[test]
    fn reads_and_updates_parts_of_a_record() {
        let mut table = filled(&["k"]);
        let part = Part { offset: 2, length: 3 };
        assert_eq!(table.read(b"k", part), Some(&b"234"[..]));
        assert!(table.update(b"k", 2, b"abc"));
        assert_eq!(table.read(b"k", Part::WHOLE), Some(&b"01abc56789"[..]));
        assert_eq!(table.read(b"k", Part { offset: 8, length: 9 }), Some(&b"89"[..]));
        assert_eq!(table.read(b"k", Part { offset: 80, length: 9 }), Some(&b""[..]));
        assert!(!table.update(b"k", 9, b"xy"), "an update never makes a record longer");
        assert!(!table.update(b"none", 0, b"x"));
        assert_eq!(table.read(b"none", Part::WHOLE), None);
    }

    #[test]
    fn scans_go_in_key_order_from_the_start_key() {
        let table = filled(&["d", "a", "c", "b"]);
        let keys = |records: Vec<Record>| records.into_iter().map(|r| r.key).collect::<Vec<_>>();
        assert_eq!(keys(table.scan(b"b", 2, Part::WHOLE)), [b"b", b"c"]);
        assert_eq!(keys(table.scan(b"bb", 9, Part::WHOLE)), [b"c", b"d"]);
        let other = filled(&["bx", "z"]);
        let parts = [table.scan(b"b", 3, Part::WHOLE), other.scan(b"b", 3, Part::WHOLE)];
        assert_eq!(keys(merge_scans(parts, 3)), [b"b".to_vec(), b"bx".to_vec(), b"c".to_vec()]);
    }

    #[test]
    fn a_record_inserted_twice_is_there_once() {
        let table = filled(&["a", "a"]);
        assert_eq!(table.len(), 1);
        assert_eq!(table.scan(b"", 9, Part::WHOLE).len(), 1);
    }
}
