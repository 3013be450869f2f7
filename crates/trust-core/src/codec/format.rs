//! The numbers and words that both sides of the format share.

use primitive::limits::MESSAGE_BYTES;

/// Bytes of the header of an encoded value.
pub(crate) const HEADER: usize = 8;

/// Where the number of trusts begins in the header, and that of fields.
pub(in crate::codec) const TRUSTS_SHIFT: u32 = 44;
pub(in crate::codec) const FIELDS_SHIFT: u32 = 32;
pub(in crate::codec) const FIELDS_MASK: u64 = (1 << (TRUSTS_SHIFT - FIELDS_SHIFT)) - 1;
pub(in crate::codec) const MAX_TRUSTS: usize = (1 << (64 - TRUSTS_SHIFT)) - 1;

const _: () = assert!(MESSAGE_BYTES <= u32::MAX as usize);

/// What to check when a value does not arrive as it was sent.
pub(in crate::codec) const ASYMMETRY: &str = "a type's `Deserialize` must read what its `Serialize` writes, so \
                         `#[serde(skip_serializing)]`, `#[serde(skip_deserializing)]`, \
                         `#[serde(skip_serializing_if)]` and `#[serde(tag)]` cannot be used with \
                         values that cross the rack (`#[serde(skip)]` on a field can)";

/// A variant as it travels: its index, and a digest of its name; `None` if the index is too large.
#[inline(always)]
pub(in crate::codec) fn variant_word(index: u32, name: &str) -> Option<u32> {
    let (name, index) = (name.as_bytes(), u16::try_from(index).ok()?);
    let at = |i: usize| name.get(i).map_or(0, |byte| u32::from(*byte));
    let ends = at(0) << 8 ^ at(name.len().wrapping_sub(1)) << 4;
    let digest = (ends ^ at(name.len() / 2) ^ (name.len() as u32) << 12) as u16;
    Some(u32::from(digest) << 16 | u32::from(index))
}
