//! [`RdmaParker`]: where a thread sleeps: the carrier's parker, which completions wake as well.
//!
//! A completion may be for another thread, since the peer of a queue pair wakes any thread through it.
//! The sleeper then passes it on and sleeps on, instead of polling without work and taking the
//! processor from threads that have some.

use crate::control::host::Host;
use primitive::sync::Ordering;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use transport_api::Parker;

/// The parker of one thread.
pub(crate) struct RdmaParker {
    host: Arc<Host>,
    thread: u32,
    carrier: Box<dyn Parker>,
}

impl RdmaParker {
    /// The parker of `thread`, which exists.
    pub(crate) fn new(host: Arc<Host>, thread: u32, carrier: Box<dyn Parker>) -> Self {
        Self { host, thread, carrier }
    }

    /// Takes what has completed; whether any of it concerns this thread.
    fn pump(&self) -> bool {
        let mut connections = self.host.thread_state(self.thread).connections();
        self.host.progress_locked(self.thread, &mut connections);
        connections.was_concerned()
    }

    /// Sleeps until something happens that concerns this thread, or perhaps does; at most for
    /// `timeout`.
    fn doze(&mut self, timeout: Duration, ready: &mut dyn FnMut() -> bool) {
        let host = self.host.clone();
        let state = host.thread_state(self.thread);
        let start = Instant::now();
        loop {
            // What completes from now on makes the channel readable, which the carrier's parker
            // watches; what had completed before is taken here.
            if state.cq.arm().is_err() || self.pump() {
                return;
            }
            let left = timeout.saturating_sub(start.elapsed());
            self.carrier.park(left, &mut || ready() || host.event_queues.has_events(self.thread));
            let by_completion = state.cq.silence();
            if self.pump() || !by_completion || ready() || host.event_queues.has_events(self.thread)
            {
                return;
            }
        }
    }
}

impl Parker for RdmaParker {
    fn park(&mut self, timeout: Duration, ready: &mut dyn FnMut() -> bool) {
        let (host, thread) = (self.host.clone(), self.thread);
        let state = host.thread_state(thread);
        state.is_asleep.store(true, Ordering::Release);
        // Forgets what the thread took itself, before others can see that it sleeps: what they send
        // then is news.
        state.connections().was_concerned();
        host.fall_asleep(thread);
        self.doze(timeout, ready);
        state.is_asleep.store(false, Ordering::Release);
        host.wake_up(thread);
        // What has arrived at the carrier meanwhile is to be looked for.
        state.sleeps.store(state.sleeps.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        host.poll_tracker.record_poll(thread);
        host.expect_ticks();
    }
}
