//! [`Barrier`]: the fence between a thread that goes to sleep and those that wake it, paid for by the one
//! that sleeps, if it has been awake for long ([`BusyTracker`]).
//!
//! The protocol of the park word (`transport_api::park_word`) needs a full fence on either side, between
//! a store and a load. Wakers go that way for every batch; and a full fence waits until the batch has left
//! the waker's processor, which is as long as the line of its signal travels. So a waker of a busy thread
//! only keeps the compiler from exchanging the two, and the thread has the system execute a full fence on
//! every processor that runs a waker, by `membarrier`, before it sleeps:
//!
//! ```text
//!   sleeper, busy until now                waker
//!   word = PARKED                        work = visible
//!   full fence here and in every waker     (compiler only)
//!   if work is visible: cancel             if word is not BUSY: fence; if it is PARKED: clear it, wake
//! ```
//!
//! `membarrier` takes some microseconds, and interrupts other processors. A thread that sleeps often does
//! not promise it: its wakers have fences of their own.
//!
//! That fence comes before the waker's store, and then its load sees the announcement; or behind, and
//! then the sleeper sees the work. `tests/loom_park_word.rs` of transport-api has a model of it.
//!
//! It reaches the threads of one process, or those of all processes that have registered for it. So a
//! waker may do without a fence only if its own process has registered. A host that promises a fence and
//! does not keep the promise only sleeps longer itself.

use std::thread;
use std::time::Duration;

use primitive::sync::{AtomicU32, Ordering};
use rustix::thread::{MembarrierCommand, membarrier};

/// How long a thread sleeps that cannot be woken.
const NAP: Duration = Duration::from_millis(1);

/// How the threads of a host that go to sleep are fenced from those that wake them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Barrier {
    /// Each side executes a fence of its own: the system has no other.
    Fences,
    /// The sleeper has all threads of its process execute one.
    Process,
    /// The sleeper has all threads of all processes that have registered execute one.
    Processes,
}

impl Barrier {
    /// The best one between the threads of this process.
    pub(crate) fn within_process() -> Barrier {
        match membarrier(MembarrierCommand::RegisterPrivateExpedited) {
            Ok(()) => Barrier::Process,
            Err(_) => Barrier::Fences,
        }
    }

    /// The best one between processes, for which this one is registered now.
    pub(crate) fn between_processes() -> Barrier {
        match membarrier(MembarrierCommand::RegisterGlobalExpedited) {
            Ok(()) => Barrier::Processes,
            Err(_) => Barrier::Fences,
        }
    }

    /// Whether the fences of other threads' sleepers reach the threads of this process.
    #[inline]
    pub(crate) fn reaches_this_process(self) -> bool {
        self != Barrier::Fences
    }

    /// The sleeper's side, behind its own fence. False if the system refuses what it granted when the
    /// process registered, as in a sandbox that was entered since: the thread must look for work then,
    /// and has slept [`NAP`] instead, so that it does not spin.
    fn reach_wakers(self) -> bool {
        let command = match self {
            Barrier::Fences => return true,
            Barrier::Process => MembarrierCommand::PrivateExpedited,
            Barrier::Processes => MembarrierCommand::GlobalExpedited,
        };
        let has_reached = membarrier(command).is_ok();
        if !has_reached {
            thread::sleep(NAP);
        }
        has_reached
    }
}

/// Polls by which a thread becomes busy. A thread that finds nothing to do sleeps after a few hundred at
/// most; one that goes on working polls its lanes in every thirty-second round, so this is some
/// milliseconds.
const BUSY_AFTER: u32 = 1024;

/// How long a thread has been awake, counted by its polls. Only the thread itself uses it.
#[derive(Default)]
pub(crate) struct BusyTracker {
    polls: AtomicU32,
}

impl BusyTracker {
    /// Counts a poll. True for the one by which the thread becomes busy: it must say so in its park word.
    #[inline]
    pub(crate) fn polled(&self, barrier: Barrier) -> bool {
        let polls = self.polls.load(Ordering::Relaxed);
        if polls == BUSY_AFTER || barrier == Barrier::Fences {
            return false;
        }
        self.polls.store(polls + 1, Ordering::Relaxed);
        polls + 1 == BUSY_AFTER
    }

    /// The thread has announced its sleep, and keeps its promise if it was busy. False if the system
    /// refuses: it must look for work then.
    pub(crate) fn end(&self, barrier: Barrier) -> bool {
        let was_busy = self.polls.load(Ordering::Relaxed) == BUSY_AFTER;
        self.polls.store(0, Ordering::Relaxed);
        !was_busy || barrier.reach_wakers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_becomes_busy_once_until_it_sleeps() {
        let (barrier, tracker) = (Barrier::within_process(), BusyTracker::default());
        assert_eq!(barrier, Barrier::Process, "this system has membarrier");
        for _ in 0..3 {
            let busy = (1..=2 * BUSY_AFTER).filter(|_| tracker.polled(barrier));
            assert_eq!(busy.collect::<Vec<_>>(), [BUSY_AFTER]);
            assert!(tracker.end(barrier));
        }
        let never = (0..2 * BUSY_AFTER).any(|_| tracker.polled(Barrier::Fences));
        assert!(!never && tracker.end(Barrier::Fences));
    }

    #[test]
    fn a_barrier_that_was_registered_reaches_wakers() {
        for barrier in [Barrier::Fences, Barrier::within_process(), Barrier::between_processes()] {
            assert!(barrier.reach_wakers(), "{barrier:?}");
        }
    }
}
