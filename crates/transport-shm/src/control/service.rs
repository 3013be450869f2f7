//! [`Service`]: the service thread, one per process, off every path that matters. It carries the
//! messages of the control plane, polls it, and notices when the process of a peer ends.
//!
//! The kernel makes the pidfd of a peer readable at once when its process ends, whatever it was
//! doing. A process that is killed ends with its last thread, each of which needs a processor once
//! more: where none is free, nothing shows the end before. A connection that closes without a goodbye
//! is a loss, too: the control plane gives the process a moment to end, so that the report can say how
//! it ended.
//!
//! A process that runs may use the regions that it has mapped, whatever its connection does. So this
//! thread watches its pidfd until it ends, also when the connection is closed: revocations wait for
//! that.

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use std::{io, mem, thread};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use transport_api::{HostId, LossReason};
use transport_control::Output;

use crate::control::connection::{Broken, Connection};
use crate::control::host::Host;
use crate::control::waker::Waker;
use crate::wire::process::has_ended;
use crate::wire::socket::timespec;

/// Serves the connections of one host.
pub(crate) struct Service {
    host: Arc<Host>,
    connections: Vec<Connection>,
    /// The processes of peers whose connections are closed, as long as they run.
    running: Vec<(HostId, OwnedFd)>,
}

/// If the service thread panics, its waiters get an error.
impl Drop for Service {
    fn drop(&mut self) {
        if thread::panicking() {
            let reason = "the service thread of this host has panicked";
            // A panic in here would end the process.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                self.host.close_control(&LossReason::Connection(reason.into()), true);
            }));
        }
    }
}

impl Service {
    pub(crate) fn new(host: Arc<Host>, connections: Vec<Connection>) -> Self {
        Self { host, connections, running: Vec::new() }
    }

    /// Serves until it is stopped.
    pub(crate) fn run(mut self) {
        let host = self.host.clone();
        let Some(waker) = &host.waker else { return };
        while waker.take() {
            for connection in mem::take(&mut self.connections) {
                self.exchange(connection);
            }
            self.note_stops();
            self.poll_control();
            if let Err(error) = self.wait(waker) {
                // A host that cannot watch its peers must count them as lost.
                let reason = format!("this host cannot watch it: {error}");
                host.close_control(&LossReason::Connection(reason), true);
                return;
            }
        }
        let reason = "this host has closed its connections";
        host.close_control(&LossReason::Connection(reason.into()), false);
    }

    /// Reads what has arrived and writes what has room; keeps the connection, unless it has ended.
    fn exchange(&mut self, mut connection: Connection) {
        let (now, peer) = (Instant::now(), connection.peer);
        // Checked before the socket is read: what a dead process said last is then all there.
        let end = connection.process_end();
        if !connection.is_closed {
            let had_room = connection.has_room();
            connection.flush(now);
            if !had_room && connection.has_room() {
                self.host.plane.lock().control.set_writable(peer, true);
            }
            let received = connection.receive(end.is_some(), |message, file| {
                self.host.plane.lock().control.handle(now, peer, message, file);
            });
            let control = &mut self.host.plane.lock().control;
            match received {
                Ok(()) => {}
                Err(Broken::Closed) => {
                    connection.is_closed = true;
                    control.closing(now, peer);
                }
                // The control plane has the connection closed.
                Err(Broken::Violation(violation)) => control.violated(peer, violation),
                Err(Broken::System(error)) => {
                    let reason = format!("cannot receive from it: {error}");
                    control.disconnected(peer, LossReason::Connection(reason));
                    self.running.push((peer, connection.pidfd));
                    return;
                }
            }
        }
        let Some(reason) = end else { return self.connections.push(connection) };
        let control = &mut self.host.plane.lock().control;
        control.disconnected(peer, reason);
        control.stopped(peer);
    }

    /// Closes the connections that `is_over` selects. Their processes may run on.
    fn close(&mut self, is_over: impl Fn(&Connection) -> bool) {
        let closed = self.connections.extract_if(.., |connection| is_over(connection));
        self.running.extend(closed.map(|connection| (connection.peer, connection.pidfd)));
    }

    /// Tells the control plane which peers without a connection have ended.
    fn note_stops(&mut self) {
        let host = &self.host;
        self.running.retain(|(peer, pidfd)| {
            let has_ended = has_ended(pidfd);
            if has_ended {
                host.plane.lock().control.stopped(*peer);
            }
            !has_ended
        });
    }

    /// Acts on the outputs of the control plane.
    fn poll_control(&mut self) {
        let now = Instant::now();
        while let Some(output) = self.host.next_output(now) {
            match output {
                Output::Send { to, message, export } => {
                    let Some(connection) = self.connection(to) else { continue };
                    connection.post(now, message, export);
                    let has_room = connection.has_room();
                    self.host.plane.lock().control.set_writable(to, has_room);
                }
                Output::Close(peer) => self.close(|connection| connection.peer == peer),
                output => self.host.act(output),
            }
        }
        // The control plane asks for no connection to be closed that its peer has closed.
        let host = self.host.clone();
        self.close(|connection| connection.is_closed && host.end_of(connection.peer).is_some());
    }

    fn connection(&mut self, peer: HostId) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.peer == peer)
    }

    /// Sleeps until something happens or some timeout passes.
    fn wait(&self, waker: &Waker) -> io::Result<()> {
        let mut polled = vec![PollFd::new(waker, PollFlags::IN)];
        for connection in &self.connections {
            polled.push(PollFd::new(&connection.pidfd, PollFlags::IN));
            if !connection.is_closed {
                let waits_for_room = !connection.has_room() && connection.retry_at.is_none();
                let out = if waits_for_room { PollFlags::OUT } else { PollFlags::empty() };
                polled.push(PollFd::new(&connection.socket, PollFlags::IN | out));
            }
        }
        let running = self.running.iter().map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN));
        polled.extend(running);
        let open = self.connections.iter().filter(|connection| !connection.is_closed);
        let retries = open.filter_map(|connection| connection.retry_at);
        let next = retries.chain(self.host.plane.lock().control.next_timeout()).min();
        let left = next.map(|at| timespec(at.saturating_duration_since(Instant::now())));
        match poll(&mut polled, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
