//! [`RdmaParker`]: where a thread sleeps: the carrier's parker, which completions wake as well.
//!
//! A completion may be for another thread, since the peer of a queue pair wakes any thread through it.
//! The sleeper then passes it on and sleeps on, instead of polling without work and taking the
//! processor from threads that have some.

use std::sync::Arc;
use std::time::{Duration, Instant};

use primitive::sync::Ordering;
use transport_api::Parker;

use crate::control::host::Host;

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

    /// Handles completions; whether any concerns this thread.
    fn progress(&self) -> bool {
        let mut connections = self.host.thread_state(self.thread).connections();
        self.host.progress_locked(self.thread, &mut connections);
        connections.was_concerned()
    }

    /// Sleeps until something may have happened that concerns this thread, at most for `timeout`.
    fn doze(&mut self, timeout: Duration, ready: &mut dyn FnMut() -> bool) {
        let host = self.host.clone();
        let state = host.thread_state(self.thread);
        let start = Instant::now();
        loop {
            // Completions from now on make the channel readable, which the carrier's parker watches;
            // earlier ones are handled here. A queue that cannot be read has none.
            let is_armed = state.cq.arm().is_ok();
            if self.progress() || !(is_armed || state.connections().has_failed_cq()) {
                return;
            }
            let left = timeout.saturating_sub(start.elapsed());
            self.carrier.park(left, &mut || ready() || host.event_queues.has_events(self.thread));
            let by_completion = state.cq.clear_channel();
            if self.progress()
                || !by_completion
                || ready()
                || host.event_queues.has_events(self.thread)
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
        // Earlier incidents were handled by the thread itself. Done before peers can see that it
        // sleeps: what they send then is new.
        state.connections().was_concerned();
        host.fall_asleep(thread);
        self.doze(timeout, ready);
        state.is_asleep.store(false, Ordering::Release);
        host.wake_up(thread);
        // So that lanes poll the carrier at once.
        state.sleeps.store(state.sleeps.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        host.poll_tracker.record_poll(thread);
        host.expect_ticks();
    }
}
