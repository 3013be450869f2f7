//! Copies into memory that another processor reads: AVX loads and stores, with each line prefetched for
//! writing.
//!
//! The lines come from the processor that read them last. `rep movsb` keeps few of them in flight, and a
//! second one waits until the first has ended. *Measured* on Sapphire Rapids, frames between two processes,
//! near: 257 instead of 341 ns for 4 KiB that stay unread; Indirect Put of 512 bytes 452 instead of 530 ns.

use crate::shared::by_words::copy_words_in;
use crate::shared::raw::{copy_opaque, prefetch_for_write};
#[cfg(target_arch = "x86_64")]
use crate::{
    limits::CACHE_LINE,
    shared::raw::{SHORT, copy_short, is_aliased},
};

/// From this length on, `rep movsb` copies; *measured* up to 32 KiB only.
#[cfg(any(target_arch = "x86_64", test))]
const LONG: usize = 1 << 17;

/// Up to this length, a copy without AVX prefetches the line of `next` first: during a longer one, the
/// reader would take it back.
const NEXT_FIRST: usize = 1024;

/// From this length on, words are copied with AVX. Below, `rep movsb` takes lines without fetching them: a
/// stream of 512 bytes that their receiver does not read takes 45 ns, and 58 with AVX.
#[cfg(target_arch = "x86_64")]
const MANY_WORDS: usize = 1024;

/// Copies lines, of which there is at least one. Prefetches each eight lines before it is written, and the
/// line at `next` eight lines before the end. `$block` copies a line.
#[cfg(target_arch = "x86_64")]
macro_rules! copy_lines {
    ($to:expr, $from:expr, $lines:expr, $next:expr, $($block:literal),*) => {
        std::arch::asm!(
            "cmp rcx, 8",
            "jbe 3f",
            "2:",
            "prefetchw [rdi + 512]",
            $($block,)*
            "add rsi, 64",
            "add rdi, 64",
            "dec rcx",
            "cmp rcx, 8",
            "jne 2b",
            "3:",
            "prefetchw [{next}]",
            "4:",
            $($block,)*
            "add rsi, 64",
            "add rdi, 64",
            "dec rcx",
            "jnz 4b",
            "vzeroupper",
            inout("rdi") $to => _,
            inout("rsi") $from => _,
            inout("rcx") $lines => _,
            next = in(reg) $next,
            clobber_abi("C"),
            options(nostack),
        )
    };
}

/// As [`copy_opaque`]. The caller stores to `next` afterwards, wherever that is. With AVX, its line is
/// prefetched 512 bytes before the end, not earlier, because the reader polls it and would take it back.
///
/// # Safety
/// As [`copy_opaque`].
#[inline(always)]
pub(super) unsafe fn copy_ahead(to: *mut u8, from: *const u8, len: usize, next: *const u8) {
    #[cfg(target_arch = "x86_64")]
    if (SHORT + 1..LONG).contains(&len) && has_vectors() && !is_aliased(to, from) {
        // SAFETY: the caller vouches for both runs; the processor has AVX.
        return unsafe { copy_vectors(to, from, len, next) };
    }
    if len <= NEXT_FIRST {
        prefetch_for_write(next, 0);
    }
    // SAFETY: the caller keeps the contract.
    unsafe { copy_opaque(to, from, len) }
}

/// As [`copy_words_in`], from memory without a concurrent writer.
///
/// # Safety
/// As [`copy_words_in`]; no store to `from` is concurrent.
#[inline(always)]
pub(super) unsafe fn copy_words_ahead(to: *mut u8, from: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if (MANY_WORDS..LONG).contains(&len) && to.addr().is_multiple_of(8) && has_vectors() {
        // SAFETY: the caller vouches for both runs; the processor has AVX.
        return unsafe { copy_word_vectors(to, from, len) };
    }
    // SAFETY: the caller keeps the contract.
    unsafe { copy_words_in(to, from, len) }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn has_vectors() -> bool {
    std::arch::is_x86_feature_detected!("avx")
}

/// # Safety
/// As [`copy_opaque`], of at least a line; the processor has AVX.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "avx")]
unsafe fn copy_vectors(to: *mut u8, from: *const u8, len: usize, next: *const u8) {
    // SAFETY: the caller vouches for both runs, in which the lines and the rest are; a prefetch has no
    // effect but on the caches; what the instructions change is listed.
    unsafe {
        copy_lines!(
            to,
            from,
            len / CACHE_LINE,
            next,
            "vmovdqu ymm0, [rsi]",
            "vmovdqu ymm1, [rsi + 32]",
            "vmovdqu [rdi], ymm0",
            "vmovdqu [rdi + 32], ymm1"
        );
        let rest = len % CACHE_LINE;
        copy_short(to.add(len - rest), from.add(len - rest), rest);
    }
}

/// # Safety
/// As [`copy_words_ahead`], of more than a line; `to` is 8-aligned, and the processor has AVX.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "avx")]
unsafe fn copy_word_vectors(to: *mut u8, from: *const u8, len: usize) {
    let head = to.addr().wrapping_neg() % 16;
    let lines = (len - head) / CACHE_LINE;
    let behind = head + lines * CACHE_LINE;
    // SAFETY: the caller vouches for both runs, in which the three parts are, one behind the other. A
    // processor with AVX stores 16 aligned bytes at once (Intel SDM volume 3, Guaranteed Atomic
    // Operations), so no word is torn; the loads may be: `from` has no writer. What the instructions
    // change is listed.
    unsafe {
        copy_words_in(to, from, head);
        copy_lines!(
            to.add(head),
            from.add(head),
            lines,
            to.add(len - 1),
            "vmovdqu xmm0, [rsi]",
            "vmovdqu xmm1, [rsi + 16]",
            "vmovdqu xmm2, [rsi + 32]",
            "vmovdqu xmm3, [rsi + 48]",
            "vmovdqa [rdi], xmm0",
            "vmovdqa [rdi + 16], xmm1",
            "vmovdqa [rdi + 32], xmm2",
            "vmovdqa [rdi + 48], xmm3"
        );
        copy_words_in(to.add(behind), from.add(behind), len - behind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Short, medium and long ones, from and to every alignment that makes a difference.
    #[test]
    fn what_is_asked_for_is_copied_and_nothing_else() {
        #[cfg(target_arch = "x86_64")]
        let has_vectors = has_vectors();
        #[cfg(not(target_arch = "x86_64"))]
        let has_vectors = false;
        if !has_vectors {
            eprintln!("no AVX: only the copies without it are tested");
        }
        const ROOM: usize = LONG + 4 * 4096;
        let from: Vec<u8> = (0..ROOM).map(|byte| (byte / 7) as u8 | 1).collect();
        let mut to = vec![0xee; ROOM];
        for (source, target) in [(0, 0), (3, 8), (16, 24), (24, 16), (5, 901), (9, 2000), (64, 64)]
        {
            for len in (0..700).chain([1023, 1088, 2049, 4096, 4640, LONG - 1, LONG, LONG + 1]) {
                for in_words in [false, true] {
                    let (to_start, from_start) = (to.as_mut_ptr(), from.as_ptr());
                    // SAFETY: both runs are inside the vectors, which do not overlap.
                    unsafe {
                        let (to, from) = (to_start.add(target), from_start.add(source));
                        match in_words {
                            true => copy_words_ahead(to, from, len),
                            false => copy_ahead(to, from, len, to_start),
                        }
                    }
                    let written = &mut to[target..target + len];
                    assert!(*written == from[source..source + len], "{len} from {source}");
                    written.fill(0xee);
                    let is_clean = to[..target + len + 128].iter().all(|byte| *byte == 0xee);
                    assert!(is_clean, "{len} bytes from {source} to {target}");
                }
            }
        }
    }
}
