//! Shared memory as words, for the loops that touch many of them: [`Words`] reads and writes any of
//! them, [`WordWriter`] one behind the other. Each costs one comparison an access. [`Records`] are
//! groups of words, of which one comparison finds that there is another.

use std::cell::Cell;
use std::hint::cold_path;
#[cfg(not(loom))]
use std::{marker::PhantomData, ptr::NonNull};

use crate::SharedBytes;
use crate::shared::outside;
use crate::sync::{AtomicU64, Ordering};

/// The words of a run of shared memory: two registers, and one comparison for an access.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    #[cfg(not(loom))]
    base: NonNull<u8>,
    #[cfg(not(loom))]
    count: usize,
    #[cfg(not(loom))]
    _memory: PhantomData<&'a SharedBytes>,
    #[cfg(loom)]
    memory: &'a SharedBytes,
    /// The first word and the number of words.
    #[cfg(loom)]
    part: (usize, usize),
}

impl Words<'_> {
    /// How many there are.
    #[inline(always)]
    pub fn len(self) -> usize {
        #[cfg(not(loom))]
        return self.count;
        #[cfg(loom)]
        return self.part.1;
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Reads word `index`.
    ///
    /// # Panics
    /// If there is no such word.
    #[inline(always)]
    pub fn load(self, index: usize, order: Ordering) -> u64 {
        self.word(index).load(order)
    }

    /// Writes word `index`.
    ///
    /// # Panics
    /// If there is no such word.
    #[inline(always)]
    pub fn store(self, index: usize, value: u64, order: Ordering) {
        self.word(index).store(value, order);
    }
}

impl Words<'_> {
    /// Reads word `index`, which is inside.
    #[cfg(not(loom))]
    #[inline(always)]
    fn load_inside(self, index: usize) -> u64 {
        debug_assert!(index < self.count);
        // SAFETY: inside the run, as the caller has checked; otherwise as in `word`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().cast::<u64>().add(index)) }
            .load(Ordering::Relaxed)
    }

    #[cfg(loom)]
    fn load_inside(self, index: usize) -> u64 {
        self.load(index, Ordering::Relaxed)
    }

    /// Writes word `index`, which is inside.
    #[cfg(not(loom))]
    #[inline(always)]
    fn store_inside(self, index: usize, value: u64) {
        debug_assert!(index < self.count);
        // SAFETY: inside the run, as the caller has checked; otherwise as in `word`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().cast::<u64>().add(index)) }
            .store(value, Ordering::Relaxed);
    }

    #[cfg(loom)]
    fn store_inside(self, index: usize, value: u64) {
        self.store(index, value, Ordering::Relaxed);
    }
}

/// Groups of words, one behind the other, which a loop reads, writes and passes.
///
/// ```
/// use gossamer_primitive::{SharedBytes, sync::Ordering};
/// let memory = SharedBytes::heap(64);
/// let mut records = memory.words().records(1, 3);
/// while records.left() > 0 {
///     records.store(2, records.load(0) + 5);
///     records.pass();
/// }
/// assert_eq!(records.position(), 7);
/// assert_eq!([3, 6].map(|word| memory.load(word * 8, Ordering::Relaxed)), [5, 5]);
/// ```
pub struct Records<'a> {
    words: Words<'a>,
    /// Where the first is that has not been passed.
    at: usize,
    /// How many there are from there on, all of them inside.
    left: usize,
    size: usize,
}

impl Records<'_> {
    /// How many have not been passed.
    #[inline(always)]
    pub fn left(&self) -> usize {
        self.left
    }

    /// The word at which the first begins that has not been passed.
    #[inline(always)]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Goes on to the next one.
    ///
    /// # Panics
    /// If all have been passed.
    #[inline(always)]
    pub fn pass(&mut self) {
        assert!(self.left > 0);
        self.at += self.size;
        self.left -= 1;
    }

    /// Reads a word of the first that has not been passed.
    ///
    /// # Panics
    /// If all have been passed, or a record has no such word.
    #[inline(always)]
    pub fn load(&self, index: usize) -> u64 {
        assert!(self.left > 0 && index < self.size);
        self.words.load_inside(self.at + index)
    }

    /// Writes a word of the first that has not been passed.
    ///
    /// # Panics
    /// As [`load`](Self::load).
    #[inline(always)]
    pub fn store(&self, index: usize, value: u64) {
        assert!(self.left > 0 && index < self.size);
        self.words.store_inside(self.at + index, value);
    }
}

impl<'a> Words<'a> {
    /// The records of `size` words from word `start` on, as many as are inside as a whole.
    ///
    /// # Panics
    /// If `size` is 0.
    #[inline(always)]
    pub fn records(self, start: usize, size: usize) -> Records<'a> {
        let left = self.len().saturating_sub(start) / size;
        Records { words: self, at: start, left, size }
    }

    #[inline(always)]
    pub(crate) fn of(memory: &'a SharedBytes) -> Self {
        #[cfg(not(loom))]
        return Words { base: memory.base, count: memory.count, _memory: PhantomData };
        #[cfg(loom)]
        return Words { memory, part: (0, memory.len() / 8) };
    }

    /// The `count` words from `start` on. If `count` is a constant, accesses to them need no
    /// comparison.
    ///
    /// # Panics
    /// If they are not inside.
    #[inline(always)]
    pub fn part(self, start: usize, count: usize) -> Words<'a> {
        let len = self.len();
        if count > len || start > len - count {
            outside(start.saturating_mul(8), count.saturating_mul(8), len * 8)
        }
        #[cfg(not(loom))]
        {
            // SAFETY: inside the run, or right behind its end.
            let base = unsafe { self.base.cast::<u64>().add(start) }.cast();
            Words { base, count, _memory: PhantomData }
        }
        #[cfg(loom)]
        Words { memory: self.memory, part: (self.part.0 + start, count) }
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn word(self, index: usize) -> &'a AtomicU64 {
        if index >= self.count {
            outside(index.saturating_mul(8), 8, self.count * 8)
        }
        // SAFETY: inside the run, whose base is 8-aligned and whose memory the `SharedBytes` that
        // is borrowed keeps; others access it only as `from_raw` demands.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().cast::<u64>().add(index)) }
    }

    #[cfg(loom)]
    fn word(self, index: usize) -> &'a AtomicU64 {
        let (start, count) = self.part;
        if index >= count {
            outside(index.saturating_mul(8), 8, count * 8)
        }
        self.memory.word((start + index) * 8)
    }
}

/// Writes words one behind the other into shared memory, up to a limit. One comparison keeps a
/// write in front of the limit and inside the memory.
///
/// ```
/// use gossamer_primitive::{SharedBytes, WordWriter, sync::Ordering};
/// let writer = WordWriter::new(SharedBytes::heap(64), 2);
/// assert_eq!(writer.put(1, 7, None), None, "nothing may be written yet");
/// writer.set_limit(5);
/// assert_eq!(writer.put(2, 7, Some(8)), Some(2));
/// assert_eq!(writer.put(2, 9, None), None, "only one word is left");
/// assert_eq!(writer.position(), 4);
/// assert_eq!(writer.memory().words().load(3, Ordering::Relaxed), 8);
/// ```
pub struct WordWriter {
    memory: SharedBytes,
    position: Cell<usize>,
    /// Never beyond the memory's words.
    limit: Cell<usize>,
}

impl WordWriter {
    /// A writer into `memory`, at word `position`, that may not write anything yet.
    ///
    /// # Panics
    /// As [`move_to`](Self::move_to).
    pub fn new(memory: SharedBytes, position: usize) -> Self {
        let writer = WordWriter { memory, position: Cell::new(0), limit: Cell::new(0) };
        writer.move_to(position);
        writer
    }

    /// What is written to.
    #[inline(always)]
    pub fn memory(&self) -> &SharedBytes {
        &self.memory
    }

    /// Where the next word is written.
    #[inline(always)]
    pub fn position(&self) -> usize {
        self.position.get()
    }

    /// Goes to another place; nothing may be written there until a limit is set.
    ///
    /// # Panics
    /// If the memory has fewer words than lie in front of the place.
    #[inline(always)]
    pub fn move_to(&self, position: usize) {
        // Not `assert!` with a message: what is formatted would have to be in memory on every path.
        if position > self.memory.len() / 8 {
            outside(position.saturating_mul(8), 0, self.memory.len())
        }
        self.position.set(position);
        self.limit.set(0);
    }

    /// Lets words in front of `limit` be written.
    ///
    /// # Panics
    /// If the memory has fewer words.
    #[inline(always)]
    pub fn set_limit(&self, limit: usize) {
        // As in `move_to`.
        if limit > self.memory.len() / 8 {
            outside(limit.saturating_mul(8), 0, self.memory.len())
        }
        self.limit.set(limit);
    }

    /// In front of which word the next one must be.
    #[inline(always)]
    pub fn limit(&self) -> usize {
        self.limit.get()
    }

    /// Takes the next `words` words, writes `first` to the first of them if it is given, and returns where
    /// they are; `None` if they do not fit.
    ///
    /// ```
    /// use gossamer_primitive::{SharedBytes, WordWriter, sync::Ordering};
    /// let writer = WordWriter::new(SharedBytes::heap(64), 2);
    /// writer.set_limit(6);
    /// assert_eq!([writer.take(1, Some(7)), writer.take(2, None)], [Some(2), Some(3)]);
    /// assert_eq!([writer.take(2, Some(8)), writer.take(1, None)], [None, Some(5)]);
    /// assert_eq!(writer.memory().words().load(2, Ordering::Relaxed), 7);
    /// ```
    ///
    /// # Panics
    /// If `words` is 0, or more than 2^32.
    #[inline(always)]
    pub fn take(&self, words: usize, first: Option<u64>) -> Option<usize> {
        assert!(words > 0 && words <= 1 << 32, "not {words} words");
        // Does not wrap: the position is inside the memory.
        let at = self.position.get();
        let end = at + words;
        if end > self.limit.get() {
            cold_path();
            return None;
        }
        if let Some(first) = first {
            self.store(at, first);
        }
        self.position.set(end);
        Some(at)
    }

    /// Takes the next `words` words, writes `first` and perhaps `second` to the first of them, and
    /// returns where they are; `None` if they do not fit.
    ///
    /// # Panics
    /// If `words` are fewer than are written, or more than 2^32.
    #[inline(always)]
    pub fn put(&self, words: usize, first: u64, second: Option<u64>) -> Option<usize> {
        assert!(words > usize::from(second.is_some()), "not {words} words");
        let at = self.take(words, Some(first))?;
        if let Some(second) = second {
            self.store(at + 1, second);
        }
        Some(at)
    }

    /// Writes word `index`, which is in front of the limit.
    #[cfg(not(loom))]
    #[inline(always)]
    fn store(&self, index: usize, value: u64) {
        // SAFETY: `put` and `take` call this for words in front of the limit, which `set_limit` keeps
        // inside the memory, and the sum of `take` cannot have wrapped; otherwise as in `Words::word`.
        unsafe { AtomicU64::from_ptr(self.memory.base.as_ptr().cast::<u64>().add(index)) }
            .store(value, Ordering::Relaxed);
    }

    #[cfg(loom)]
    fn store(&self, index: usize, value: u64) {
        self.memory.words().store(index, value, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_its_own_words_only() {
        let panics = |access: &dyn Fn() -> u64| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(access)).is_err()
        };
        let memory = SharedBytes::heap(64);
        let part = memory.words().part(2, 3).part(1, 2);
        part.store(1, 7, Ordering::Relaxed);
        assert_eq!(memory.words().load(4, Ordering::Relaxed), 7);
        assert_eq!((part.len(), memory.words().part(8, 0).len()), (2, 0));
        for (start, count) in [(0, 3), (2, 1), (3, 0), (usize::MAX, 2), (1, usize::MAX)] {
            let len = || memory.words().part(3, 2).part(start, count).len() as u64;
            assert!(panics(&len), "{count} words from {start}");
        }
        assert!(panics(&|| memory.words().part(3, 2).load(2, Ordering::Relaxed)));
    }

    #[test]
    fn records_are_those_that_are_inside_as_a_whole() {
        let panics = |access: &dyn Fn()| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(access)).is_err()
        };
        let memory = SharedBytes::heap(64);
        let records = |start, size| memory.words().part(1, 7).records(start, size);
        let left = |start, size| records(start, size).left();
        assert_eq!([left(0, 1), left(0, 2), left(1, 2), left(6, 2), left(0, 8)], [7, 3, 3, 0, 0]);
        assert_eq!([left(7, 1), left(8, 1), left(usize::MAX, 1), left(0, usize::MAX)], [0; 4]);
        let mut last = records(5, 2);
        last.store(1, 7);
        assert_eq!((last.load(1), memory.words().load(7, Ordering::Relaxed)), (7, 7));
        assert!(panics(&|| _ = records(5, 2).load(2)) && panics(&|| records(5, 2).store(2, 1)));
        last.pass();
        assert_eq!((last.left(), last.position()), (0, 7));
        assert!(panics(&|| _ = last.load(0)) && panics(&|| last.store(0, 1)));
        assert!(panics(&|| records(7, 1).pass()) && panics(&|| _ = records(0, 0).left()));
    }

    #[test]
    fn a_writer_may_stand_behind_the_last_word() {
        let writer = WordWriter::new(SharedBytes::heap(64), 8);
        assert_eq!(writer.position(), 8);
    }

    #[test]
    #[should_panic(expected = "access to bytes 72..72 of a shared memory of 64 bytes")]
    fn a_writer_may_not_stand_further_out() {
        WordWriter::new(SharedBytes::heap(64), 9);
    }
}
