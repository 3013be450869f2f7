//! Copies of memory that others may write meanwhile, of which no word is torn, below the level at which
//! bounds are known.

/// Bytes of a word.
pub(super) const WORD: usize = size_of::<u64>();

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
pub(super) unsafe fn copy_bytes(to: *mut u8, from: *const u8, len: usize) {
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
pub(super) unsafe fn copy_whole_words(to: *mut u8, from: *const u8, count: usize) {
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
