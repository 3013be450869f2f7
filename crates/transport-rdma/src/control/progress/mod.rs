//! Progress of a runtime thread's queue pairs: who handles which completions when, and who is woken
//! ([`SleepFlags`](crate::control::sleep_flags::SleepFlags)).
//!
//! A thread handles its own completions at each poll and when its parker wakes; the service thread
//! does it for threads that do neither.

use std::collections::BTreeMap;

use primitive::sync::Ordering;
use transport_api::{Event, EventQueue, HostId, ThreadId};

use crate::control::host::Host;
use crate::qp::thread::Connections;
use rdma_protocol::payloads::cost_of;

#[cfg(test)]
mod tests;

impl Host {
    /// Handles the completions of `thread`, and starts what was deferred; whether there were any.
    pub(crate) fn progress(&self, thread: u32) -> bool {
        self.progress_locked(thread, &mut self.thread_state(thread).connections())
    }

    /// As [`progress`](Self::progress), with the thread's connections locked.
    pub(crate) fn progress_locked(&self, thread: u32, connections: &mut Connections) -> bool {
        let any = connections.handle_completions(&*self.thread_state(thread).cq);
        if any {
            self.handle_incidents(thread, connections);
        }
        self.wake_next(thread, connections);
        any
    }

    /// Hands the events that have arrived in `event_queue`, for a lane to another host, to `sink`, and
    /// returns credits for them to the peer's threads; whether there were any.
    pub(crate) fn take(&self, event_queue: &mut EventQueue, sink: &mut dyn FnMut(Event)) -> bool {
        // By thread of the peer: notifications, and what payloads were charged.
        let mut taken: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        let any = event_queue.take(&mut |event| {
            match &event {
                Event::Notified { from, .. } => taken.entry(from.thread).or_default().0 += 1,
                Event::Bulk { from, payload, .. } => {
                    taken.entry(from.thread).or_default().1 += cost_of(payload.len());
                }
                _ => {}
            }
            sink(event);
        });
        for (of, (notifications, cost)) in taken {
            self.with(of, event_queue.peer(), |connection, sink| {
                connection.notifications_taken(notifications);
                connection.payloads_taken(event_queue.thread(), cost);
                connection.post(sink);
            });
        }
        any
    }

    /// Whether nothing that threads of this host have flushed to `peer` is in flight.
    pub(crate) fn is_quiet(&self, peer: HostId) -> bool {
        (0..self.threads).all(|thread| {
            self.progress(thread);
            let quiet = self.with(thread, peer, |connection, sink| {
                connection.settle(sink);
                connection.is_quiet()
            });
            quiet != Some(false)
        })
    }

    /// Called by a thread that has just woken: from now on the service thread must notice when it
    /// stops polling.
    pub(crate) fn expect_ticks(&self) {
        if self.poll_tracker.must_notify() {
            self.unpark_service();
        }
    }

    // ---- Waking threads of other hosts.

    /// Wakes `target`, if it sleeps, for what `thread`, the caller, has started for it; else
    /// remembers it.
    pub(crate) fn wake(&self, thread: u32, target: ThreadId) {
        let state = self.thread_state(thread);
        let mut connections = state.connections();
        if self.sleep_flags.is_asleep(target) || state.is_asleep.load(Ordering::Relaxed) {
            connections.unwoken.retain(|other| *other != target);
            self.with_locked(thread, &mut connections, target.host, |connection, sink| {
                if !connection.wake(target.thread) {
                    connection.post(sink);
                }
            });
        } else if !connections.unwoken.contains(&target) {
            connections.unwoken.push(target);
        }
    }

    /// Checks the next thread that `thread` remembers, and wakes it if it sleeps by now.
    fn wake_next(&self, thread: u32, connections: &mut Connections) {
        let count = connections.unwoken.len();
        if count > 0 {
            connections.last_checked = (connections.last_checked + 1) % count;
            if self.sleep_flags.is_asleep(connections.unwoken[connections.last_checked]) {
                self.wake_at(thread, connections, connections.last_checked);
            }
        }
    }

    /// Wakes all threads that `thread` remembers and that sleep by now.
    pub(crate) fn wake_sleepers(&self, thread: u32) {
        let mut connections = self.thread_state(thread).connections();
        for index in (0..connections.unwoken.len()).rev() {
            if self.sleep_flags.is_asleep(connections.unwoken[index]) {
                self.wake_at(thread, &mut connections, index);
            }
        }
    }

    /// `thread`, the caller, is about to sleep: sets its flags, and wakes all that it remembers.
    pub(crate) fn fall_asleep(&self, thread: u32) {
        let mut connections = self.thread_state(thread).connections();
        while let Some(last) = connections.unwoken.len().checked_sub(1) {
            self.wake_at(thread, &mut connections, last);
        }
        self.set_flags(thread, &mut connections, 1);
    }

    /// `thread`, the caller, has woken: clears its flags.
    pub(crate) fn wake_up(&self, thread: u32) {
        self.set_flags(thread, &mut self.thread_state(thread).connections(), 0);
    }

    fn wake_at(&self, thread: u32, connections: &mut Connections, index: usize) {
        let ThreadId { host, thread: target } = connections.unwoken.swap_remove(index);
        self.with_locked(thread, connections, host, |connection, sink| {
            connection.wake(target);
            connection.post(sink);
        });
    }

    fn set_flags(&self, thread: u32, connections: &mut Connections, value: u64) {
        for peer in self.peers() {
            let Some((memory, at)) = self.sleep_flags.own(peer, thread) else { continue };
            self.with_locked(thread, connections, peer, |connection, sink| {
                connection.signal(memory, at, value);
                connection.post(sink);
            });
        }
    }
}
