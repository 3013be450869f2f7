//! The marks that a counted workload leaves in its instruction stream.
//!
//! A mark is the seven bytes `0f 1f 80 xx xx 55 7a`: a `nop` with a 32-bit displacement of which
//! the upper half identifies a mark and the lower half is its number. As inline assembly that may
//! touch memory it also keeps the compiler from moving loads and stores across it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::arch::asm;

use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};

pub(super) const MAGIC: u32 = 0x7a55 << 16;
pub(super) const END: u16 = 0xffff;
pub(super) const PAUSE: u16 = 0xfffe;
pub(super) const ALLOCATED: u16 = 0xfffd;
pub(super) const FREED: u16 = 0xfffc;

macro_rules! mark {
    ($number:expr) => {
        // SAFETY: a `nop` changes neither registers, flags nor memory, and its operand is never
        // accessed.
        unsafe {
            asm!(
                ".byte 0x0f, 0x1f, 0x80",
                ".long {operand}",
                operand = const MAGIC | $number as u32,
                options(nostack, preserves_flags),
            )
        }
    };
}

/// From here on instructions belong to phase `INDEX` of the workload. Phases may be entered again;
/// their counts add up.
#[inline(always)]
pub fn phase<const INDEX: u16>() {
    mark!(INDEX);
}

/// From here to the next phase nothing is counted.
#[inline(always)]
pub fn pause() {
    mark!(PAUSE);
}

/// Counting is over; the rest of the workload runs at full speed.
#[inline(always)]
pub fn end() {
    mark!(END);
}

/// Stops this thread until the counting process has begun to step it. Call it once, after setting
/// up and before the first phase.
///
/// # Panics
/// Panics if its parent cannot trace it: outside of [`count`](super::count) it would never be
/// resumed.
pub fn begin() {
    ptrace::traceme().expect("the parent must be able to trace this process");
    raise(Signal::SIGSTOP).expect("a process may stop itself");
}

/// The system's allocator with marks, so that all allocations are counted.
/// Programs that run workloads make it their global allocator.
#[derive(Debug)]
pub struct MarkedAlloc;

// SAFETY: every method hands its arguments to the system's allocator unchanged and returns what it
// returns; a mark has no effect.
unsafe impl GlobalAlloc for MarkedAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        mark!(ALLOCATED);
        // SAFETY: the caller keeps the contract of this very method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        mark!(ALLOCATED);
        // SAFETY: the caller keeps the contract of this very method.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        mark!(ALLOCATED);
        // SAFETY: the caller keeps the contract of this very method.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        mark!(FREED);
        // SAFETY: the caller keeps the contract of this very method.
        unsafe { System.dealloc(memory, layout) }
    }
}
