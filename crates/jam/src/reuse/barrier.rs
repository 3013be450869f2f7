//! The two barriers of [`Reuse`](crate::reuse::Reuse): one that costs nothing in the threads that run
//! jams, and one that does its work for all of them at once.
//!
//! `membarrier` has a second use: code that was written where other code has run. A processor may
//! have fetched instructions of what was there, and x86-64 promises the new ones to a thread only
//! after a serialising instruction of that thread (Intel's manual, volume 3, 9.1.3: cross-modifying
//! code), which the command `SYNC_CORE` has each of them execute. Memory that has never held code
//! needs none, so that a first arrival pays nothing. On aarch64 each thread executes an `isb` of its
//! own when anything has been linked since its last (`arena/icache.rs`).

use std::ffi::{c_int, c_long};

use primitive::sync::{AtomicU32, Ordering, fence};

const REGISTER: c_int = libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
const BARRIER: c_int = libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED;
const REGISTER_SYNC_CORE: c_int = libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE;
const SYNC_CORE: c_int = libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE;

/// What the system offers; zero until it was asked.
static OFFERED: AtomicU32 = AtomicU32::new(0);
const ASKED: u32 = 1;
const HAS_BARRIER: u32 = 2;
const HAS_SYNC_CORE: u32 = 4;

/// Asks the system what it offers. Before any runner enters.
pub(crate) fn prepare() {
    let has = |command, bit| if membarrier(command) { bit } else { 0 };
    let offered = ASKED | has(REGISTER, HAS_BARRIER) | has(REGISTER_SYNC_CORE, HAS_SYNC_CORE);
    OFFERED.store(offered, Ordering::SeqCst);
}

/// The runner's side.
#[inline(always)]
pub(crate) fn light() {
    if OFFERED.load(Ordering::Relaxed) & HAS_BARRIER == 0 {
        fence(Ordering::SeqCst);
    } else {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
}

/// The other side: when it returns true, every running thread of the process has executed a full barrier
/// since it was called. False if the system no longer allows that, as in a sandbox that was entered since
/// [`prepare`].
#[must_use]
pub(crate) fn heavy() -> bool {
    fence(Ordering::SeqCst);
    OFFERED.load(Ordering::Relaxed) & HAS_BARRIER == 0 || membarrier(BARRIER)
}

/// Every thread of the process executes a serialising instruction before its next one of the program.
/// Without support of the system this does nothing: the processors that lack it are older x86-64
/// kernels', whose instruction caches see the write.
pub(crate) fn sync_core() {
    if OFFERED.load(Ordering::Relaxed) & HAS_SYNC_CORE != 0 {
        membarrier(SYNC_CORE);
    }
}

fn membarrier(command: c_int) -> bool {
    // SAFETY: a system call with three numbers; it writes no memory of the process.
    unsafe { libc::syscall(libc::SYS_membarrier, command as c_long, 0 as c_long, 0 as c_long) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barriers_work_with_and_without_support() {
        prepare();
        light();
        assert!(heavy());
        sync_core();
        assert!(!membarrier(-1), "an unknown command is an error");
    }
}
