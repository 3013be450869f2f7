//! [`CachePadded`]: a value on cache lines of its own.

use std::ops::{Deref, DerefMut};

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
