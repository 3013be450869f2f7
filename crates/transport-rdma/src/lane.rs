//! [`RdmaLane`]: a thread's lane to another host.
//!
//! Everything that can be checked is checked here: a device refuses what is out of bounds or not
//! allowed, too, but ends the queue pair over it. Bulk payloads are fetched by the peer's device, or
//! go over the carrier, as the settings say.

use crate::{
    host::Host,
    imports::Remote,
    link::{Incident, Link},
    verbs::Verb,
};
use primitive::{SharedBytes, sync::Ordering};
use std::sync::Arc;
use transport_api::{
    Event, EventQueue, HostId, Lane, OpError, PeerEvent, RemoteRegion, Rights, Tag, ThreadId,
};

/// Polls from one look at the carrier's lane to the next: it costs a system call. Whoever has slept
/// looks at once.
const CARRIER_EVERY: u32 = 64;

/// A lane over a queue pair.
pub(crate) struct RdmaLane {
    host: Arc<Host>,
    thread: u32,
    peer: HostId,
    event_queue: EventQueue,
    /// The same lane of the carrier, for bulk payloads.
    carrier: Box<dyn Lane>,
    /// Whether something was given to the carrier's lane since the last flush.
    has_bulk: bool,
    /// Polls until the next look at the carrier's lane.
    until_carrier: u32,
    /// How often the thread had slept at the last look.
    sleeps: u64,
    /// Whether the carrier's lane has reported the end of the peer.
    carrier_ended: bool,
}

impl RdmaLane {
    /// The lane to another host that `event_queue` is for.
    pub(crate) fn new(host: Arc<Host>, event_queue: EventQueue, carrier: Box<dyn Lane>) -> Self {
        Self {
            host,
            thread: event_queue.thread(),
            peer: event_queue.peer(),
            event_queue,
            carrier,
            has_bulk: false,
            until_carrier: 0,
            sleeps: 0,
            carrier_ended: false,
        }
    }

    /// What `region` is for the device, if this lane may do to `count` bytes at `at` of it what
    /// needs `needs`.
    fn check<'r>(
        &self,
        region: &'r RemoteRegion,
        at: usize,
        count: usize,
        needs: Rights,
    ) -> Result<&'r Arc<Remote>, OpError> {
        let key = region.key();
        let ours =
            |remote: &&Arc<Remote>| remote.issuer == self.host.id && region.owner() == self.peer;
        let remote = region.handle::<Arc<Remote>>().filter(ours).ok_or(OpError::Foreign(key))?;
        self.event_queue.check_peer()?;
        region.check(at, count, needs)?;
        Ok(remote)
    }

    fn check_word<'r>(
        &self,
        on: &'r RemoteRegion,
        at: usize,
        needs: Rights,
    ) -> Result<&'r Arc<Remote>, OpError> {
        let remote = self.check(on, at, 8, needs)?;
        on.check_word(at, needs)?;
        Ok(remote)
    }

    /// Starts an operation on `remote`, which is not withdrawn while its queue pair is held.
    fn start(&self, remote: &Remote, operation: impl FnOnce(&mut Link)) -> Result<(), OpError> {
        let started = self.with(|link, _| {
            let is_live = remote.is_live();
            if is_live {
                operation(link);
            }
            is_live
        });
        if started == Some(false) { Err(OpError::Revoked(remote.region)) } else { Ok(()) }
    }

    fn with<R>(
        &self,
        operation: impl FnOnce(&mut Link, &mut dyn FnMut(Incident)) -> R,
    ) -> Option<R> {
        self.host.with(self.thread, self.peer, operation)
    }

    /// Polls the carrier's lane; true if anything came.
    fn poll_carrier(&mut self, sink: &mut dyn FnMut(Event)) -> bool {
        let mut ended = None;
        let moved = self.carrier.poll(&mut |event| match event {
            Event::Peer(event) => ended = Some(event),
            other => sink(other),
        });
        if let Some(event) = ended {
            self.carrier_ended = true;
            self.host.gone(event);
        }
        // Where something came, more may follow.
        self.until_carrier = if moved { 0 } else { CARRIER_EVERY };
        moved
    }
}

impl Lane for RdmaLane {
    fn peer(&self) -> HostId {
        self.peer
    }

    fn write(&mut self, to: &RemoteRegion, at: usize, from: &SharedBytes) -> Result<(), OpError> {
        let remote = self.check(to, at, from.len(), Rights::WRITE)?;
        self.start(remote, |link| link.write(remote, at, from))
    }

    fn signal(&mut self, to: &RemoteRegion, at: usize, word: u64) -> Result<(), OpError> {
        let remote = self.check_word(to, at, Rights::WRITE)?;
        self.start(remote, |link| link.signal(remote, at, word))
    }

    fn read(
        &mut self,
        from: &RemoteRegion,
        at: usize,
        into: &SharedBytes,
        token: u64,
    ) -> Result<(), OpError> {
        let remote = self.check(from, at, into.len(), Rights::READ)?;
        self.start(remote, |link| link.read(remote, at, into, token))
    }

    fn compare_swap(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        expected: u64,
        new: u64,
        token: u64,
    ) -> Result<(), OpError> {
        let remote = self.check_word(on, at, Rights::ATOMIC)?;
        self.start(remote, |link| link.atomic(Verb::Swap(expected, new), remote, at, token))
    }

    fn fetch_add(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        addend: u64,
        token: u64,
    ) -> Result<(), OpError> {
        let remote = self.check_word(on, at, Rights::ATOMIC)?;
        self.start(remote, |link| link.atomic(Verb::Add(addend), remote, at, token))
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
        let remote = self.check(to, at, from.len(), Rights::WRITE)?;
        let name = (to.key(), to.generation());
        self.start(remote, |link| {
            link.write(remote, at, from);
            link.notify(name, (at, from.len()), thread, value);
        })
    }

    fn fence(&mut self, token: u64) -> Result<(), OpError> {
        self.event_queue.check_peer()?;
        self.with(|link, _| link.fence(token));
        Ok(())
    }

    fn bulk(&mut self, thread: u32, tag: Tag, payload: Vec<u8>) -> Result<(), OpError> {
        self.event_queue.check_thread(thread)?;
        self.event_queue.check_peer()?;
        if self.host.config.reads_payloads {
            OpError::check_payload(payload.len())?;
            self.with(|link, _| link.offer(thread, tag.0, payload));
            return Ok(());
        }
        self.has_bulk = true;
        // Where its answer is looked for at every poll.
        self.until_carrier = 0;
        self.carrier.bulk(thread, tag, payload)
    }

    fn flush(&mut self) -> Result<(), OpError> {
        self.event_queue.check_peer()?;
        self.with(|link, note| link.post(note));
        if std::mem::take(&mut self.has_bulk) {
            // If the peer is gone for the carrier, the next poll reports it.
            let _ = self.carrier.flush();
        }
        Ok(())
    }

    fn wake(&mut self, thread: u32) {
        if thread >= self.host.threads || self.event_queue.is_over() {
            return;
        }
        self.host.wake(self.thread, ThreadId { host: self.peer, thread });
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> bool {
        self.host.poll_tracker.record_poll(self.thread);
        // For all lanes of the thread: also where this one is over.
        let mut moved = self.host.pump(self.thread);
        if self.event_queue.is_over() {
            // The carrier may find out later, and keeps the thread awake until somebody hears it.
            if !self.carrier_ended {
                self.poll_carrier(&mut |_| ());
            }
            return false;
        }
        moved |= self.host.take(&mut self.event_queue, sink);
        let ended = self.host.end_of(self.peer).is_some();
        let sleeps = self.host.seat(self.thread).sleeps.load(Ordering::Relaxed);
        if self.until_carrier == 0 || ended || sleeps != self.sleeps {
            self.sleeps = sleeps;
            moved |= self.poll_carrier(sink);
        } else {
            self.until_carrier -= 1;
        }
        match self.host.end_of(self.peer) {
            None => return moved,
            // What it has sent before its goodbye is still to come.
            Some(PeerEvent::Left(_)) if !self.carrier_ended => return true,
            Some(_) => {}
        }
        // What completed before the end is reported before it.
        self.host.pump(self.thread);
        self.host.take(&mut self.event_queue, sink);
        if let Some(end) = self.host.end_of(self.peer) {
            self.event_queue.report(end, sink);
        }
        true
    }
}
