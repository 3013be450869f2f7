//! Atomics, fences and locks: `std`'s, or loom's when the workspace is built with `--cfg loom`.
//!
//! Protocol code takes its atomics from here and nowhere else (`cargo xtask layers` sees to it), and
//! the locks that it relies on for order, so that what loom explores is what ships.

#[cfg(loom)]
mod model;

#[cfg(not(loom))]
pub use std::sync::{
    Mutex, MutexGuard, OnceLock,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub use self::model::OnceLock;

/// The side of an asymmetric barrier that costs nothing: only the compiler must not move accesses across
/// it. The other side reaches all processors (`membarrier`). Under loom, which has no such barrier, it is a
/// full fence.
#[inline(always)]
pub fn light_fence() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Tells the processor that this is a spin loop (about 25 ns of PAUSE on current x86 parts); under
/// loom, lets another thread run.
#[inline(always)]
pub fn spin_hint() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
