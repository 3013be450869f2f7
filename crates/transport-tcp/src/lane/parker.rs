//! [`TcpParker`]: where a thread sleeps, which is where its connections are.

use std::sync::Arc;
use std::time::Duration;

use primitive::sync::Ordering;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use transport_api::{HostId, Parker};

use crate::host::Host;
use crate::readiness::{ALARM, WAKEUP};
use crate::service_queue::{clear, timespec};

/// Connections that one wake reads, at most; the others are read by the next poll.
const READY: usize = 64;

/// The parker of one thread.
pub(crate) struct TcpParker {
    host: Arc<Host>,
    thread: u32,
}

impl TcpParker {
    /// The parker of `thread`, which exists.
    pub(crate) fn new(host: Arc<Host>, thread: u32) -> Self {
        Self { host, thread }
    }
}

impl TcpParker {
    /// Where the thread reads its connections at every poll: has what arrives wake it, or ends that.
    fn await_all(&self, is_awaited: bool) {
        let Self { host, thread } = self;
        if host.thread_state(*thread).asks() {
            return;
        }
        for peer in host.others() {
            let mut conn = host.link(peer, *thread).lock();
            conn.set_awaited(is_awaited);
            host.push_or_lose(conn, peer, *thread);
        }
    }
}

impl Parker for TcpParker {
    fn park(&mut self, timeout: Duration, ready: &mut dyn FnMut() -> bool) {
        let parker = &*self;
        let Self { host, thread } = parker;
        let mut events = Vec::with_capacity(READY);
        let state = host.thread_state(*thread);
        // What waits to be sent must go out before this thread sleeps.
        for peer in host.others() {
            host.push_or_lose(host.link(peer, *thread).lock(), peer, *thread);
        }
        // Its own connections wake it now.
        state.adopted.store(false, Ordering::Relaxed);
        state.park_word().park(
            || {
                ready()
                    || host.event_queues.has_events(*thread)
                    || host.quiet_points.is_asked(*thread)
            },
            |_, _| {
                // Compare and wait, as a futex does: a poll by `ready` may have cleared the eventfd of a wake.
                if !state.park_word().is_parked() {
                    return;
                }
                parker.await_all(true);
                // Fails when a signal comes, which may be what the thread slept for.
                let timeout = timespec(timeout);
                let _ = epoll::wait(&state.epoll, spare_capacity(&mut events), Some(&timeout));
            },
        );
        for event in events.drain(..) {
            match event.data.u64() {
                WAKEUP => clear(&state.wakeup),
                // The thread is awake, and looks.
                ALARM => {}
                peer => {
                    let peer = HostId(peer as u32);
                    host.pump(host.link(peer, *thread).lock(), peer, *thread);
                }
            }
        }
        // Behind what woke it, which is not to wait for this.
        parker.await_all(false);
        host.record_poll(*thread);
        host.expect_ticks();
    }
}
