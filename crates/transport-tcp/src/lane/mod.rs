//! [`TcpLane`]: a thread's lane to another host.
//!
//! What can be checked here is checked here, against what the owner said when the region was
//! imported; the owner checks all of it again. Operations are encoded into the connection at once,
//! so their memory may change as soon as they return, and travel with the next flush.

pub(crate) mod local;
pub(crate) mod parker;

use std::sync::Arc;

use parking_lot::Mutex;
use primitive::SharedBytes;
use transport_api::{
    Event, EventQueue, HostId, Lane, Namespace, OpError, RemoteRegion, Rights, Tag,
};

use crate::conn::Conn;
use crate::host::Host;
use crate::machine::{Machine, Name, append};
use crate::wire::frame::{BODY_BYTES, WORD};

/// Bytes of operations that are sent without waiting for the flush.
const EARLY_BYTES: usize = 256 << 10;

/// A lane over a connection.
pub(crate) struct TcpLane {
    host: Arc<Host>,
    conn: Arc<Mutex<Conn>>,
    thread: u32,
    peer: HostId,
    event_queue: EventQueue,
    /// Whether operations have been started since the last flush.
    has_started: bool,
    /// What the last poll knew of the thread's [`Readiness`](crate::readiness::Readiness).
    last_look: u64,
}

impl TcpLane {
    /// The lane to another host that `event_queue` is for.
    pub(crate) fn new(host: Arc<Host>, event_queue: EventQueue) -> Self {
        let (thread, peer) = (event_queue.thread(), event_queue.peer());
        let conn = host.link(peer, thread).clone();
        Self { host, conn, thread, peer, event_queue, has_started: false, last_look: 0 }
    }

    /// What the owner knows `region` by, if the region belongs here and the peer is there.
    fn name(&self, region: &RemoteRegion) -> Result<Name, OpError> {
        region.check_origin(self.host.id, self.peer)?;
        self.event_queue.check_peer()?;
        Ok(Name { key: region.key(), generation: region.generation() })
    }

    /// Adds an operation to the connection.
    fn start(&mut self, operation: impl FnOnce(&mut Machine)) {
        self.has_started = true;
        let mut conn = self.conn.lock();
        operation(&mut conn.machine);
        if conn.machine.unsent() > EARLY_BYTES {
            self.host.push_or_lose(conn, self.peer, self.thread);
        }
    }

    /// Adds a tagged write as one frame instead of two. `body` appends its `len` bytes, as they are.
    fn start_tagged(
        &mut self,
        to: &RemoteRegion,
        (at, tag): (usize, u64),
        len: usize,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), OpError> {
        let name = self.name(to)?;
        to.check_word(at, Rights::WRITE)?;
        to.check(at, WORD + len, Rights::WRITE)?;
        self.start(|machine| machine.write_tagged(name, (at, tag), len, body));
        Ok(())
    }
}

impl Lane for TcpLane {
    fn peer(&self) -> HostId {
        self.peer
    }

    fn write(&mut self, to: &RemoteRegion, at: usize, from: &SharedBytes) -> Result<(), OpError> {
        let name = self.name(to)?;
        to.check(at, from.len(), Rights::WRITE)?;
        self.start(|machine| machine.write(name, at, from));
        Ok(())
    }

    fn signal(&mut self, to: &RemoteRegion, at: usize, word: u64) -> Result<(), OpError> {
        let name = self.name(to)?;
        to.check_word(at, Rights::WRITE)?;
        self.start(|machine| machine.signal(name, at, word));
        Ok(())
    }

    fn write_tagged(
        &mut self,
        to: &RemoteRegion,
        (at, tag): (usize, u64),
        parts: &[&[u8]],
        staging: &SharedBytes,
    ) -> Result<(), OpError> {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        if len > BODY_BYTES {
            return transport_api::write_staged(self, to, (at, tag), parts, staging);
        }
        self.start_tagged(to, (at, tag), len, |out| {
            parts.iter().for_each(|part| out.extend_from_slice(part));
        })
    }

    fn write_tagged_memory(
        &mut self,
        to: &RemoteRegion,
        (at, tag): (usize, u64),
        from: &SharedBytes,
    ) -> Result<(), OpError> {
        if from.len() > BODY_BYTES {
            return transport_api::write_and_signal(self, to, (at, tag), from);
        }
        self.start_tagged(to, (at, tag), from.len(), |out| append(from, 0, from.len(), out))
    }

    fn read(
        &mut self,
        from: &RemoteRegion,
        at: usize,
        into: &SharedBytes,
        token: u64,
    ) -> Result<(), OpError> {
        let name = self.name(from)?;
        from.check(at, into.len(), Rights::READ)?;
        self.start(|machine| machine.read(name, at, into, token));
        Ok(())
    }

    fn compare_swap(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        expected: u64,
        new: u64,
        token: u64,
    ) -> Result<(), OpError> {
        let name = self.name(on)?;
        on.check_word(at, Rights::ATOMIC)?;
        self.start(|machine| machine.compare_swap(name, at, [expected, new], token));
        Ok(())
    }

    fn fetch_add(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        addend: u64,
        token: u64,
    ) -> Result<(), OpError> {
        let name = self.name(on)?;
        on.check_word(at, Rights::ATOMIC)?;
        self.start(|machine| machine.fetch_add(name, at, addend, token));
        Ok(())
    }

    fn write_notify(
        &mut self,
        to: &RemoteRegion,
        at: usize,
        from: &SharedBytes,
        thread: u32,
        value: u32,
    ) -> Result<(), OpError> {
        self.event_queue.check_thread(thread)?;
        let name = self.name(to)?;
        to.check(at, from.len(), Rights::WRITE)?;
        self.start(|machine| {
            machine.write(name, at, from);
            machine.notify(name, at, from.len(), thread, value);
        });
        Ok(())
    }

    fn notify(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        len: usize,
        thread: u32,
        value: u32,
    ) -> Result<(), OpError> {
        self.event_queue.check_thread(thread)?;
        let name = self.name(on)?;
        on.check(at, len, Rights::WRITE)?;
        self.start(|machine| machine.announce(name, at, len, thread, value));
        Ok(())
    }

    fn fence(&mut self, token: u64) -> Result<(), OpError> {
        self.event_queue.check_peer()?;
        self.start(|machine| machine.fence(token));
        Ok(())
    }

    fn bulk(&mut self, thread: u32, tag: Tag, payload: Vec<u8>) -> Result<(), OpError> {
        self.event_queue.check_thread(thread)?;
        self.event_queue.check_peer()?;
        OpError::check_payload(payload.len())?;
        self.start(|machine| machine.bulk(thread, tag.0, payload));
        Ok(())
    }

    fn waiting_notifications(&self, thread: u32) -> usize {
        self.conn.lock().machine.waiting_notifications(thread)
    }

    fn waiting_bulk(&self, namespace: Namespace) -> usize {
        self.conn.lock().machine.waiting_bulk(namespace)
    }

    fn flush(&mut self) -> Result<(), OpError> {
        self.event_queue.check_peer()?;
        self.has_started = false;
        self.host.push_or_lose(self.conn.lock(), self.peer, self.thread);
        Ok(())
    }

    fn wake(&mut self, thread: u32) {
        if thread >= self.host.threads || self.event_queue.is_over() {
            return;
        }
        if self.has_started && thread == self.thread {
            // Whatever arrives on this connection wakes that thread, also what has left already.
            return;
        }
        let mut conn = self.conn.lock();
        conn.machine.wake(thread);
        // Behind operations that are still to be flushed it costs no write of its own.
        if !self.has_started {
            self.host.push_or_lose(conn, self.peer, self.thread);
        }
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> bool {
        self.host.record_poll(self.thread);
        if self.event_queue.is_over() {
            return false;
        }
        let state = self.host.thread_state(self.thread);
        let moved = state.must_read(self.peer, &mut self.last_look)
            && self.host.pump(self.conn.lock(), self.peer, self.thread);
        // Before the events, so that what was delivered before the end is reported before it.
        let end = self.host.end_of(self.peer);
        let any = self.host.take(&mut self.event_queue, sink);
        let Some(end) = end else { return moved || any };
        self.event_queue.report(end, sink);
        true
    }
}
