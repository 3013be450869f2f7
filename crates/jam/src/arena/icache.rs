//! Instruction caches: what must happen between writing code and running it.
//!
//! On x86-64 nothing: they see writes, whatever address those are made through, and a thread that
//! runs code for the first time at a place that never held any has fetched nothing from there. Places
//! that held code before: `reuse/barrier.rs`.
//!
//! On aarch64 the writer cleans the data cache and invalidates the instruction cache, line by line,
//! by the address where the code runs. It has stored the code through the other view, and a processor
//! orders the cleaning of a line after stores to the same address only, so a barrier stands between
//! them. And each thread that is to run it executes an `isb`, because
//! its processor may have fetched ahead. [`Seen`] tells a thread when that is due: one comparison per
//! run.

use primitive::sync::{AtomicU64, Ordering};

/// How often code has been published in this process.
static PUBLISHED: AtomicU64 = AtomicU64::new(0);

/// The publication that a thread has seen last.
#[derive(Default)]
pub(crate) struct Seen(#[cfg(target_arch = "aarch64")] std::cell::Cell<u64>);

/// Makes `bytes` bytes of text, written through the other view, visible to instruction fetches.
pub(crate) fn publish(address: usize, bytes: usize) {
    clean(address, bytes);
    PUBLISHED.fetch_add(1, Ordering::Release);
}

impl Seen {
    /// For a thread that has run nothing.
    pub(crate) const fn nothing() -> Self {
        #[cfg(target_arch = "aarch64")]
        return Seen(std::cell::Cell::new(0));
        #[cfg(not(target_arch = "aarch64"))]
        Seen()
    }

    /// Before a run of something that the calling thread has just looked up.
    #[inline(always)]
    pub(crate) fn catch_up(&self) {
        #[cfg(target_arch = "aarch64")]
        {
            let published = PUBLISHED.load(Ordering::Acquire);
            if self.0.get() != published {
                self.0.set(published);
                // SAFETY: discards what the processor has fetched ahead; no other effect.
                unsafe { std::arch::asm!("isb", options(nostack, preserves_flags)) };
            }
        }
    }
}

#[cfg(not(target_arch = "aarch64"))]
fn clean(_address: usize, _bytes: usize) {}

#[cfg(target_arch = "aarch64")]
fn clean(address: usize, bytes: usize) {
    let sizes: u64;
    // SAFETY: reads the register that says how long lines are, which programs may read.
    unsafe { std::arch::asm!("mrs {}, ctr_el0", out(reg) sizes, options(nomem, nostack)) };
    // Log2 of words of four bytes.
    let (code_line, data_line) = (4usize << (sizes & 15), 4usize << (sizes >> 16 & 15));
    let lines = |line: usize| (address & !(line - 1)..address + bytes).step_by(line);
    // SAFETY: a barrier, which touches no memory of the program.
    unsafe { std::arch::asm!("dsb ish", options(nostack, preserves_flags)) };
    for at in lines(data_line) {
        // SAFETY: cleans a line of mapped, readable memory; it changes no byte.
        unsafe { std::arch::asm!("dc cvau, {}", in(reg) at, options(nostack, preserves_flags)) };
    }
    // SAFETY: a barrier, which touches no memory of the program.
    unsafe { std::arch::asm!("dsb ish", options(nostack, preserves_flags)) };
    for at in lines(code_line) {
        // SAFETY: invalidates a line of mapped, readable memory; it changes no byte.
        unsafe { std::arch::asm!("ic ivau, {}", in(reg) at, options(nostack, preserves_flags)) };
    }
    // SAFETY: barriers, which touch no memory of the program.
    unsafe { std::arch::asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}
