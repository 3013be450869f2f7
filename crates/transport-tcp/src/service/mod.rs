//! The service thread: one per process. It serves the connections that no other thread serves at the
//! moment, polls the control plane, and carries its messages.
//!
//! While some thread is awake, it looks every [tick](transport_api::PollTracker::TICK) whether that
//! thread still polls; when all sleep, it wakes for heartbeats alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use primitive::sync::Ordering;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventFlags};
use transport_api::{HostId, LossReason, ProgressThread};
use transport_control::{Message, Output};

use crate::conn;
use crate::control::conn::ControlConn;
use crate::host::Host;
use crate::service_queue::{QUEUE, Task, timespec};
use crate::wire::WireError;

/// Events that one wait returns, at most.
const READY: usize = 256;

/// Reads of a data connection whose peer has ended, at most: more than a socket holds.
const LAST_READS: u32 = 128;

/// How long it sleeps if there is nothing to wait for.
const LONG: Duration = Duration::from_secs(3600);

/// What the epoll calls control connections; data connections have their token.
const CONTROL: u64 = 1 << 63;

pub(crate) struct Service {
    host: Arc<Host>,
    controls: Vec<ControlConn>,
    progress: ProgressThread,
}

/// If the service thread panics, its waiters get an error.
impl Drop for Service {
    fn drop(&mut self) {
        if thread::panicking() {
            // A panic in here would end the process.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                self.end("the service thread of this host has panicked");
            }));
        }
    }
}

impl Service {
    pub(crate) fn new(host: Arc<Host>, controls: Vec<ControlConn>) -> Self {
        let progress = ProgressThread::new(host.threads, Instant::now());
        Self { host, controls, progress }
    }

    /// Begins to watch the connections.
    pub(crate) fn register(&self) -> io::Result<()> {
        let Host { thread_states, service_queue, .. } = &*self.host;
        for (peer, thread) in self.host.links() {
            let mut conn = self.host.link(peer, thread).lock();
            let own = &thread_states[thread as usize].epoll;
            conn.watch(own, &service_queue.epoll, peer, thread)?;
        }
        for (index, control) in (0..).zip(&self.controls) {
            control.register(&service_queue.epoll, CONTROL | index)?;
        }
        Ok(())
    }

    /// Serves until [`Task::Stop`].
    pub(crate) fn run(mut self) {
        // No epoll reports what the handshakes have read already.
        for (peer, thread) in self.host.clone().links() {
            pump(&self.host, peer, thread);
        }
        for index in 0..self.controls.len() {
            self.receive(index);
        }
        let mut events = Vec::with_capacity(READY);
        while self.follow_tasks() {
            self.tick();
            self.poll_control();
            let timeout = timespec(self.next().saturating_duration_since(Instant::now()));
            let epoll = &self.host.service_queue.epoll;
            match epoll::wait(epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    // Without a way to watch its peers a host must count them as lost.
                    self.end(&format!("this host cannot watch it: {error}"));
                    return;
                }
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    QUEUE => self.host.service_queue.clear(),
                    token if token & CONTROL != 0 => self.receive((token & !CONTROL) as usize),
                    token => self.serve(token, event.flags),
                }
            }
        }
        self.end("this host has closed its connections");
    }

    /// Closes everything.
    fn end(&mut self, why: &str) {
        self.host.close_control(&LossReason::Connection(why.into()));
        self.controls.iter_mut().for_each(ControlConn::close);
        for (peer, thread) in self.host.links() {
            self.host.link(peer, thread).lock().close();
        }
    }

    /// False if the service is to stop.
    fn follow_tasks(&mut self) -> bool {
        for task in self.host.service_queue.take() {
            match task {
                Task::Stop => return false,
                Task::Ended { peer, broken } => {
                    // The peer may have sent the reason on its control connection.
                    let index = self.controls.iter().position(|control| control.peer == peer);
                    index.into_iter().for_each(|index| self.receive(index));
                    self.host.lose(peer, broken);
                }
            }
        }
        true
    }

    /// Something happened on a data connection.
    fn serve(&mut self, token: u64, flags: EventFlags) {
        let (peer, thread) = (HostId((token >> 32) as u32), token as u32);
        let ended = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        if ended || self.host.thread_state(thread).adopted.load(Ordering::Acquire) {
            pump(&self.host, peer, thread);
            return;
        }
        // Its thread is back.
        let mut conn = self.host.link(peer, thread).lock();
        debug_assert_eq!(conn::token(peer, thread), token);
        conn.arm(false);
        self.host.push_or_lose(conn, peer, thread);
    }

    /// Reads a control connection once.
    fn receive(&mut self, index: usize) {
        let (host, control) = (&self.host, &mut self.controls[index]);
        let peer = control.peer;
        let mut any = false;
        let received = control.receive(|message| {
            any = true;
            host.plane.lock().control.receive(Instant::now(), peer, message, None);
        });
        match received {
            Ok(came) => {
                if came && !any {
                    // A part of a message.
                    host.plane.lock().control.traffic(Instant::now(), peer);
                }
            }
            Err(WireError::Violation(violation)) => {
                host.plane.lock().control.violated(peer, violation);
            }
            Err(broken) => {
                control.close();
                // What the peer sent before the end may still be in the sockets of this host.
                for thread in 0..host.threads {
                    let _ = (0..LAST_READS).find(|_| !pump(host, peer, thread));
                }
                host.plane.lock().control.disconnected(peer, broken.reason());
            }
        }
    }

    /// Adopts the connections of threads that neither poll nor sleep.
    fn tick(&mut self) {
        let host = &self.host;
        let is_away = |thread| host.thread_state(thread).is_away();
        self.progress.look(&host.poll_tracker, Instant::now(), is_away, |thread| {
            adopt(host, thread);
            false
        });
    }

    /// Has the control plane judge what has happened, and does what it wants.
    fn poll_control(&mut self) {
        let now = Instant::now();
        if self.host.plane.lock().control.is_heartbeat_due(now) {
            // A peer is not silent if what it sent was not read yet.
            (0..self.controls.len()).for_each(|index| self.receive(index));
        }
        loop {
            while let Some(output) = self.host.next_output(now) {
                match output {
                    Output::Send { to, message, .. } => self.send(to, &message),
                    Output::Close(peer) => self.close(peer),
                    output => self.host.act(output),
                }
            }
            if !self.push_all() {
                return;
            }
        }
    }

    fn send(&mut self, to: HostId, message: &Message) {
        let Some(control) = self.controls.iter_mut().find(|control| control.peer == to) else {
            return;
        };
        control.post(message);
        if !control.has_room() {
            // A failure shows again in `push_all`.
            let _ = control.push();
            let has_room = control.has_room();
            self.host.plane.lock().control.set_writable(to, has_room);
        }
    }

    fn close(&mut self, peer: HostId) {
        if let Some(control) = self.controls.iter_mut().find(|control| control.peer == peer) {
            // What has no room now is not sent.
            let _ = control.push();
            control.close();
        }
        for thread in 0..self.host.threads {
            self.host.link(peer, thread).lock().close();
        }
    }

    /// Writes what waits on control connections; true if the control plane must look again.
    fn push_all(&mut self) -> bool {
        let mut any = false;
        for (index, control) in (0..).zip(&mut self.controls) {
            let had_room = control.has_room();
            let epoll = &self.host.service_queue.epoll;
            let pushed = control.push().and_then(|()| Ok(control.watch(epoll, CONTROL | index)?));
            match pushed {
                Ok(()) if had_room => {}
                Ok(()) => {
                    let has_room = control.has_room();
                    self.host.plane.lock().control.set_writable(control.peer, has_room);
                    any |= has_room;
                }
                Err(broken) => {
                    control.close();
                    let reason = broken.reason();
                    self.host.plane.lock().control.disconnected(control.peer, reason);
                    any = true;
                }
            }
        }
        any
    }

    /// When to look again although nothing has happened.
    fn next(&self) -> Instant {
        let tick = self.progress.next(&self.host.poll_tracker);
        let control = self.host.plane.lock().control.next_timeout();
        tick.into_iter().chain(control).fold(Instant::now() + LONG, Instant::min)
    }
}

/// Reads a connection of `thread` once, and wakes that thread, whose epoll does not report what was read.
/// True if any byte came.
fn pump(host: &Host, peer: HostId, thread: u32) -> bool {
    let moved = host.pump(host.link(peer, thread).lock(), peer, thread);
    if moved {
        host.wake(thread);
    }
    moved
}

/// Has the service thread serve the connections of `thread`.
fn adopt(host: &Host, thread: u32) {
    host.thread_state(thread).adopted.store(true, Ordering::Release);
    for (peer, _) in host.links().filter(|(_, t)| *t == thread) {
        let mut conn = host.link(peer, thread).lock();
        conn.arm(true);
        host.push_or_lose(conn, peer, thread);
    }
}

#[cfg(test)]
mod tests {
    use primitive::SharedBytes;
    use transport_api::{Access, Namespace, RegionKey, Rights, Transport};

    use super::*;
    use crate::TcpTransport;

    #[test]
    fn what_the_service_thread_reads_wakes_the_thread_that_it_is_for() {
        const DEADLINE: Duration = Duration::from_secs(20);
        let hosts = TcpTransport::in_process(2, 1, |_| ()).expect("a rack");
        let key = RegionKey::new(Namespace::SEGMENTS, 1);
        let region = hosts[1].export(key, 64, Access::all(Rights::ALL)).expect("a region");
        let remote = hosts[0].import(HostId(1), key, DEADLINE).expect("the region");
        let mut lane = hosts[0].lane(0, HostId(1)).expect("a lane");
        let state = hosts[1].host.thread_state(0);
        assert!(state.adopted.load(Ordering::Acquire), "its thread has not polled yet");
        // It is about to sleep, and has looked for work already.
        state.park_word().announce();
        let from = SharedBytes::heap(8);
        lane.write_tagged_memory(&remote, (0, 7), &from).expect("a write");
        lane.wake(0);
        lane.flush().expect("a flush");
        let start = Instant::now();
        while state.park_word().is_parked() {
            assert!(start.elapsed() < DEADLINE, "it sleeps on");
            thread::yield_now();
        }
        assert_eq!(region.memory().load(0, Ordering::Acquire), 7);
    }
}
