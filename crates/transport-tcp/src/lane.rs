//! [`TcpLane`]: a thread's lane to another host.
//!
//! What can be checked here is checked here, against what the owner said when the region was
//! imported; the owner checks all of it again. Operations are encoded into the connection at once,
//! so their memory may change as soon as they return, and travel with the next flush.

use crate::{
    host::Host,
    machine::{Machine, Name},
};
use primitive::{SharedBytes, sync::Ordering};
use std::sync::Arc;
use transport_api::{Event, HostId, Lane, LossReason, OpError, RemoteRegion, Rights};

/// Bytes of operations that are sent without waiting for the flush.
const EARLY_BYTES: usize = 256 << 10;

/// What the lanes of a transport need of a region of another host.
pub(crate) struct Handle {
    /// The transport that imported it.
    pub(crate) issuer: u64,
}

/// A lane over a connection.
pub(crate) struct TcpLane {
    host: Arc<Host>,
    thread: u32,
    peer: HostId,
    /// Why operations fail, once the peer's end has been reported.
    gone: Option<LossReason>,
    spare: Vec<Event>,
}

impl TcpLane {
    /// The lane of `thread` to `peer`, both of which exist; `peer` is not this host.
    pub(crate) fn new(host: Arc<Host>, thread: u32, peer: HostId) -> Self {
        host.seat(thread).listening[peer.0 as usize].store(true, Ordering::Relaxed);
        Self { host, thread, peer, gone: None, spare: Vec::new() }
    }

    fn there(&self) -> Result<(), OpError> {
        let gone = self.gone.as_ref();
        gone.map_or(Ok(()), |reason| Err(OpError::PeerLost(self.peer, reason.clone())))
    }

    /// What the owner knows `region` by, if the region belongs here and the peer is there.
    fn name(&self, region: &RemoteRegion) -> Result<Name, OpError> {
        let key = region.key();
        let ours = |handle: &Handle| handle.issuer == self.host.id && region.owner() == self.peer;
        if !region.handle::<Handle>().is_some_and(ours) {
            return Err(OpError::Foreign(key));
        }
        self.there()?;
        Ok(Name { key, generation: region.generation() })
    }

    fn check_thread(&self, thread: u32) -> Result<(), OpError> {
        OpError::check_thread(thread, self.host.threads, self.peer)
    }

    /// Adds an operation to the connection.
    fn start(&self, operation: impl FnOnce(&mut Machine)) {
        let mut conn = self.host.link(self.peer, self.thread);
        operation(&mut conn.machine);
        if conn.machine.unsent() > EARLY_BYTES {
            self.host.push_or_lose(conn, self.peer, self.thread);
        }
    }

    fn push(&self) {
        let conn = self.host.link(self.peer, self.thread);
        self.host.push_or_lose(conn, self.peer, self.thread);
    }
}

impl Drop for TcpLane {
    fn drop(&mut self) {
        let seat = self.host.seat(self.thread);
        seat.listening[self.peer.0 as usize].store(false, Ordering::Relaxed);
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
        self.check_thread(thread)?;
        let name = self.name(to)?;
        to.check(at, from.len(), Rights::WRITE)?;
        self.start(|machine| {
            machine.write(name, at, from);
            machine.notify(name, at, thread, value);
        });
        Ok(())
    }

    fn bulk(&mut self, thread: u32, tag: u64, payload: Vec<u8>) -> Result<(), OpError> {
        self.check_thread(thread)?;
        self.there()?;
        OpError::check_payload(payload.len())?;
        self.start(|machine| machine.bulk(thread, tag, payload));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), OpError> {
        self.there()?;
        self.push();
        Ok(())
    }

    fn wake(&mut self, thread: u32) {
        if thread >= self.host.threads || self.gone.is_some() {
            return;
        }
        let mut conn = self.host.link(self.peer, self.thread);
        // Behind operations that are still to be flushed it costs no write of its own.
        let travels = conn.machine.unsent() > 0;
        conn.machine.wake(thread);
        if !travels {
            self.host.push_or_lose(conn, self.peer, self.thread);
        }
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> bool {
        self.host.attend(self.thread);
        if self.gone.is_some() {
            return false;
        }
        let moved = self.host.pump(self.peer, self.thread);
        let (any, gone) = self.host.take((self.thread, self.peer), &mut self.spare, sink);
        let Some(event) = gone else { return moved || any };
        self.gone = Some(event.reason());
        // Nothing more is to keep the thread awake.
        self.host.seat(self.thread).listening[self.peer.0 as usize].store(false, Ordering::Relaxed);
        sink(Event::Peer(event.clone()));
        true
    }
}
