//! The memory layout of a map, and the types of its keys and values.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::SegmentError;
use crate::record::Record;
use crate::table::home_of;

/// Plain data: every pattern of its bytes is a value, and it has no padding. Derive zerocopy's
/// `FromBytes`, `IntoBytes` and `Immutable`, which check that; every such type that is `Copy`,
/// `Send`, `Sync` and `'static` implements this trait.
///
/// Keys are compared by their bytes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not plain data",
    note = "derive `zerocopy::{{FromBytes, IntoBytes, Immutable}}`, `Clone` and `Copy` for it"
)]
pub trait Plain: Copy + FromBytes + IntoBytes + Immutable + Send + Sync + 'static {}
#[diagnostic::do_not_recommend]
impl<T: Copy + FromBytes + IntoBytes + Immutable + Send + Sync + 'static> Plain for T {}

/// A slot without an entry: as memory that was never written.
pub(super) const EMPTY: u64 = 0;
/// A slot with an entry.
pub(super) const LIVE: u64 = 1;
/// A slot without an entry that lookups must pass.
pub(super) const REMOVED: u64 = 2;

/// The payload of a slot's record.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C, packed)]
pub(super) struct Slot<K, V> {
    pub(super) state: u64,
    pub(super) key: K,
    pub(super) value: V,
}

/// The first word of a map.
const MAGIC: u64 = u64::from_le_bytes(*b"gss map1");

/// The first record, which describes the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Header {
    magic: u64,
    key_bytes: u64,
    value_bytes: u64,
    slots: u64,
}

impl Header {
    /// The header of a map from `K` to `V`.
    pub(super) fn of<K, V>(slots: usize) -> Self {
        let (key_bytes, value_bytes) = (size_of::<K>() as u64, size_of::<V>() as u64);
        Self { magic: MAGIC, key_bytes, value_bytes, slots: slots as u64 }
    }
}

/// Bytes of the first record; slots begin at a cache line.
const HEADER_BYTES: usize = 64;
const _: () = assert!(Record::<Header>::BYTES <= HEADER_BYTES);

/// The offset of a slot's record.
pub(super) fn place<K, V>(slot: usize) -> usize {
    HEADER_BYTES + slot * Record::<Slot<K, V>>::BYTES
}

/// The offset of the value in a slot's record: after the version, the state and the key.
pub(super) fn value_place<K, V>(slot: usize) -> usize {
    place::<K, V>(slot) + 2 * size_of::<u64>() + size_of::<K>()
}

/// Slots for each entry, so that most lookups end at their first.
const SLOTS_PER_ENTRY: usize = 2;

/// The slots of a map of up to `capacity` entries.
///
/// # Errors
/// [`SegmentError::MapTooLarge`].
pub(super) fn slots_for<K, V>(capacity: usize) -> Result<usize, SegmentError> {
    let entry_len = SLOTS_PER_ENTRY * Record::<Slot<K, V>>::BYTES;
    let max = (isize::MAX as usize - HEADER_BYTES) / entry_len;
    if capacity > max {
        return Err(SegmentError::MapTooLarge { capacity, entry_len, max });
    }
    Ok(SLOTS_PER_ENTRY * capacity.max(1))
}

/// The slots of a map in a segment of `len` bytes.
pub(super) fn slots_in<K, V>(len: usize) -> usize {
    len.saturating_sub(HEADER_BYTES) / Record::<Slot<K, V>>::BYTES
}

/// The slot where the search for a key begins.
#[inline]
pub(super) fn home<K: Plain>(key: &K, slots: usize) -> usize {
    home_of(key.as_bytes(), slots)
}
