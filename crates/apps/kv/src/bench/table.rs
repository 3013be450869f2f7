//! The shard type of the bench: a [`Store`] without limits and, for workloads that scan, an ordered
//! index of its keys.
//!
//! The delegated store and the lock-based ones keep their records in this type, so a comparison
//! between them measures only how they share it.

use std::collections::BTreeSet;
use std::ops::Bound;

use gossamer::Step;
use serde::{Deserialize, Serialize};

use crate::store::{KeyHasher, Response, Store, Verb};

/// The bench stores nothing that expires, so it needs no clock.
const NO_TIME: u64 = 0;

/// A key and its hash, so that a read or an update hashes it once. All tables use the same hash, in every
/// process.
#[derive(Clone, Copy, Debug)]
pub struct Hashed<'a> {
    /// The key.
    pub key: &'a [u8],
    /// What a table finds it by.
    pub hash: u32,
}

/// Hashes keys for tables.
fn hasher() -> KeyHasher {
    KeyHasher::seeded(0)
}

impl<'a> Hashed<'a> {
    /// A key, and which of `tables` tables it belongs to.
    #[inline]
    pub fn with_table(key: &'a [u8], tables: usize) -> (Self, usize) {
        let hash = hasher().hash(key);
        // The upper half, which tables do not use. Multiply and shift instead of a remainder.
        let table = (((hash >> 32) * tables as u64) >> 32) as usize;
        (Self { key, hash: hash as u32 }, table)
    }
}

impl<'a> From<&'a [u8]> for Hashed<'a> {
    fn from(key: &'a [u8]) -> Self {
        Self::with_table(key, 1).0
    }
}

/// One record of a scan: its key and its fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Record {
    /// The key.
    #[serde(with = "serde_bytes")]
    pub key: Vec<u8>,
    /// The requested fields, concatenated.
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
}

/// The bytes of a record that an operation reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteRange {
    /// The first byte.
    pub offset: u32,
    /// The number of bytes; a range beyond the end of a record is truncated.
    pub length: u32,
}

impl ByteRange {
    /// The whole record.
    pub const ALL: Self = Self { offset: 0, length: u32::MAX };

    /// The bytes of `value` in this range.
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
    /// An empty table without a memory limit, with an ordered index for scans if `ordered`.
    pub fn new(ordered: bool) -> Self {
        Self { store: Store::hashing_by(hasher()), order: ordered.then(BTreeSet::new) }
    }

    /// The bytes of a record in `part`, or `None` if the record does not exist.
    pub fn read(&self, Hashed { key, hash }: Hashed<'_>, part: ByteRange) -> Option<&[u8]> {
        self.store.peek_hashed(hash, key, NO_TIME).map(|item| part.of(item.data()))
    }

    /// Asks the processor for the memory that an operation on a key with this hash will touch.
    pub fn prefetch(&self, hash: u32, step: Step) {
        self.store.prefetch(hash, step);
    }

    /// Overwrites a record from `offset` on; `false` if it does not exist or is too short.
    pub fn update(&mut self, key: Hashed<'_>, offset: u32, value: &[u8]) -> bool {
        self.store.write_at((key.hash, key.key), offset as usize, value, NO_TIME)
    }

    /// Adds or replaces a record; `false` if the key or the value is too large.
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

    /// Up to `count` keys in order, from the first key at or after `start`. Empty if the table is
    /// not ordered.
    pub fn keys_from<'a>(
        &'a self,
        start: &'a [u8],
        count: usize,
    ) -> impl Iterator<Item = &'a [u8]> + 'a {
        let bounds = (Bound::Included(start), Bound::Unbounded);
        let order = self.order.iter().flat_map(move |order| order.range::<[u8], _>(bounds));
        order.take(count).map(|key| &**key)
    }

    /// Up to `count` records in key order, from the first key at or after `start`.
    pub fn scan(&self, start: &[u8], count: usize, part: ByteRange) -> Vec<Record> {
        self.keys_from(start, count)
            .filter_map(|key| {
                let value = self.read(key.into(), part)?.to_vec();
                Some(Record { key: key.to_vec(), value })
            })
            .collect()
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }
}

/// One table's part of a scan over several tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanRequest {
    /// The index of the table.
    pub table: usize,
    /// The scan starts at the first key at or after this one.
    pub start: Vec<u8>,
    /// The maximum number of records.
    pub count: usize,
}

/// The first `count` records, in key order, at or after `start`, from `tables` tables over which
/// keys are spread evenly. `fetch` takes several requests at a time and returns the responses in
/// order.
///
/// Each table returns little more than its share, since records are large and those beyond `count`
/// are discarded; only tables that may hold more of the result are asked again.
pub fn scan_shards(
    tables: usize,
    start: &[u8],
    count: usize,
    mut fetch: impl FnMut(&[ScanRequest]) -> Vec<Vec<Record>>,
) -> Vec<Record> {
    let share = share_of(count, tables);
    let request = |table| ScanRequest { table, start: start.to_vec(), count: share };
    let mut requests: Vec<ScanRequest> = (0..tables).map(request).collect();
    let mut records = Vec::new();
    while !requests.is_empty() {
        let parts = fetch(&requests);
        requests = requests
            .iter()
            .zip(&parts)
            .filter(|(request, part)| part.len() >= request.count)
            .filter_map(|(request, part)| Some((request.table, after(&part.last()?.key))))
            .map(|(table, start)| ScanRequest { table, start, count: 0 })
            .collect();
        records.extend(parts.into_iter().flatten());
        records.sort_unstable();
        records.truncate(count);
        if records.len() == count {
            requests.retain(|request| records.last().is_some_and(|last| request.start <= last.key));
        }
        let more = share_of(count - records.len(), requests.len()).max(share / 4);
        requests.iter_mut().for_each(|request| request.count = more);
    }
    records
}

/// How many of the next `count` records to request from one of `tables` tables: the mean plus two
/// standard deviations.
fn share_of(count: usize, tables: usize) -> usize {
    let mean = count.div_ceil(tables.max(1));
    (mean + 2 * mean.isqrt() + 1).min(count.max(1))
}

/// The smallest possible key after `key`.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
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

    fn read<'a>(table: &'a Table, key: &str, part: ByteRange) -> Option<&'a [u8]> {
        table.read(key.as_bytes().into(), part)
    }

    #[test]
    fn a_wrong_hash_finds_no_other_record() {
        let mut table = filled(&["k", "j"]);
        let wrong = Hashed { hash: Hashed::from(&b"j"[..]).hash, key: b"k" };
        assert_eq!(table.read(wrong, ByteRange::ALL), None);
        assert!(!table.update(wrong, 0, b"x"));
        assert_eq!(read(&table, "j", ByteRange::ALL), Some(&b"0123456789"[..]));
    }

    #[test]
    fn reads_and_updates_parts_of_a_record() {
        let mut table = filled(&["k"]);
        let part = ByteRange { offset: 2, length: 3 };
        assert_eq!(read(&table, "k", part), Some(&b"234"[..]));
        assert!(table.update(b"k"[..].into(), 2, b"abc"));
        assert_eq!(read(&table, "k", ByteRange::ALL), Some(&b"01abc56789"[..]));
        assert_eq!(read(&table, "k", ByteRange { offset: 8, length: 9 }), Some(&b"89"[..]));
        assert_eq!(read(&table, "k", ByteRange { offset: 80, length: 9 }), Some(&b""[..]));
        assert!(!table.update(b"k"[..].into(), 9, b"xy"), "an update never makes a record longer");
        assert!(!table.update(b"none"[..].into(), 0, b"x"));
        assert_eq!(read(&table, "none", ByteRange::ALL), None);
    }

    #[test]
    fn scans_go_in_key_order_from_the_start_key() {
        let table = filled(&["d", "a", "c", "b"]);
        let keys = |records: Vec<Record>| records.into_iter().map(|r| r.key).collect::<Vec<_>>();
        assert_eq!(keys(table.scan(b"b", 2, ByteRange::ALL)), [b"b", b"c"]);
        assert_eq!(keys(table.scan(b"bb", 9, ByteRange::ALL)), [b"c", b"d"]);
    }

    /// Scans tables with these keys; also returns the number of records in each response.
    fn scan(tables: &[Table], start: &str, count: usize) -> (Vec<Record>, Vec<usize>) {
        let mut fetched = Vec::new();
        let records = scan_shards(tables.len(), start.as_bytes(), count, |requests| {
            let fetch = |request: &ScanRequest| {
                tables[request.table].scan(&request.start, request.count, ByteRange::ALL)
            };
            let parts: Vec<_> = requests.iter().map(fetch).collect();
            fetched.extend(parts.iter().map(Vec::len));
            parts
        });
        (records, fetched)
    }

    proptest::proptest! {
        #[test]
        fn scans_over_tables_match_a_scan_of_one_table(
            places in proptest::collection::vec(0u8.., 0..256),
            spread in 1usize..5,
            first: u8,
            count in 0usize..300,
        ) {
            let names: Vec<_> = (0..places.len()).map(|n| format!("{:03}", n * 7 % 256)).collect();
            let mut tables: Vec<_> = (0..spread).map(|_| Table::new(true)).collect();
            for (name, place) in names.iter().zip(&places) {
                // Squared, so that tables are of unequal size.
                let place = (usize::from(*place) * usize::from(*place) * spread) >> 16;
                assert!(tables[place].insert(name.as_bytes(), b"v"));
            }
            let start = format!("{first:03}");
            let (records, _) = scan(&tables, &start, count);
            let mut expected: Vec<_> = names.iter().filter(|name| **name >= start).collect();
            expected.sort_unstable();
            expected.truncate(count);
            let expected: Vec<_> = expected.into_iter().map(String::as_bytes).collect();
            let found: Vec<_> = records.iter().map(|r| &r.key[..]).collect();
            proptest::prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn scans_over_tables_fetch_little_more_than_requested() {
        let mut tables = [Table::new(true), Table::new(true)];
        for number in 0..1000 {
            let key = format!("{number:04}");
            assert!(tables[number % 2].insert(key.as_bytes(), b"v"));
        }
        let (records, fetched) = scan(&tables, "0500", 100);
        assert_eq!(records.len(), 100);
        assert_eq!(fetched, [65, 65], "in one go, and far from 100 each");
    }

    #[test]
    fn a_record_inserted_twice_exists_once() {
        let table = filled(&["a", "a"]);
        assert_eq!(table.len(), 1);
        assert_eq!(table.scan(b"", 9, ByteRange::ALL).len(), 1);
    }
}
