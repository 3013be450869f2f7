//! [`QuietPoints`]: when no thread of a process is in the middle of an operation on memory that the
//! process maps.
//!
//! An operation on a [`Window`](crate::Window) checks that its region is exported, then copies; one
//! that has passed its check goes on after a revocation. But it ends before its thread polls a lane
//! again. So a revocation waits until every thread that has a lane has passed a quiet point, a poll,
//! since:
//!
//! ```text
//!   revocation                             thread with a lane
//!   live = 0                               is exported?  copy        (an operation)
//!   epoch + 1                   (release)  ...
//!   wait until each thread has             seen = epoch    (acquire, then release)
//!     seen that epoch           (acquire)  is exported?  no          (the next operation)
//! ```
//!
//! A thread that has seen the epoch sees the revocation, and a thread that sees that it has also sees
//! what its earlier operations did. This is quiescent-state-based reclamation with polls as quiescent
//! states: a poll pays one load.
//!
//! It speaks for the threads of its process alone. The control plane asks other processes, and waits
//! for the end of those that are lost (`transport-control`, `revocations.rs`).

use std::sync::PoisonError;

use primitive::CachePadded;
use primitive::sync::{AtomicBool, AtomicU64, Mutex, Ordering, fence};

/// For backends: the quiet points of a process's threads, and the revocations that wait for them.
pub struct QuietPoints {
    epoch: AtomicU64,
    /// By thread.
    threads: Vec<CachePadded<Thread>>,
    /// Revocations that have not ended: the epoch that every thread must have seen, and the token.
    waiting: Mutex<Vec<(u64, u64)>>,
}

struct Thread {
    /// Whether it has a lane over which it uses mapped memory.
    is_active: AtomicBool,
    /// The last epoch that it has seen at a quiet point.
    seen: AtomicU64,
}

impl QuietPoints {
    /// For this many threads.
    pub fn new(threads: u32) -> Self {
        let thread = || Thread { is_active: AtomicBool::new(false), seen: AtomicU64::new(0) };
        Self {
            epoch: AtomicU64::new(0),
            threads: (0..threads).map(|_| CachePadded::new(thread())).collect(),
            waiting: Mutex::new(Vec::new()),
        }
    }

    /// `thread` uses mapped memory from now on.
    pub fn enter(&self, thread: u32) {
        let Thread { is_active, seen } = &*self.threads[thread as usize];
        seen.store(self.epoch.load(Ordering::Acquire), Ordering::Relaxed);
        is_active.store(true, Ordering::Release);
        // A revocation either sees this and waits, or is seen by the first operation.
        fence(Ordering::SeqCst);
    }

    /// `thread` uses no mapped memory any more.
    pub fn leave(&self, thread: u32) {
        self.threads[thread as usize].is_active.store(false, Ordering::Release);
    }

    /// Begins to wait until every operation has ended that was started on what is revoked by now.
    /// The caller then wakes all threads, and asks [`reached`](Self::reached), which returns `token`
    /// once that is so.
    pub fn begin(&self, token: u64) {
        let epoch = self.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        fence(Ordering::SeqCst);
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((epoch, token));
    }

    /// Whether `thread` has not passed a quiet point since the last revocation, so that it must not
    /// sleep.
    #[inline]
    pub fn is_asked(&self, thread: u32) -> bool {
        let Thread { is_active, seen } = &*self.threads[thread as usize];
        seen.load(Ordering::Relaxed) != self.epoch.load(Ordering::Acquire)
            && is_active.load(Ordering::Relaxed)
    }

    /// `thread`, which calls this, has no operation under way. Call it at every poll; true if a
    /// revocation may have waited for it, so call [`reached`](Self::reached) then.
    #[inline]
    pub fn pass(&self, thread: u32) -> bool {
        let epoch = self.epoch.load(Ordering::Acquire);
        let seen = &self.threads[thread as usize].seen;
        let is_new = seen.load(Ordering::Relaxed) != epoch;
        if is_new {
            seen.store(epoch, Ordering::Release);
        }
        is_new
    }

    /// Takes the tokens of the revocations that have ended.
    pub fn reached(&self) -> Vec<u64> {
        let mut reached = Vec::new();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|(epoch, token)| {
            let is_past = |thread: &CachePadded<Thread>| {
                !thread.is_active.load(Ordering::Acquire)
                    || thread.seen.load(Ordering::Acquire) >= *epoch
            };
            let is_over = self.threads.iter().all(is_past);
            if is_over {
                reached.push(*token);
            }
            !is_over
        });
        reached
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_revocation_waits_for_every_active_thread_and_for_no_other() {
        let quiet = QuietPoints::new(3);
        quiet.enter(0);
        quiet.enter(1);
        quiet.begin(7);
        assert!(quiet.is_asked(0) && quiet.is_asked(1) && !quiet.is_asked(2));
        assert!(quiet.pass(0) && !quiet.pass(0) && quiet.reached().is_empty());
        quiet.enter(2);
        assert!(!quiet.is_asked(2), "it has started nothing before");
        assert!(quiet.pass(1));
        assert_eq!(quiet.reached(), [7]);
        assert_eq!(quiet.reached(), []);

        quiet.begin(8);
        quiet.pass(0);
        quiet.pass(2);
        assert_eq!(quiet.reached(), []);
        quiet.leave(1);
        assert_eq!(quiet.reached(), [8], "a thread without a lane starts nothing");
    }
}
