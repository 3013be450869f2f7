//! [`prefetch`]: asks the processor for memory that is read soon.

use crate::limits::CACHE_LINE;

/// The most bytes that one call asks for. The processor finds the lines behind the first few of a run by
/// itself, but late. *Measured* on Sapphire Rapids with reads of values of 1,000 bytes: 3.09 Mops with all
/// of their lines, 2.84 with eight, 2.70 with four. An earlier machine did best with four: 2.65 Mops, and
/// 2.45 with sixteen.
const MAX_BYTES: usize = 16 * CACHE_LINE;

/// Asks the processor to bring the beginning of `value` into its cache, up to 1 KiB, and does not
/// wait for it. Reads nothing and changes nothing but the cache, so it is only worth its instructions
/// if other work lies between it and the first access.
///
/// ```
/// use gossamer_primitive::prefetch;
///
/// let values = vec![1_u64; 1000];
/// prefetch(&values[900]);
/// // .. other work ..
/// assert_eq!(values[900], 1);
/// ```
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    let bytes = size_of_val(value).min(MAX_BYTES);
    let lines = (start.addr() % CACHE_LINE + bytes).div_ceil(CACHE_LINE);
    for line in 0..lines {
        prefetch_line(start.wrapping_add(line * CACHE_LINE));
    }
}

/// Asks the processor for the line at `address`, whatever that is.
#[inline(always)]
pub(crate) fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on the caches, whatever the address; SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch has no effect but on the caches, whatever the address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
