//! Uses more stack at once than a guard behind it may have.

use core::hint::black_box;
use core::mem::MaybeUninit;

/// Calls itself so often, with 256 KiB of stack each time, of which it writes the last byte only.
pub fn large_frames(levels: u64) -> u64 {
    down(levels)
}

#[inline(never)]
fn down(levels: u64) -> u64 {
    let mut frame = MaybeUninit::<[u8; 256 << 10]>::uninit();
    let last = black_box(frame.as_mut_ptr().cast::<u8>());
    // SAFETY: a byte of the frame.
    unsafe { last.write_volatile(1) };
    let below = if levels == 0 { 0 } else { down(levels - 1) };
    // SAFETY: it was written.
    below + u64::from(unsafe { last.read_volatile() })
}
