//! Copies and comparisons of memory that others may write meanwhile, below the level at
//! which bounds are known.

use crate::CacheLine;
use crate::limits::CACHE_LINE;

/// Asks the processor for the line `offset` bytes behind `base`, to write it soon.
#[inline(always)]
pub(super) fn prefetch_for_write(base: *const u8, offset: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on the caches, whatever the address; processors without
    // PREFETCHW treat it as a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{} + {}]", in(reg) base, in(reg) offset, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (base, offset);
}

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

/// Bytes up to which a copy by words is the fastest.
#[cfg(target_arch = "x86_64")]
pub(super) const SHORT: usize = 128;

/// Distances of which a string instruction is slow, in bytes: from the source to the target, modulo the
/// size of a page. Each load then has the low bits of the address of a store that has not ended, and
/// waits for that; *measured*: 20 ns more for 4 KiB of this processor's own memory, 400 ns more where
/// the target's lines come from a processor far away.
#[cfg(target_arch = "x86_64")]
const ALIASES: std::ops::Range<usize> = 1..129;

/// Whether the target is at such a distance.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn is_aliased(to: *mut u8, from: *const u8) -> bool {
    ALIASES.contains(&(to.addr().wrapping_sub(from.addr()) % 4096))
}

/// Bytes up to which copies out of shared memory are left to `memcpy`, whose moves of vectors are faster
/// than a string instruction; *measured* on Sapphire Rapids, memory in the nearest cache: 10 instead of 19
/// ns for 1,000 bytes, 17 instead of 25 for 2 KiB; no difference from 8 KiB on.
#[cfg(target_arch = "x86_64")]
const MEDIUM: usize = 2048;

/// As [`copy_opaque`], into memory of this thread alone: its lines are here, and a string instruction
/// saves nothing by not fetching those that it overwrites.
///
/// # Safety
/// As [`copy_opaque`].
#[inline(always)]
pub(super) unsafe fn copy_out(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller keeps the contract of both.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if (SHORT + 1..=MEDIUM).contains(&len) {
            return copy_medium(to, from, len);
        }
        copy_opaque(to, from, len);
    }
}

/// Has `memcpy` copy; called from assembly, it is no access that the compiler knows about.
///
/// # Safety
/// As [`copy_opaque`].
#[cfg(target_arch = "x86_64")]
#[inline(never)]
unsafe fn copy_medium(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the symbol is the C library's, which Rust's own needs as well; never called from Rust.
    unsafe extern "C" {
        fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
    }
    // SAFETY: the caller vouches for both runs. The stack is aligned for a call, as in all assembly without
    // `nostack`, and what the ABI lets a function change is listed. `memcpy` takes whatever bytes it loads,
    // and may load one twice.
    unsafe {
        std::arch::asm!("call {memcpy}", memcpy = sym memcpy, inout("rdi") to => _, inout("rsi") from => _, inout("rdx") len => _, clobber_abi("C"));
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
        if len <= SHORT {
            copy_short(to, from, len);
        } else if is_aliased(to, from) {
            copy_blocks(to, from, len);
        } else {
            std::arch::asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller vouches for both runs.
    unsafe {
        copy_words_in(to, from, len);
    }
}

/// # Safety
/// As [`copy_opaque`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) unsafe fn copy_short(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller vouches for both runs.
    unsafe {
        // Volatile accesses to arrays of eight bytes would be eight accesses each.
        let words = len / WORD;
        copy_whole_words(to, from, words);
        let at = words * WORD;
        copy_bytes(to.add(at), from.add(at), len - at);
    }
}

/// Copies 64 bytes at a time, from the end to the beginning: where a load has the low bits of the
/// address of a store, that comes later.
///
/// # Safety
/// As [`copy_opaque`].
#[cfg(target_arch = "x86_64")]
#[inline(never)]
unsafe fn copy_blocks(to: *mut u8, from: *const u8, len: usize) {
    let (rest, small) = (len % 64, len % 16);
    // SAFETY: the caller vouches for both runs, inside which all accesses are: the first loop takes what
    // is behind `rest` bytes, the second what is behind the first `small` bytes of those.
    unsafe {
        std::arch::asm!(
            "cmp {left}, {rest}",
            "je 3f",
            "2:",
            "movups {a}, [{from} + {left} - 16]",
            "movups {b}, [{from} + {left} - 32]",
            "movups {c}, [{from} + {left} - 48]",
            "movups {d}, [{from} + {left} - 64]",
            "movups [{to} + {left} - 16], {a}",
            "movups [{to} + {left} - 32], {b}",
            "movups [{to} + {left} - 48], {c}",
            "movups [{to} + {left} - 64], {d}",
            "sub {left}, 64",
            "cmp {left}, {rest}",
            "jne 2b",
            "3:",
            "cmp {left}, {small}",
            "je 5f",
            "4:",
            "movups {a}, [{from} + {left} - 16]",
            "movups [{to} + {left} - 16], {a}",
            "sub {left}, 16",
            "cmp {left}, {small}",
            "jne 4b",
            "5:",
            from = in(reg) from,
            to = in(reg) to,
            left = inout(reg) len => _,
            rest = in(reg) rest,
            small = in(reg) small,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
        copy_short(to, from, small);
    }
}

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Words from which a run is copied by a string instruction, if both runs are aligned; *measured*: at
/// 512 bytes it is as fast as single words (14 ns), at 4 KiB five times as fast, which is as fast as
/// `memcpy` of the same alignment.
#[cfg(target_arch = "x86_64")]
const STRING_WORDS: usize = 64;

/// A word at any address, which is one access where the processor has such; an array of bytes would
/// be eight.
#[cfg(not(target_arch = "x86_64"))]
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
    // SAFETY: the caller vouches for both runs.
    unsafe { copy_words(to, from, len, to.addr()) }
}

/// As [`copy_words_in`], where it is each word of the source that is one load.
///
/// # Safety
/// As [`copy_words_in`].
#[inline(always)]
pub(super) unsafe fn copy_words_out(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller vouches for both runs.
    unsafe { copy_words(to, from, len, from.addr()) }
}

/// Copies so that each word of that run which begins at `shared` is one access.
///
/// # Safety
/// As [`copy_words_in`].
#[inline(always)]
unsafe fn copy_words(to: *mut u8, from: *const u8, len: usize, shared: usize) {
    // The one case that is to cost next to nothing; the length is a constant in most callers.
    if len == WORD && shared.is_multiple_of(WORD) {
        // SAFETY: the caller vouches for both runs.
        unsafe { copy_one(to, from) };
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if len >= STRING_WORDS * WORD && (to.addr() | from.addr() | len).is_multiple_of(WORD) {
        // SAFETY: the caller vouches for both runs, which are aligned.
        unsafe { copy_string(to, from, len / WORD) };
        return;
    }
    // SAFETY: the caller vouches for both runs.
    unsafe { copy_edged(to, from, len, shared) }
}

/// As [`copy_words`], of runs that may begin and end inside a word.
///
/// # Safety
/// As [`copy_words_in`].
#[inline(never)]
unsafe fn copy_edged(to: *mut u8, from: *const u8, len: usize, shared: usize) {
    let head = (shared.wrapping_neg() % WORD).min(len);
    let (words, tail) = ((len - head) / WORD, (len - head) % WORD);
    // SAFETY: the three parts are inside the runs and follow each other; the words begin where the
    // shared run is aligned.
    unsafe {
        copy_bytes(to, from, head);
        copy_whole_words(to.add(head), from.add(head), words);
        let at = head + words * WORD;
        copy_bytes(to.add(at), from.add(at), tail);
    }
}

/// Copies a word by one load and one store, where the processor has them for any address.
///
/// # Safety
/// Both runs are valid for a word.
#[inline(always)]
unsafe fn copy_one(to: *mut u8, from: *const u8) {
    // SAFETY: the caller vouches for both. A move of a quadword is one access where that is aligned
    // (Intel SDM volume 3, Guaranteed Atomic Operations).
    #[cfg(target_arch = "x86_64")]
    unsafe {
        // Volatile accesses to unaligned words would pass through the stack.
        std::arch::asm!("mov {word}, [{from}]", "mov [{to}], {word}", word = out(reg) _, from = in(reg) from, to = in(reg) to, options(nostack, preserves_flags));
    }
    // SAFETY: the caller vouches for both; only aligned runs are accessed as `u64`.
    #[cfg(not(target_arch = "x86_64"))]
    unsafe {
        let word = match from.addr().is_multiple_of(WORD) {
            true => from.cast::<u64>().read_volatile(),
            false => from.cast::<Loose>().read_volatile().0,
        };
        match to.addr().is_multiple_of(WORD) {
            true => to.cast::<u64>().write_volatile(word),
            false => to.cast::<Loose>().write_volatile(Loose(word)),
        }
    }
}

/// # Safety
/// Both runs are valid for `len` bytes.
#[inline(always)]
unsafe fn copy_bytes(to: *mut u8, from: *const u8, len: usize) {
    for at in 0..len {
        // SAFETY: inside both runs.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
    }
}

/// Copies words, each by one load and one store, whatever the alignment of either run: a word is one
/// access where it is aligned.
///
/// # Safety
/// Both runs are valid for `count` words.
#[inline(always)]
unsafe fn copy_whole_words(to: *mut u8, from: *const u8, count: usize) {
    #[cfg(target_arch = "x86_64")]
    if count >= STRING_WORDS && to.addr().is_multiple_of(WORD) && from.addr().is_multiple_of(WORD) {
        // SAFETY: the caller vouches for both runs, which are aligned.
        unsafe { copy_string(to, from, count) };
        return;
    }
    let mut at = 0;
    #[cfg(target_arch = "x86_64")]
    while at + 4 <= count {
        // SAFETY: inside both runs.
        unsafe { copy_four(to.add(at * WORD), from.add(at * WORD)) };
        at += 4;
    }
    while at < count {
        // SAFETY: inside both runs.
        unsafe { copy_one(to.add(at * WORD), from.add(at * WORD)) };
        at += 1;
    }
}

/// Copies four words as [`copy_one`] does each: with half of a loop's instructions.
///
/// # Safety
/// Both runs are valid for four words.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_four(to: *mut u8, from: *const u8) {
    // SAFETY: the caller vouches for both runs; each move is one access, as in `copy_one`.
    unsafe {
        std::arch::asm!(
            "mov {one}, [{from}]",
            "mov {two}, [{from} + 8]",
            "mov {three}, [{from} + 16]",
            "mov {four}, [{from} + 24]",
            "mov [{to}], {one}",
            "mov [{to} + 8], {two}",
            "mov [{to} + 16], {three}",
            "mov [{to} + 24], {four}",
            one = out(reg) _,
            two = out(reg) _,
            three = out(reg) _,
            four = out(reg) _,
            from = in(reg) from,
            to = in(reg) to,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies words by a string instruction.
///
/// # Safety
/// Both runs are valid for `count` words, and aligned for them.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_string(to: *mut u8, from: *const u8, count: usize) {
    // SAFETY: the caller vouches for both runs; the direction flag is clear by the ABI. The
    // instruction moves one quadword at a time (Intel SDM volume 2, MOVS), and an aligned quadword
    // is one access (volume 3, Guaranteed Atomic Operations). As both runs are aligned, the larger
    // blocks of a fast string have whole quadwords. If only one run were aligned, a block might begin
    // or end inside a quadword of it.
    unsafe {
        std::arch::asm!("rep movsq", inout("rcx") count => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Short, medium and long ones, at distances that a string instruction is slow at and others.
    #[test]
    fn opaque_copies_take_what_is_asked_for_and_nothing_else() {
        const ROOM: usize = 4 * 4096;
        let from: Vec<u8> = (0..ROOM).map(|byte| (byte / 7) as u8 | 1).collect();
        for (source, target) in [(0, 0), (3, 0), (16, 24), (24, 16), (5, 900), (9, 2000), (64, 64)]
        {
            for len in (0..700).chain([1023, 1024, 1025, 1088, 2047, 2048, 2049, 4096, 4640, 9001])
            {
                let mut to = vec![0; ROOM];
                let mut expected = vec![0xee; ROOM];
                // The same distance, whatever the addresses of the two.
                let distance = to.as_ptr().addr().wrapping_sub(from.as_ptr().addr());
                let target = target + distance.wrapping_neg() % 4096;
                expected[target..target + len].copy_from_slice(&from[source..source + len]);
                for copy in [copy_opaque, copy_out] {
                    to.fill(0xee_u8);
                    // SAFETY: both runs are inside the vectors, which do not overlap.
                    unsafe {
                        copy(to.as_mut_ptr().add(target), from.as_ptr().add(source), len);
                    }
                    assert!(to == expected, "{len} bytes from {source} to {target}");
                }
            }
        }
    }

    /// Every alignment of both ends, and every length up to some words.
    #[test]
    fn words_and_the_edges_around_them_are_copied_and_nothing_else() {
        // Some more than what is copied by a string instruction.
        const ROOM: usize = 600;
        let from: Vec<u8> = (0..ROOM).map(|byte| byte as u8 | 1).collect();
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
