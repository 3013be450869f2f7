//! [`Prefixes`]: counters by prefix of the key, for memcached's `stats detail`.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde::{Deserialize, Serialize};

/// What ends a prefix.
const DELIMITER: u8 = b':';

/// Prefixes that are counted, at most; further ones are not, since clients choose them.
const PREFIXES_MAX: usize = 4096;

/// The counters of one prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixStats {
    /// Reads.
    pub gets: u64,
    /// Reads that found an item.
    pub hits: u64,
    /// Writes.
    pub sets: u64,
    /// Deletes.
    pub deletes: u64,
}

impl PrefixStats {
    /// Adds the counters of another shard.
    pub fn add(&mut self, other: &Self) {
        self.gets += other.gets;
        self.hits += other.hits;
        self.sets += other.sets;
        self.deletes += other.deletes;
    }
}

/// Counters by prefix.
#[derive(Debug, Default)]
pub struct Prefixes {
    /// Whether keys are counted, with `stats detail on`.
    pub counts: bool,
    counters: BTreeMap<Vec<u8>, PrefixStats>,
}

impl Prefixes {
    /// Changes the counters of a key's prefix, which ends before the first colon. A key without a
    /// colon has none. Does nothing unless keys are counted.
    pub fn count(&mut self, key: &[u8], change: impl FnOnce(&mut PrefixStats)) {
        if !self.counts {
            return;
        }
        let Some(end) = key.iter().position(|&byte| byte == DELIMITER) else { return };
        let prefix = &key[..end];
        if !self.counters.contains_key(prefix) && self.counters.len() < PREFIXES_MAX {
            self.counters.insert(prefix.to_vec(), PrefixStats::default());
        }
        if let Some(counters) = self.counters.get_mut(prefix) {
            change(counters);
        }
    }

    /// Forgets all counters.
    pub fn reset(&mut self) {
        self.counters.clear();
    }

    /// The first `count` prefixes that are not less than `from`, in order, with their counters.
    pub fn from(&self, from: &[u8], count: usize) -> Vec<(Vec<u8>, PrefixStats)> {
        let range = self.counters.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        range.take(count).map(|(prefix, counters)| (prefix.clone(), *counters)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_at_most_so_many_prefixes() {
        let mut prefixes = Prefixes { counts: true, ..Prefixes::default() };
        for number in 0..PREFIXES_MAX + 10 {
            prefixes.count(format!("{number}:k").as_bytes(), |counters| counters.gets += 1);
        }
        prefixes.count(b"none", |_| panic!("a key without a prefix"));
        assert_eq!(prefixes.from(b"", usize::MAX).len(), PREFIXES_MAX);
    }
}
