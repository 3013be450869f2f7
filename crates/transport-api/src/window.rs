//! [`Window`]: another's region where it is mapped, and the operations on it.

use std::ops::Range;

use primitive::SharedBytes;
use primitive::sync::{Ordering, fence};

use crate::{HostId, OpError, RegionKey, Rights};

/// For backends that map regions into the importing process: what their lanes need of one, found
/// without a detour, because every signal passes here.
///
/// Every operation is checked against what the owner allows, and done when it returns. There is no
/// other way to the bytes: a region that peers may not write can be mapped read-only, where a write
/// would end the process.
///
/// ```
/// use gossamer_transport_api::{HostId, OpError, RegionKey, Rights, Window};
/// use primitive::{SharedBytes, sync::Ordering};
///
/// let (memory, live) = (SharedBytes::heap(64), SharedBytes::heap(8));
/// live.store(0, 1, Ordering::Relaxed); // the generation 0 is exported
/// let window = Window::new((7, HostId(1)), (RegionKey(5), Rights::READ, 0), memory, live);
/// let into = SharedBytes::heap(64);
/// assert_eq!(window.read(0, &into), Ok(64));
/// assert!(matches!(window.write(0, &into), Err(OpError::Rights { .. })));
/// ```
pub struct Window {
    issuer: u64,
    owner: HostId,
    key: RegionKey,
    rights: Rights,
    generation: u32,
    /// The region's bytes; perhaps mapped read-only if the rights have neither WRITE nor ATOMIC.
    memory: SharedBytes,
    /// A word of the owner: one more than the generation while it is exported.
    live: SharedBytes,
}

impl Window {
    /// The region that `owner` exports with these rights and generation under the key. `issuer`
    /// tells the transport that imported it from every other of this process; `live` is a word of
    /// the owner: one more than the generation as long as that is exported.
    pub fn new(
        (issuer, owner): (u64, HostId),
        (key, rights, generation): (RegionKey, Rights, u32),
        memory: SharedBytes,
        live: SharedBytes,
    ) -> Self {
        Self { issuer, owner, key, rights, generation, memory, live }
    }

    /// The transport that imported it.
    #[inline(always)]
    pub fn issuer(&self) -> u64 {
        self.issuer
    }

    /// The host that exports it.
    #[inline(always)]
    pub fn owner(&self) -> HostId {
        self.owner
    }

    /// The key that it is exported under.
    #[inline(always)]
    pub fn key(&self) -> RegionKey {
        self.key
    }

    /// The key that it is exported under, its rights, and the generation that was imported.
    pub fn name(&self) -> (RegionKey, Rights, u32) {
        (self.key, self.rights, self.generation)
    }

    /// Bytes of the region.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the owner still exports the generation that was imported.
    #[inline(always)]
    pub fn is_live(&self) -> bool {
        self.live.load(0, Ordering::Relaxed) == u64::from(self.generation) + 1
    }

    /// Whether its bytes are those that begin where `memory` does, which is the owner's own view.
    pub fn maps(&self, memory: &SharedBytes) -> bool {
        self.memory.begins_at(0, memory)
    }

    /// The bytes themselves, if they may be read and written.
    pub(crate) fn bare(&self) -> Option<&SharedBytes> {
        self.rights.allow(Rights::READ | Rights::WRITE).then_some(&self.memory)
    }

    /// Copies `from` to byte `at`, unless it is there already. No word is torn, as in
    /// [`write_from`](Self::write_from).
    ///
    /// # Errors
    /// [`OpError::Revoked`], [`OpError::Rights`], [`OpError::OutOfBounds`].
    #[inline]
    pub fn write(&self, at: usize, from: &SharedBytes) -> Result<(), OpError> {
        self.check(at, from.len(), Rights::WRITE)?;
        // As in `write_from`: behind every earlier write of this thread, also behind a signal.
        fence(Ordering::Release);
        if !self.memory.begins_at(at, from) {
            self.memory.copy_from(at, from);
        }
        Ok(())
    }

    /// Stores `word` at byte `at`, behind every earlier write of this thread.
    ///
    /// # Errors
    /// As [`write`](Self::write), and [`OpError::Misaligned`].
    #[inline]
    pub fn signal(&self, at: usize, word: u64) -> Result<(), OpError> {
        self.check_word(at, Rights::WRITE)?;
        self.memory.store(at, word, Ordering::Release);
        Ok(())
    }

    /// Fills `into` with what is at byte `at`; the number of bytes. No word is torn, as in
    /// [`read_into`](Self::read_into).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn read(&self, at: usize, into: &SharedBytes) -> Result<u64, OpError> {
        self.check(at, into.len(), Rights::READ)?;
        self.memory.copy_out(at..at + into.len(), into, 0);
        Ok(into.len() as u64)
    }

    /// Fills `out` with what is at byte `at`, in one copy. No word of the region, which is one at a
    /// multiple of eight, is torn; words have no order among each other.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    #[inline]
    pub fn read_into(&self, at: usize, out: &mut [u8]) -> Result<(), OpError> {
        self.check(at, out.len(), Rights::READ)?;
        self.memory.read_words(at, out);
        Ok(())
    }

    /// Copies `bytes` to byte `at`, in one copy. No reader sees a word of the region, which is one at
    /// a multiple of eight, with only some of its bytes written, if `bytes` cover it; words have no
    /// order among each other.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    #[inline]
    pub fn write_from(&self, at: usize, bytes: &[u8]) -> Result<(), OpError> {
        self.check(at, bytes.len(), Rights::WRITE)?;
        // A reader that sees a word of this sees every earlier write of this thread; free on x86.
        fence(Ordering::Release);
        self.memory.write_words(at, bytes);
        Ok(())
    }

    /// As [`write_from`](Self::write_from), in the fastest way, but a reader may see a word with only some
    /// of its bytes written: for bytes that a later signal covers. The caller writes at byte `next`
    /// afterwards, whose line most copies prefetch.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    #[inline]
    pub fn write_loose(&self, at: usize, bytes: &[u8], next: usize) -> Result<(), OpError> {
        self.check(at, bytes.len(), Rights::WRITE)?;
        // As in `write_from`: what the owner sees of this is behind every earlier write of this thread.
        fence(Ordering::Release);
        self.memory.write_ahead(at, bytes, next);
        Ok(())
    }

    /// Stores `word` at byte `at`; false, without a reason, if that is refused. As
    /// [`write_from`](Self::write_from) of eight bytes, in as few instructions as possible.
    #[inline(always)]
    pub fn store_word(&self, at: usize, word: u64) -> bool {
        let place = self.place_of(at, Rights::WRITE);
        if let Some(place) = place {
            // Behind every earlier write of this thread; free on x86.
            self.memory.words().store(place, word, Ordering::Release);
        }
        place.is_some()
    }

    /// The word at byte `at`; `None`, without a reason, if that is refused. As
    /// [`read_into`](Self::read_into) of eight bytes.
    #[inline(always)]
    pub fn load_word(&self, at: usize) -> Option<u64> {
        let place = self.place_of(at, Rights::READ)?;
        Some(self.memory.words().load(place, Ordering::Relaxed))
    }

    /// Which word is at byte `at`, if it may be used.
    #[inline(always)]
    fn place_of(&self, at: usize, needs: Rights) -> Option<usize> {
        let place = at / 8;
        let fine = self.is_live()
            && self.rights.allow(needs)
            && at.is_multiple_of(8)
            && place < self.memory.words().len();
        fine.then_some(place)
    }

    /// Hands each of the `count` words from byte `at` on to `each`, once, in order, with its number
    /// from 0 on. For callers that do something with each word as they copy it: they save a copy.
    /// Words are not torn, and have no order among each other.
    ///
    /// # Errors
    /// As [`write`](Self::write), and [`OpError::Misaligned`].
    #[inline(always)]
    pub fn load_words(
        &self,
        at: usize,
        count: usize,
        mut each: impl FnMut(usize, u64),
    ) -> Result<(), OpError> {
        self.check_words(at, count, Rights::READ)?;
        let words = self.memory.words().part(at / 8, count);
        for index in 0..count {
            each(index, words.load(index, Ordering::Relaxed));
        }
        Ok(())
    }

    /// Stores `count` words from byte `at` on, each of which `word` gives by its number from 0 on.
    /// No word is torn. A reader that sees the last one (with an acquire load or fence) sees the
    /// others and every earlier write of this thread.
    ///
    /// # Errors
    /// As [`signal`](Self::signal), before any word is written.
    #[inline(always)]
    pub fn store_words(
        &self,
        at: usize,
        count: usize,
        mut word: impl FnMut(usize) -> u64,
    ) -> Result<(), OpError> {
        self.check_words(at, count, Rights::WRITE)?;
        let words = self.memory.words().part(at / 8, count);
        for index in 0..count {
            let is_last = index + 1 == count;
            let order = if is_last { Ordering::Release } else { Ordering::Relaxed };
            words.store(index, word(index), order);
        }
        Ok(())
    }

    /// Stores `words` from byte `at` on, the last one first. A reader that sees the first one (with an
    /// acquire load or fence) sees the others and every earlier write of this thread.
    ///
    /// # Errors
    /// As [`signal`](Self::signal), before any word is written.
    #[inline(always)]
    pub fn store_words_down<const N: usize>(
        &self,
        at: usize,
        words: &[u64; N],
    ) -> Result<(), OpError> {
        self.check_words(at, N, Rights::WRITE)?;
        let to = self.memory.words().part(at / 8, N);
        for (index, word) in words.iter().enumerate().rev() {
            let order = if index == 0 { Ordering::Release } else { Ordering::Relaxed };
            to.store(index, *word, order);
        }
        Ok(())
    }

    /// Prefetches the cache lines of `bytes` for writing, from `bytes.start` in steps of a line; does nothing
    /// if they are not all in the region.
    #[inline(always)]
    pub fn prefetch_write(&self, bytes: Range<usize>) {
        if bytes.end <= self.memory.len() {
            self.memory.prefetch_write(bytes.start, bytes.end);
        }
    }

    /// If the word at byte `at` is `expected`, makes it `new`, atomically; the old value.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    pub fn compare_swap(&self, at: usize, expected: u64, new: u64) -> Result<u64, OpError> {
        self.check_word(at, Rights::ATOMIC)?;
        let word = self.memory.word(at);
        let swap = word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire);
        let (Ok(old) | Err(old)) = swap;
        Ok(old)
    }

    /// Adds `addend` to the word at byte `at`, atomically; the old value.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    pub fn fetch_add(&self, at: usize, addend: u64) -> Result<u64, OpError> {
        self.check_word(at, Rights::ATOMIC)?;
        Ok(self.memory.word(at).fetch_add(addend, Ordering::AcqRel))
    }

    /// Whether `count` bytes at `at` may be done to what needs `needs`.
    #[inline(always)]
    fn check(&self, at: usize, count: usize, needs: Rights) -> Result<(), OpError> {
        let len = self.memory.len();
        let fine = self.is_live() && self.rights.allow(needs) && count <= len && at <= len - count;
        if fine { Ok(()) } else { Err(self.refusal(at, count, needs)) }
    }

    /// As [`check`](Self::check), for a word.
    #[inline(always)]
    fn check_word(&self, at: usize, needs: Rights) -> Result<(), OpError> {
        self.check_words(at, 1, needs)
    }

    /// As [`check`](Self::check), for `count` words.
    #[inline(always)]
    fn check_words(&self, at: usize, count: usize, needs: Rights) -> Result<(), OpError> {
        self.check(at, count.saturating_mul(8), needs)?;
        if at.is_multiple_of(8) { Ok(()) } else { Err(OpError::Misaligned(at)) }
    }

    /// Why an operation is refused. Of what the check found, only a revocation may have come since,
    /// which is looked for first.
    #[cold]
    #[inline(never)]
    fn refusal(&self, at: usize, count: usize, needs: Rights) -> OpError {
        let Self { key, rights, generation, ref memory, .. } = *self;
        let refused = || OpError::check(key, (rights, memory.len()), (at, count, needs)).err();
        let refused = if self.is_live() { refused() } else { None };
        refused.unwrap_or(OpError::Revoked { key, generation })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
