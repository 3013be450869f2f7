//! Spans of a segment: where an element begins, and what an operation accesses.

use transport_api::Rights;

/// What an operation accesses, and the rights that it needs.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    /// The first byte.
    pub(crate) at: usize,
    /// How many bytes.
    pub(crate) len: usize,
    pub(crate) needs: Rights,
}

/// The offset of element `index` of an array of `T`. An index beyond all memory gives an aligned offset
/// that is outside every segment.
#[inline(always)]
pub(crate) fn offset_of<T>(index: usize) -> usize {
    let last = usize::MAX - usize::MAX % align_of::<T>();
    index.checked_mul(size_of::<T>()).unwrap_or(last)
}
