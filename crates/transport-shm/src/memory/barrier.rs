//! [`Barrier`]: the fence between a thread that goes to sleep and those that wake it, paid for by the one
//! that sleeps.
//!
//! The protocol of the park word (`transport_api::park_word`) needs a full fence on either side, between
//! a store and a load. Wakers go that way for every batch, and sleepers seldom; and a full fence waits
//! until the batch has left the waker's processor, which is as long as the line of its signal travels. So
//! a waker only keeps the compiler from exchanging the two, and the sleeper has the system execute a full
//! fence on every processor that runs a waker, by `membarrier`:
//!
//! ```text
//!   sleeper                                waker
//!   word = PARKED                        work = visible
//!   full fence here and in every waker     (compiler only)
//!   if work is visible: cancel             if word is PARKED: clear it, wake
//! ```
//!
//! That fence comes before the waker's store, and then its load sees the announcement; or behind, and
//! then the sleeper sees the work. `tests/loom_park_word.rs` of transport-api has a model of it.
//!
//! It reaches the threads of one process, or those of all processes that have registered for it. So a
//! waker may do without a fence if its own process has registered and the sleeper's host says that its
//! threads have the system do that. A host that says so and does not only sleeps longer itself.

use std::thread;
use std::time::Duration;

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

    /// The sleeper's side, behind its own fence. False if the system refuses what it granted when the
    /// process registered, as in a sandbox that was entered since: the thread must look for work then,
    /// and has slept [`NAP`] instead, so that it does not spin.
    pub(crate) fn reach_wakers(self) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_that_was_registered_reaches_wakers() {
        for barrier in [Barrier::Fences, Barrier::within_process(), Barrier::between_processes()] {
            assert!(barrier.reach_wakers(), "{barrier:?}");
        }
    }
}
