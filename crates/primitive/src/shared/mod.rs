//! [`SharedBytes`]: memory that another thread, process or device may write at any moment.
//!
//! A `&[u8]` promises the compiler that the bytes do not change; a peer process or a network card
//! makes no such promise. So exported memory is never seen through references: words of it are atomics, and
//! runs of it are copied out (or in) before code uses them. That is also what makes "read
//! once, then check, then use" the only way to read.
//!
//! ```text
//!   base (8-aligned)                                       base + len
//!   | word 0 | word 1 | ...            | word n-1 |
//!     ^ load/store/cas: one atomic u64 each
//!     ^ read_into/write_from: copies, no order between their bytes
//!     ^ read_words/write_words, copy_part/copy_out: copies, no word of which is torn
//! ```
//!
//! The copies themselves are in `by_words.rs`, `raw.rs` and `ahead.rs`, comparisons in `compare.rs`; `pages.rs`
//! pins the pages and asks for huge ones. Under loom the memory is another (`model.rs`).

#[cfg(not(loom))]
mod ahead;
#[cfg(not(loom))]
mod by_words;
#[cfg(not(loom))]
mod compare;
#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod pages;
#[cfg(not(loom))]
mod raw;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::Arc;
#[cfg(not(loom))]
use std::{any::Any, ops::Range, ptr::NonNull};

#[cfg(not(loom))]
use crate::CacheLine;
use crate::Words;
#[cfg(not(loom))]
use crate::limits::CACHE_LINE;
#[cfg(not(loom))]
use crate::prefetch::prefetch_line;
#[cfg(not(loom))]
use crate::shared::ahead::{copy_ahead, copy_words_ahead};
#[cfg(not(loom))]
use crate::shared::by_words::{copy_words_in, copy_words_out};
#[cfg(not(loom))]
use crate::shared::compare::first_different_line;
#[cfg(not(loom))]
use crate::shared::raw::{copy_opaque, copy_out, prefetch_for_write};
use crate::sync::{AtomicU64, Ordering};

/// A run of memory that another thread, process or device may write at any moment.
///
/// Cheap to clone: it counts references to whatever keeps the memory mapped. Offsets and lengths
/// are in bytes; word offsets must be multiples of eight.
///
/// ```
/// use gossamer_primitive::{SharedBytes, sync::Ordering};
/// let memory = SharedBytes::heap(64);
/// memory.write_from(8, b"hello");
/// memory.store(0, 5, Ordering::Release);
/// let mut out = [0; 5];
/// memory.read_into(8, &mut out);
/// assert_eq!((memory.load(0, Ordering::Acquire), &out), (5, b"hello"));
/// ```
#[derive(Clone)]
pub struct SharedBytes {
    #[cfg(not(loom))]
    pub(crate) base: NonNull<u8>,
    /// Whole words of the run.
    #[cfg(not(loom))]
    pub(crate) count: usize,
    #[cfg(not(loom))]
    _owner: Arc<dyn Any + Send + Sync>,
    #[cfg(loom)]
    words: Arc<Vec<AtomicU64>>,
    #[cfg(loom)]
    start: usize,
    len: usize,
}

// SAFETY: every access goes through atomics, volatile words or an opaque copy, none of which gives
// out a reference to the bytes; the owner that keeps the memory alive is itself Send + Sync.
#[cfg(not(loom))]
unsafe impl Send for SharedBytes {}
// SAFETY: as for Send; concurrent access is what the type is for.
#[cfg(not(loom))]
unsafe impl Sync for SharedBytes {}

impl std::fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.len)
    }
}

#[cold]
#[inline(never)]
pub(crate) fn outside(at: usize, count: usize, len: usize) -> ! {
    panic!("access to bytes {at}..{} of a shared memory of {len} bytes", at.saturating_add(count))
}

impl SharedBytes {
    /// Bytes of this run.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the run has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    pub(crate) fn check(&self, at: usize, count: usize) {
        if count > self.len || at > self.len - count {
            outside(at, count, self.len)
        }
    }

    /// The run as words, for loops that touch many of them.
    #[inline(always)]
    pub fn words(&self) -> Words<'_> {
        Words::of(self)
    }

    /// Reads the word at byte `at`.
    ///
    /// # Panics
    /// If the word is not inside the run or `at` is not a multiple of eight.
    #[inline(always)]
    pub fn load(&self, at: usize, order: Ordering) -> u64 {
        self.word(at).load(order)
    }

    /// Writes the word at byte `at`.
    ///
    /// # Panics
    /// As [`load`](Self::load).
    #[inline(always)]
    pub fn store(&self, at: usize, value: u64, order: Ordering) {
        self.word(at).store(value, order)
    }

    /// The run `at..at + len` of this one.
    ///
    /// # Panics
    /// If it is not inside this one or `at` is not a multiple of eight.
    #[must_use]
    pub fn slice(&self, at: usize, len: usize) -> SharedBytes {
        self.check(at, len);
        assert!(
            at.is_multiple_of(8),
            "a slice of shared memory starts at a multiple of 8, not {at}"
        );
        #[cfg(not(loom))]
        let part = {
            // SAFETY: `check` proved that `at` is inside the run (or one past its end).
            let base = unsafe { self.base.add(at) };
            SharedBytes { base, count: len / 8, _owner: self._owner.clone(), len }
        };
        #[cfg(loom)]
        let part = SharedBytes { words: self.words.clone(), start: self.start + at / 8, len };
        part
    }

    /// Whether the memory of `other` begins at byte `at` of this run.
    #[inline]
    pub fn begins_at(&self, at: usize, other: &SharedBytes) -> bool {
        #[cfg(not(loom))]
        return self.base.as_ptr().addr().wrapping_add(at) == other.base.as_ptr().addr();
        #[cfg(loom)]
        return Arc::ptr_eq(&self.words, &other.words) && self.start * 8 + at == other.start * 8;
    }

    /// Copies the bytes of `from` (as many as it has) to byte `at` of this run, as
    /// [`copy_part`](Self::copy_part) does.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn copy_from(&self, at: usize, from: &SharedBytes) {
        self.copy_part(at, from, 0..from.len);
    }
}

#[cfg(not(loom))]
impl SharedBytes {
    /// Memory at `base`, kept alive by `owner`.
    ///
    /// # Safety
    /// `base` is 8-aligned; `base..base + len` stays mapped as long as `owner` lives, readable, and
    /// writable unless the caller ensures that no view made from it is written; and no reference into it
    /// exists, ever.
    pub unsafe fn from_raw(
        base: NonNull<u8>,
        len: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        debug_assert!(base.as_ptr().addr().is_multiple_of(8));
        Self { base, count: len / 8, _owner: owner, len }
    }

    /// Where the run begins, to tell a device that reads and writes it by itself. Nothing may be
    /// made from it that [`from_raw`](Self::from_raw) forbids.
    pub fn address(&self) -> NonNull<u8> {
        self.base
    }

    /// Zeroed memory of this process, aligned to a cache line. Untouched pages of a large run
    /// take no memory.
    ///
    /// # Panics
    /// If `len` is zero, or when there is no memory.
    pub fn heap(len: usize) -> Self {
        Self::try_heap(len).unwrap_or_else(|| panic!("no memory for a run of {len} bytes"))
    }

    /// As [`heap`](Self::heap); `None` when there is no memory.
    ///
    /// # Panics
    /// If `len` is zero.
    pub fn try_heap(len: usize) -> Option<Self> {
        /// What the allocator grants unasked. It zeroes anything more aligned by hand, page by
        /// page, instead of taking zeroed pages from the system.
        const GRANTED: usize = 16;
        const ALIGN: usize = 128;
        struct Heap(NonNull<u8>, std::alloc::Layout);
        // SAFETY: the allocation belongs to this struct alone and is freed by its drop.
        unsafe impl Send for Heap {}
        // SAFETY: the struct has no method that touches the memory, so sharing it shares nothing.
        unsafe impl Sync for Heap {}
        impl Drop for Heap {
            fn drop(&mut self) {
                // SAFETY: allocated below with this very layout, freed once.
                unsafe { std::alloc::dealloc(self.0.as_ptr(), self.1) }
            }
        }
        assert!(len > 0, "a shared memory needs at least one byte");
        let size = len.checked_next_multiple_of(8)?.checked_add(ALIGN - GRANTED)?;
        let layout = std::alloc::Layout::from_size_align(size, GRANTED).ok()?;
        // SAFETY: the layout has a size above zero.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        let address = start.as_ptr().addr();
        // SAFETY: moves by at most `ALIGN - GRANTED` bytes, since `address` is a multiple of
        // `GRANTED`; as many were allocated beside `len`.
        let base = unsafe { start.add(address.next_multiple_of(ALIGN) - address) };
        // SAFETY: 128-aligned, `len` bytes, alive as long as the `Heap`, and never referenced.
        Some(unsafe { Self::from_raw(base, len, Arc::new(Heap(start, layout))) })
    }

    /// The word at byte `at`.
    ///
    /// # Panics
    /// If the word is not inside the run or `at` is not a multiple of eight.
    #[inline(always)]
    pub fn word(&self, at: usize) -> &AtomicU64 {
        // One comparison for both: the bits that make an offset uneven become its highest.
        if at.rotate_right(3) >= self.count {
            outside(at, 8, self.len)
        }
        // SAFETY: inside the run and 8-aligned (checked above, and `base` is 8-aligned); the memory
        // lives as long as `self`; others access it only as `from_raw` demands.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// The 32-bit word at byte `at`, for futexes and compact counters.
    ///
    /// # Panics
    /// If the word is not inside the run or `at` is not a multiple of four.
    #[inline(always)]
    pub fn word32(&self, at: usize) -> &crate::sync::AtomicU32 {
        if at & 3 != 0 || self.len < 4 || at > self.len - 4 {
            outside(at, 4, self.len)
        }
        // SAFETY: as in `word`, with an alignment of four.
        unsafe { crate::sync::AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// Copies `out.len()` bytes from byte `at` out of the run. The copy has no order: bytes that
    /// a peer writes meanwhile arrive torn.
    ///
    /// # Panics
    /// If they are not inside the run.
    #[inline]
    pub fn read_into(&self, at: usize, out: &mut [u8]) {
        self.check(at, out.len());
        // SAFETY: the source is inside the run (checked); `out` is ours and cannot overlap memory
        // into which no reference may exist.
        unsafe { copy_out(out.as_mut_ptr(), self.base.as_ptr().add(at), out.len()) }
    }

    /// Copies `bytes` into the run from byte `at` on, in no particular order.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub fn write_from(&self, at: usize, bytes: &[u8]) {
        self.check(at, bytes.len());
        // SAFETY: the target is inside the run (checked); as in `read_into` there is no overlap.
        unsafe { copy_opaque(self.base.as_ptr().add(at), bytes.as_ptr(), bytes.len()) }
    }

    /// As [`write_from`](Self::write_from), for bytes that another processor reads. The caller writes at
    /// byte `next` afterwards, whose line most copies prefetch.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub fn write_ahead(&self, at: usize, bytes: &[u8], next: usize) {
        self.check(at, bytes.len());
        let (to, next) = (self.base.as_ptr(), self.base.as_ptr().wrapping_add(next));
        // SAFETY: as in `write_from`.
        unsafe { copy_ahead(to.add(at), bytes.as_ptr(), bytes.len(), next) }
    }

    /// As [`read_into`](Self::read_into), word by word: no word of this run, which is one at a
    /// multiple of eight, is torn. Words have no order among each other.
    ///
    /// # Panics
    /// If the bytes are not inside the run.
    #[inline]
    pub fn read_words(&self, at: usize, out: &mut [u8]) {
        self.check(at, out.len());
        // SAFETY: as in `read_into`.
        unsafe { copy_words_out(out.as_mut_ptr(), self.base.as_ptr().add(at), out.len()) }
    }

    /// As [`write_from`](Self::write_from), word by word: no reader sees a word of this run, which
    /// is one at a multiple of eight, with only some of its bytes written, if `bytes` cover it. Words
    /// have no order among each other.
    ///
    /// # Panics
    /// If the bytes do not fit.
    #[inline]
    pub fn write_words(&self, at: usize, bytes: &[u8]) {
        self.check(at, bytes.len());
        // SAFETY: as in `write_from`; `bytes` has no concurrent writer.
        unsafe { copy_words_ahead(self.base.as_ptr().add(at), bytes.as_ptr(), bytes.len()) }
    }

    /// Copies the bytes `part` of `from`, wherever they begin, to byte `at` of this run, word by
    /// word: no word of this run is torn, nor one of `from` if both begin alike. What is copied is
    /// unspecified where the two overlap.
    ///
    /// ```
    /// use gossamer_primitive::SharedBytes;
    /// let (from, to) = (SharedBytes::heap(16), SharedBytes::heap(8));
    /// from.write_from(0, b"one two three");
    /// to.copy_part(1, &from, 4..7);
    /// let mut bytes = [0; 5];
    /// to.read_into(0, &mut bytes);
    /// assert_eq!(&bytes, b"\0two\0");
    /// ```
    ///
    /// # Panics
    /// If they are not inside both.
    pub fn copy_part(&self, at: usize, from: &SharedBytes, part: Range<usize>) {
        let (start, len) = (part.start, part.len());
        from.check(start, len);
        self.check(at, len);
        // SAFETY: both runs are inside (checked); no reference to either exists.
        unsafe { copy_words_in(self.base.as_ptr().add(at), from.base.as_ptr().add(start), len) }
    }

    /// As [`copy_part`](Self::copy_part) from this run to `to`: no word of this run is torn, nor
    /// one of `to` if both begin alike.
    ///
    /// # Panics
    /// If the bytes are not inside both.
    pub fn copy_out(&self, part: Range<usize>, to: &SharedBytes, at: usize) {
        let (start, len) = (part.start, part.len());
        self.check(start, len);
        to.check(at, len);
        // SAFETY: both runs are inside (checked); no reference to either exists.
        unsafe { copy_words_out(to.base.as_ptr().add(at), self.base.as_ptr().add(start), len) }
    }

    /// The first of the run's lines, from line `from` on, that differs from the same one of `expected`.
    /// What it finds is a hint, not a synchronisation: load the word that changed with
    /// [`Ordering::Acquire`] before trusting anything behind it.
    ///
    /// ```
    /// use gossamer_primitive::{CacheLine, SharedBytes, sync::Ordering};
    /// let (memory, expected) = (SharedBytes::heap(256), [CacheLine::default(); 4]);
    /// assert_eq!(memory.first_difference(0, &expected), None);
    /// memory.store(2 * 64 + 8, 1, Ordering::Relaxed);
    /// assert_eq!(memory.first_difference(0, &expected), Some(2));
    /// assert_eq!(memory.first_difference(3, &expected), None);
    /// ```
    ///
    /// # Panics
    /// If there are more lines in `expected` than in the run, or fewer than `from`.
    #[inline]
    pub fn first_difference(&self, from: usize, expected: &[CacheLine]) -> Option<usize> {
        self.check(0, size_of_val(expected));
        let ours = &expected[from..];
        // SAFETY: as many lines of the run as `expected` has are inside (checked), those behind the
        // first `from` with them.
        let equal =
            unsafe { first_different_line(self.base.as_ptr().add(from * CACHE_LINE), ours) };
        (equal < ours.len()).then_some(from + equal)
    }

    /// Prefetches the cache lines of the bytes `from..to` for reading, from `from` in steps of a line. Never
    /// faults.
    #[inline(always)]
    pub fn prefetch(&self, from: usize, to: usize) {
        let mut at = from;
        while at < to {
            prefetch_line(self.base.as_ptr().wrapping_add(at));
            at += CACHE_LINE;
        }
    }

    /// Prefetches the cache lines of the bytes `from..to` for writing, from `from` in steps of a line: they
    /// are then ours before the first store waits for them. Never faults.
    #[inline(always)]
    pub fn prefetch_write(&self, from: usize, to: usize) {
        let mut at = from;
        while at < to {
            prefetch_for_write(self.base.as_ptr(), at);
            at += CACHE_LINE;
        }
    }
}
