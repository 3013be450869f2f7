//! Shared memory under loom: a vector of loom's atomics, so that a missing acquire or release in a
//! protocol shows as a stale word.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::CacheLine;
use crate::limits::CACHE_LINE;
use crate::shared::SharedBytes;
use crate::sync::{AtomicU64, Ordering};

const WORD: usize = 8;

impl SharedBytes {
    /// Zeroed memory of the model.
    pub fn heap(len: usize) -> Self {
        let words = (0..len.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        Self { words: Arc::new(words), start: 0, len }
    }

    /// The word at byte `at`.
    ///
    /// # Panics
    /// If the word is not inside the run or `at` is not a multiple of eight.
    pub fn word(&self, at: usize) -> &AtomicU64 {
        self.check(at, 8);
        assert!(at.is_multiple_of(8));
        &self.words[self.start + at / 8]
    }

    /// Copies bytes out, word by word, with relaxed loads.
    pub fn read_into(&self, at: usize, out: &mut [u8]) {
        for (word, inside, outside) in self.parts(at, out.len()) {
            let bytes = word.load(Ordering::Relaxed).to_le_bytes();
            out[outside].copy_from_slice(&bytes[inside]);
        }
    }

    /// Copies bytes in, word by word, with relaxed stores; only the owner of the moment calls it.
    pub fn write_from(&self, at: usize, bytes: &[u8]) {
        for (word, inside, outside) in self.parts(at, bytes.len()) {
            // A load would hide from loom that others' loads before it are in a race with the store.
            let is_whole = inside.len() == WORD;
            let mut new = if is_whole { 0 } else { word.load(Ordering::Relaxed) }.to_le_bytes();
            new[inside].copy_from_slice(&bytes[outside]);
            word.store(u64::from_le_bytes(new), Ordering::Relaxed);
        }
    }

    /// As [`write_from`](Self::write_from): a model has no caches.
    pub fn write_ahead(&self, at: usize, bytes: &[u8], _next: usize) {
        self.write_from(at, bytes);
    }

    /// As [`read_into`](Self::read_into), which is word by word here.
    pub fn read_words(&self, at: usize, out: &mut [u8]) {
        self.read_into(at, out);
    }

    /// As [`write_from`](Self::write_from), which is word by word here.
    pub fn write_words(&self, at: usize, bytes: &[u8]) {
        self.write_from(at, bytes);
    }

    /// Copies bytes in from other memory.
    pub fn copy_part(&self, at: usize, from: &SharedBytes, part: Range<usize>) {
        let mut bytes = vec![0; part.len()];
        from.read_into(part.start, &mut bytes);
        self.write_from(at, &bytes);
    }

    /// Copies bytes out to other memory.
    pub fn copy_out(&self, part: Range<usize>, to: &SharedBytes, at: usize) {
        to.copy_part(at, self, part);
    }

    /// The words in which `len` bytes at `at` are; of each, which of its bytes, and which of the
    /// `len` these are.
    fn parts(
        &self,
        at: usize,
        len: usize,
    ) -> impl Iterator<Item = (&AtomicU64, Range<usize>, Range<usize>)> {
        self.check(at, len);
        let end = at + len;
        (at / WORD..end.div_ceil(WORD)).map(move |index| {
            let start = index * WORD;
            let (from, to) = (start.max(at), (start + WORD).min(end));
            (&self.words[self.start + index], from - start..to - start, from - at..to - at)
        })
    }

    /// The first line, from line `from` on, in which the run differs from `expected`.
    pub fn first_difference(&self, from: usize, expected: &[CacheLine]) -> Option<usize> {
        (from..expected.len()).find(|&line| {
            let at = |word| line * CACHE_LINE + word * WORD;
            let mut words = (0..).zip(&expected[line].0);
            words.any(|(word, expected)| self.load(at(word), Ordering::Relaxed) != *expected)
        })
    }

    /// Nothing: a model has no pages.
    pub fn pin(&self) -> io::Result<()> {
        Ok(())
    }

    /// Nothing: a model has no pages.
    pub fn unpin(&self) -> io::Result<()> {
        Ok(())
    }

    /// Nothing: a model has no pages.
    pub fn ask_huge_pages(&self) -> io::Result<()> {
        Ok(())
    }

    /// Nothing, in a model.
    pub fn prefetch_write(&self, _: usize, _: usize) {}

    /// Nothing: a model has no caches.
    pub fn prefetch(&self, _: usize, _: usize) {}
}
