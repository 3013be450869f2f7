//! Shared memory under loom: a vector of loom's atomics, so that a missing acquire or release in a
//! protocol shows as a stale word.

use super::SharedBytes;
use crate::{
    limits::CACHE_LINE,
    sync::{AtomicU64, Ordering},
};
use std::sync::Arc;

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
        self.check(at, out.len());
        for (i, byte) in out.iter_mut().enumerate() {
            let word = self.words[self.start + (at + i) / 8].load(Ordering::Relaxed);
            *byte = word.to_le_bytes()[(at + i) % 8];
        }
    }

    /// Copies bytes in, word by word, with relaxed stores; only the owner of the moment calls it.
    pub fn write_from(&self, at: usize, bytes: &[u8]) {
        self.check(at, bytes.len());
        for (i, byte) in bytes.iter().enumerate() {
            let cell = &self.words[self.start + (at + i) / 8];
            let mut word = cell.load(Ordering::Relaxed).to_le_bytes();
            word[(at + i) % 8] = *byte;
            cell.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
    }

    /// The first line of 64 bytes in which the run differs from `expected`.
    pub fn first_difference(&self, from: usize, expected: &[u8]) -> Option<usize> {
        (from..expected.len()).step_by(CACHE_LINE).find(|&at| {
            let mut line = [0; CACHE_LINE];
            self.read_into(at, &mut line);
            line != expected[at..at + CACHE_LINE]
        })
    }

    /// Nothing, in a model.
    pub fn prefetch_write(&self, _: usize, _: usize) {}
}
