//! [`CachePadded`]: a value on cache lines of its own; [`CacheLine`]: the words of one line.

use std::ops::{Deref, DerefMut};

use crate::limits::CACHE_LINE;

/// The words of one cache line, in memory of this thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct CacheLine(pub [u64; CACHE_LINE / 8]);

const _: () = assert!(size_of::<CacheLine>() == CACHE_LINE);

/// Keeps a value on its own pair of cache lines, so that writes to it do not steal the line of a
/// neighbour. 128 bytes, because current x86 parts prefetch lines in pairs. The value is at the
/// start.
///
/// ```
/// let flag = gossamer_primitive::CachePadded::new(7u64);
/// assert_eq!(*flag, 7);
/// assert_eq!(align_of_val(&flag), 128);
/// ```
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    /// Wraps `value`.
    pub const fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
