//! Copies and comparisons of memory that others may write meanwhile, below the level at
//! which bounds are known.

#[cfg(not(target_arch = "x86_64"))]
use crate::limits::CACHE_LINE;

/// Asks the processor for the line at `address`, to write it soon.
#[inline(always)]
pub(super) fn prefetch_for_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on the caches, whatever the address; processors without
    // PREFETCHW treat it as a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Whether two cache lines differ; `theirs` may be written meanwhile.
///
/// # Safety
/// Both are valid for reads of 64 bytes, and `theirs` is 8-aligned.
#[inline(always)]
pub(super) unsafe fn lines_differ(theirs: *const u8, ours: *const u8) -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller vouches for both lines; SSE2 is part of x86-64; volatile reads give out no
    // reference and are not assumed stable by the compiler.
    unsafe {
        use std::arch::x86_64::{
            __m128i, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_or_si128, _mm_setzero_si128,
            _mm_xor_si128,
        };
        #[repr(C, packed)]
        #[derive(Clone, Copy)]
        struct Block(__m128i);
        let different = |block: usize| {
            let theirs = theirs.cast::<Block>().add(block).read_volatile().0;
            let ours = ours.cast::<Block>().add(block).read().0;
            _mm_xor_si128(theirs, ours)
        };
        let any = _mm_or_si128(
            _mm_or_si128(different(0), different(1)),
            _mm_or_si128(different(2), different(3)),
        );
        _mm_movemask_epi8(_mm_cmpeq_epi8(any, _mm_setzero_si128())) != 0xffff
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller vouches for both lines; volatile reads give out no reference.
    unsafe {
        let (theirs, ours) = (theirs.cast::<u64>(), ours.cast::<u64>());
        (0..CACHE_LINE / 8)
            .any(|word| theirs.add(word).read_volatile() != ours.add(word).read_unaligned())
    }
}

/// A copy that the compiler cannot see through, for memory that may change underneath.
///
/// # Safety
/// Both runs are valid for `len` bytes and do not overlap.
#[inline(always)]
pub(super) unsafe fn copy_opaque(to: *mut u8, from: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller vouches for both runs; the direction flag is clear by the ABI.
    unsafe {
        if len <= 128 {
            let mut at = 0;
            while at + 8 <= len {
                let word = from.add(at).cast::<[u8; 8]>().read_volatile();
                to.add(at).cast::<[u8; 8]>().write_volatile(word);
                at += 8;
            }
            while at < len {
                to.add(at).write_volatile(from.add(at).read_volatile());
                at += 1;
            }
            return;
        }
        std::arch::asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller vouches for both runs.
    unsafe {
        copy_words_in(to, from, len);
    }
}

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// A word at any address, which is one access where the processor has such; an array of bytes would
/// be eight.
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Loose(u64);

/// Copies by accesses that the compiler may neither merge, repeat nor drop: each word of the target
/// that the run covers by one store, the bytes before and behind them one by one.
///
/// # Safety
/// Both runs are valid for `len` bytes. Where they overlap, what is copied is unspecified.
#[inline(always)]
pub(super) unsafe fn copy_words_in(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: `at` never passes `len`, and words are only accessed where a whole one is left; the
    // target is aligned from `head` on, and so is the source where it is read as `u64`.
    unsafe {
        let copy_byte = |at| to.add(at).write_volatile(from.add(at).read_volatile());
        let head = to.addr().wrapping_neg() % WORD;
        let mut at = 0;
        while at < head.min(len) {
            copy_byte(at);
            at += 1;
        }
        if from.wrapping_add(at).addr().is_multiple_of(WORD) {
            while at + WORD <= len {
                let word = from.add(at).cast::<u64>().read_volatile();
                to.add(at).cast::<u64>().write_volatile(word);
                at += WORD;
            }
        } else {
            while at + WORD <= len {
                let Loose(word) = from.add(at).cast::<Loose>().read_volatile();
                to.add(at).cast::<u64>().write_volatile(word);
                at += WORD;
            }
        }
        while at < len {
            copy_byte(at);
            at += 1;
        }
    }
}

/// As [`copy_words_in`], where it is each word of the source that is one load.
///
/// # Safety
/// As [`copy_words_in`].
#[inline(always)]
pub(super) unsafe fn copy_words_out(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: `at` never passes `len`, and words are only accessed where a whole one is left; the
    // source is aligned from `head` on, and so is the target where it is written as `u64`.
    unsafe {
        let copy_byte = |at| to.add(at).write_volatile(from.add(at).read_volatile());
        let head = from.addr().wrapping_neg() % WORD;
        let mut at = 0;
        while at < head.min(len) {
            copy_byte(at);
            at += 1;
        }
        if to.wrapping_add(at).addr().is_multiple_of(WORD) {
            while at + WORD <= len {
                let word = from.add(at).cast::<u64>().read_volatile();
                to.add(at).cast::<u64>().write_volatile(word);
                at += WORD;
            }
        } else {
            while at + WORD <= len {
                let word = from.add(at).cast::<u64>().read_volatile();
                to.add(at).cast::<Loose>().write_volatile(Loose(word));
                at += WORD;
            }
        }
        while at < len {
            copy_byte(at);
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every alignment of both ends, and every length up to some words.
    #[test]
    fn words_and_the_edges_around_them_are_copied_and_nothing_else() {
        const ROOM: usize = 64;
        let from: Vec<u8> = (1..=ROOM as u8).collect();
        for (source, target) in (0..8).flat_map(|source| (0..8).map(move |to| (source, to))) {
            for len in 0..=ROOM - 8 {
                let to = [0xee_u8; ROOM];
                let mut expected = to;
                expected[target..target + len].copy_from_slice(&from[source..source + len]);
                for copy in [copy_words_in, copy_words_out] {
                    let mut to = to;
                    // SAFETY: both runs are inside the arrays, which do not overlap.
                    unsafe {
                        copy(to.as_mut_ptr().add(target), from.as_ptr().add(source), len);
                    }
                    assert_eq!(to, expected, "{len} bytes from {source} to {target}");
                }
            }
        }
    }
}
