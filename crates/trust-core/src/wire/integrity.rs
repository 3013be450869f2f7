//! [`Landing`]: where the other side's writes appear, and the check that a buffer is intact.
//!
//! Where both sides of a pair use the same memory, they appear there, and the signal word is
//! written last. So it is where each has its own and the transport between them is a stream, which
//! brings a signal behind a write with it. Over other transports the bytes of one write have no
//! order: the signal word may be there before what it hands over. A second write, for the signal
//! word alone, would say that the first is there, and costs as much as the first
//! (`docs/decisions/0022-batch-checksum.md`). So a buffer travels as one write, with a word behind
//! it that is computed from all the others, the *checksum*:
//!
//! ```text
//!   | signal | requests, or requests and replies .. | checksum |
//! ```
//!
//! The side that finds the right signal copies the buffer, and checks its copy. Until the checksum
//! is right, something is still on its way, and the batch has not come. What is on its way stands
//! among what the buffer had before, which differs at least in the sequence number of its signal.
//!
//! The copy is needed: a transport may write a byte twice (as copying by a processor does, where
//! the length is odd), and may do so when everything is there. So nothing but what the other side
//! wrote is ever in the memory that it writes to.

use std::cell::Cell;

use primitive::SharedBytes;
use primitive::sync::{AtomicU64, Ordering};
use transport_api::integrity::is_intact;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Where the other side's writes appear.
#[derive(Debug)]
pub(crate) struct Landing {
    memory: SharedBytes,
    /// Whether what arrives has no order: it is checked, and copied to the memory that this side
    /// works in.
    is_checked: bool,
    /// The last batch that was taken from there.
    taken: Cell<u32>,
}

impl Landing {
    /// `memory` is the pair's on this side, which must be fresh; if `is_checked`, what arrives in it
    /// has no order. Returns the memory that this side works in.
    pub(crate) fn new(memory: SharedBytes, is_checked: bool) -> (Self, SharedBytes) {
        let own = if is_checked { SharedBytes::heap(memory.len()) } else { memory.clone() };
        (Self { memory, is_checked, taken: Cell::new(0) }, own)
    }

    /// The word at `at`.
    #[inline(always)]
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.memory.words().load(at, Ordering::Acquire)
    }

    /// The word at byte `at`.
    #[inline(always)]
    pub(crate) fn place(&self, at: usize) -> &AtomicU64 {
        self.memory.word(at)
    }

    /// Whether batch `sequence`, whose signal is word `start` here, has come with all of its
    /// `count` words; if so, they are in `own`.
    #[inline(always)]
    pub(crate) fn take(
        &self,
        sequence: u32,
        own: &SharedBytes,
        start: usize,
        count: usize,
    ) -> bool {
        !self.is_checked || self.taken.get() == sequence || self.copy(sequence, own, start, count)
    }

    #[inline(never)]
    fn copy(&self, sequence: u32, own: &SharedBytes, start: usize, count: usize) -> bool {
        let bytes = start * WORD..(start + count + 1) * WORD;
        self.memory.copy_out(bytes, own, start * WORD);
        let expected = is_intact(own, start, count);
        if expected {
            self.taken.set(sequence);
        }
        expected
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;
    use transport_api::integrity::checksum;

    use super::*;

    fn memory(words: &[u64]) -> SharedBytes {
        let memory = SharedBytes::heap(words.len() * 8);
        for (at, word) in words.iter().enumerate() {
            memory.words().store(at, *word, Ordering::Relaxed);
        }
        memory
    }

    #[test]
    fn a_batch_is_taken_when_it_is_intact_and_once() {
        let (landing, own) = Landing::new(memory(&[7, 8, 9, 0]), true);
        assert!(!landing.take(5, &own, 0, 3));
        landing.memory.words().store(3, checksum(&landing.memory, 0, 3), Ordering::Relaxed);
        assert!(landing.take(5, &own, 0, 3));
        // The owner changes its copy; a write that comes twice does not.
        own.words().store(1, 1, Ordering::Relaxed);
        assert!(landing.take(5, &own, 0, 3));
        assert_eq!((own.load(8, Ordering::Relaxed), landing.word(1)), (1, 8));
        landing.memory.words().store(0, 6, Ordering::Relaxed);
        assert!(!landing.take(6, &own, 0, 3), "another signal with the checksum of the last");
        let (shared, own) = Landing::new(memory(&[7, 8, 9, 0]), false);
        assert!(shared.take(6, &own, 0, 3), "a signal that was written last is enough");
        own.words().store(1, 1, Ordering::Relaxed);
        assert_eq!(shared.word(1), 1, "the same memory");
    }

    proptest! {
        #[test]
        fn a_mixture_of_two_fails_the_check(
            mut old in proptest::collection::vec(0u64..3, 3..40),
            mut new in proptest::collection::vec(0u64..3, 3..40),
            mut arrived in proptest::collection::vec(any::<bool>(), 40),
        ) {
            // The check begins when the right signal is there, which differs from the last: with
            // the last, the old batch matches its own checksum.
            (old[0], new[0], arrived[0]) = (1, 2, true);
            let sealed = |words: &[u64]| {
                let count = words.len();
                let memory = memory(&[words, &[0]].concat());
                memory.words().store(count, checksum(&memory, 0, count), Ordering::Relaxed);
                memory
            };
            let (count, before, after) = (new.len(), sealed(&old), sealed(&new));
            let mixed = memory(&vec![0; old.len().max(count) + 1]);
            mixed.copy_from(0, &before);
            for at in (0..=count).filter(|at| arrived[*at % 40]) {
                mixed.words().store(at, after.words().load(at, Ordering::Relaxed), Ordering::Relaxed);
            }
            let all = |at: usize| mixed.words().load(at, Ordering::Relaxed);
            let expected = (0..=count).all(|at| all(at) == after.words().load(at, Ordering::Relaxed));
            prop_assert_eq!(is_intact(&mixed, 0, count), expected);
        }
    }
}
