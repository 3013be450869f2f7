//! [`Backend`]: the interface of a store under test.

use crate::bench::table::ByteRange;

/// A store under test. Each client has a clone of its own, on its own thread or fiber; all clones
/// access the same records.
pub trait Backend: Clone + 'static {
    /// Hands a range of a record to `take`, where the store has it; `false` if the record does not
    /// exist.
    fn read(&self, key: &[u8], part: ByteRange, take: impl FnOnce(&[u8])) -> bool;

    /// Overwrites a record from `offset` on; `false` if it does not exist or is too short.
    fn update(&self, key: &[u8], offset: u32, value: &[u8]) -> bool;

    /// Adds or replaces a record; `false` if the store refuses it.
    fn insert(&self, key: &[u8], value: &[u8]) -> bool;

    /// Reads a range of up to `count` records in key order from `start` on; returns the number
    /// read.
    fn scan(&self, start: &[u8], count: usize, part: ByteRange) -> usize;
}

/// Puts a copy of what was found into `value`.
pub(super) fn copy_to(value: &mut Vec<u8>) -> impl FnOnce(&[u8]) {
    |found| {
        value.clear();
        value.extend_from_slice(found);
    }
}
