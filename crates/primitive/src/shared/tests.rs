//! Tests of [`SharedBytes`]: bounds, lifetime, copies and words that are never torn.

use proptest::prelude::*;

use crate::limits::CACHE_LINE;
use crate::sync::Ordering;
use crate::{CacheLine, SharedBytes};

#[test]
#[should_panic(expected = "access to bytes 60..68 of a shared memory of 64 bytes")]
fn a_word_past_the_end_is_refused() {
    SharedBytes::heap(64).load(60, Ordering::Relaxed);
}

#[test]
#[should_panic(expected = "of a shared memory of 64 bytes")]
fn an_offset_that_wraps_is_refused() {
    SharedBytes::heap(64).read_into(usize::MAX - 3, &mut [0; 8]);
}

#[test]
fn a_slice_keeps_its_memory_alive() {
    let part = SharedBytes::heap(64).slice(16, 16);
    part.store(8, 3, Ordering::Relaxed);
    assert_eq!(part.load(8, Ordering::Relaxed), 3);
}

/// One thread writes words whose bytes are all alike, from memory of every alignment, the other
/// reads them into such: each word that it sees is one that was written.
#[test]
fn a_word_is_never_torn() {
    const BYTES: usize = 4096;
    let memory = SharedBytes::heap(BYTES + 16);
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..20_000usize {
                let (skew, lead) = (round % 8, round / 8 % 8);
                let bytes = vec![round as u8; skew + BYTES];
                match round % 3 {
                    0 => memory.write_words(lead, &bytes[skew..]),
                    _ => {
                        let from = SharedBytes::heap(skew + BYTES);
                        from.write_from(0, &bytes);
                        memory.copy_part(lead, &from, skew..skew + BYTES);
                    }
                }
            }
            is_done.store(true, Ordering::Release);
        });
        let (into, mut round) = (SharedBytes::heap(BYTES + 8), 0);
        let mut bytes = vec![0; BYTES + 8];
        while !is_done.load(Ordering::Acquire) {
            let skew = round % 8;
            round += 1;
            // The words that every round covers.
            let words = &mut bytes[skew..skew + BYTES - 16];
            match round % 3 {
                0 => memory.read_words(8, words),
                _ => {
                    memory.copy_out(8..8 + words.len(), &into, skew);
                    into.read_into(skew, words);
                }
            }
            for (at, word) in words.chunks_exact(8).enumerate() {
                assert!(word.iter().all(|byte| *byte == word[0]), "{word:?} at word {at}");
            }
        }
    });
}

#[test]
fn memory_on_the_heap_is_aligned_and_may_be_refused() {
    for len in [1, 8, 100, 1 << 20] {
        let memory = SharedBytes::heap(len);
        assert_eq!((memory.len(), memory.base.as_ptr().addr() % 128), (len, 0));
    }
    for len in [usize::MAX, isize::MAX as usize] {
        assert!(SharedBytes::try_heap(len).is_none());
    }
}

proptest! {
    #[test]
    fn bytes_come_back_as_they_went_in(bytes in proptest::collection::vec(any::<u8>(), 0..5000), at in 0usize..200) {
        let memory = SharedBytes::heap(at + bytes.len() + 8);
        memory.write_from(at, &bytes);
        let mut out = vec![0; bytes.len()];
        memory.read_into(at, &mut out);
        prop_assert_eq!(&out, &bytes);
        let copy = SharedBytes::heap(memory.len() + 8);
        copy.copy_from(8, &memory);
        copy.read_into(at + 8, &mut out);
        prop_assert_eq!(&out, &bytes);
        copy.copy_part(3, &memory, at..at + bytes.len());
        copy.read_into(3, &mut out);
        prop_assert_eq!(&out, &bytes);
        copy.write_words(5, &bytes);
        copy.copy_out(5..5 + bytes.len(), &memory, at);
        out.fill(0);
        memory.read_words(at, &mut out);
        prop_assert_eq!(&out, &bytes);
    }

    #[test]
    fn the_first_difference_is_the_first(len in 1usize..20, from in 0usize..20, changes in proptest::collection::vec(0usize..1280, 0..4)) {
        let from = from % len;
        let bytes = len * CACHE_LINE;
        let memory = SharedBytes::heap(bytes);
        let mut expected = None;
        for change in changes.into_iter().filter(|c| *c < bytes) {
            memory.write_from(change, &[1]);
            let line = change / CACHE_LINE;
            if line >= from {
                expected = Some(expected.unwrap_or(usize::MAX).min(line));
            }
        }
        prop_assert_eq!(memory.first_difference(from, &vec![CacheLine::default(); len]), expected);
    }
}
