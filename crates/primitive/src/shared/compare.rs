//! Comparisons of lines that others may write meanwhile, below the level at which bounds are known.

use crate::CacheLine;
use crate::limits::CACHE_LINE;

/// Lines that are compared at once.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 4;

/// The first of the lines at `theirs` that differs from the same one of `ours`; how many there are if none
/// does. `theirs` may be written meanwhile.
///
/// # Safety
/// `theirs` is valid for reads of as many lines, and 8-aligned.
#[inline]
pub(super) unsafe fn first_different_line(theirs: *const u8, ours: &[CacheLine]) -> usize {
    let start = ours.as_ptr().cast::<u8>();
    let mut line = 0;
    #[cfg(target_arch = "x86_64")]
    if ours.len() >= BLOCK && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2; the caller vouches for the lines.
        line = BLOCK * unsafe { equal_blocks(theirs, start, ours.len() / BLOCK) };
    }
    let differ = |line: usize| {
        // SAFETY: the line is one of `ours`, so it is inside both.
        unsafe { lines_differ(theirs.add(line * CACHE_LINE), start.add(line * CACHE_LINE)) }
    };
    while line < ours.len() && !differ(line) {
        line += 1;
    }
    line
}

/// How many of `count` blocks of lines are equal, before the first that is not.
///
/// # Safety
/// The processor has AVX2. Both are valid for reads of as many lines, and `theirs` is 8-aligned.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn equal_blocks(theirs: *const u8, ours: *const u8, count: usize) -> usize {
    use std::arch::x86_64::{
        __m256i, _mm256_or_si256, _mm256_setzero_si256, _mm256_testz_si256, _mm256_xor_si256,
    };
    #[repr(C, packed)]
    #[derive(Clone, Copy)]
    struct Half(__m256i);
    const HALVES: usize = 2 * BLOCK;
    for block in 0..count {
        let mut any = _mm256_setzero_si256();
        for half in block * HALVES..(block + 1) * HALVES {
            // SAFETY: the caller vouches for all lines; a volatile read gives out no reference and is
            // not assumed stable by the compiler.
            let different = unsafe {
                let theirs = theirs.cast::<Half>().add(half).read_volatile().0;
                _mm256_xor_si256(theirs, ours.cast::<Half>().add(half).read().0)
            };
            any = _mm256_or_si256(any, different);
        }
        if _mm256_testz_si256(any, any) == 0 {
            return block;
        }
    }
    count
}

/// Whether two cache lines differ; `theirs` may be written meanwhile.
///
/// # Safety
/// Both are valid for reads of 64 bytes, and `theirs` is 8-aligned.
#[inline(always)]
unsafe fn lines_differ(theirs: *const u8, ours: *const u8) -> bool {
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
