//! Copies of memory that others may write meanwhile, which the compiler cannot see through, below the level at
//! which bounds are known.

#[cfg(not(target_arch = "x86_64"))]
use crate::shared::by_words::copy_words_in;
#[cfg(target_arch = "x86_64")]
use crate::shared::by_words::{WORD, copy_bytes, copy_whole_words};

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
}
