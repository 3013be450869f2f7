//! What the driver drives.

use crate::bench::table::ByteRange;

/// A store of records. Each client has its own clone, on its own thread or fiber; the clones lead
/// to the same records.
pub trait Backend: Clone + 'static {
    /// Reads a part of a record into `value`, replacing what was there; `false` when there is no
    /// such record.
    fn read(&self, key: &[u8], part: ByteRange, value: &mut Vec<u8>) -> bool;

    /// Overwrites a record from `offset` on; `false` when there is none or it is too short.
    fn update(&self, key: &[u8], offset: u32, value: &[u8]) -> bool;

    /// Adds or replaces a record; `false` when it was refused.
    fn insert(&self, key: &[u8], value: &[u8]) -> bool;

    /// Reads a part of up to `count` records in key order from `start` on; returns how many there
    /// were.
    fn scan(&self, start: &[u8], count: usize, part: ByteRange) -> usize;
}
