//! [`RdmaLane`]: a thread's lane to another host.
//!
//! The lane checks bounds and rights, although devices do so as well: a device that refuses an access
//! ends the queue pair. The peer's device reads bulk payloads, or the carrier carries them, as the
//! settings say.

use std::sync::Arc;

use primitive::SharedBytes;
use primitive::sync::Ordering;
use transport_api::{
    Event, EventQueue, HostId, Lane, LossReason, Namespace, OpError, PeerEvent, RemoteRegion,
    Rights, Tag, ThreadId,
};

use crate::control::host::Host;
use crate::memory::remote::RemoteMemory;
use crate::qp::connection::{Connection, Incident};
use crate::verbs::Verb;

/// Polls between two polls of the carrier's lane, each of which costs a system call. After a sleep the
/// carrier's lane is polled at once.
const CARRIER_EVERY: u32 = 64;

/// A lane over a queue pair.
pub(crate) struct RdmaLane {
    host: Arc<Host>,
    thread: u32,
    peer: HostId,
    event_queue: EventQueue,
    /// The lane of the carrier to the same host, for bulk payloads.
    carrier: Box<dyn Lane>,
    /// Whether this host's device reads the peer's payloads, so that none come over the carrier. The
    /// peer's settings decide, which may differ.
    reads_payloads: bool,
    /// Whether the carrier's lane has something to flush.
    has_bulk: bool,
    /// Polls until the next poll of the carrier's lane.
    until_carrier: u32,
    /// How often the thread had slept at the last poll of the carrier's lane.
    sleeps: u64,
    /// Whether the carrier's lane has reported the end of the peer.
    carrier_ended: bool,
}

impl RdmaLane {
    /// The lane to another host that `event_queue` is for.
    pub(crate) fn new(host: Arc<Host>, event_queue: EventQueue, carrier: Box<dyn Lane>) -> Self {
        let (thread, peer) = (event_queue.thread(), event_queue.peer());
        let reads = host.with(thread, peer, |connection, _| connection.reads_payloads());
        Self {
            host,
            thread,
            peer,
            event_queue,
            carrier,
            reads_payloads: reads.unwrap_or(false),
            has_bulk: false,
            until_carrier: 0,
            sleeps: 0,
            carrier_ended: false,
        }
    }

    /// The remote memory of `region`, if the region belongs here and the peer is there.
    fn remote<'r>(&self, region: &'r RemoteRegion) -> Result<&'r Arc<RemoteMemory>, OpError> {
        region.check_origin(self.host.id, self.peer)?;
        let remote = region.handle().ok_or(OpError::Foreign(region.key()))?;
        self.event_queue.check_peer()?;
        Ok(remote)
    }

    /// Starts an operation on `remote`, which is not revoked while the thread's connections are locked.
    fn start(
        &self,
        remote: &RemoteMemory,
        operation: impl FnOnce(&mut Connection),
    ) -> Result<(), OpError> {
        let started = self.with(|connection, _| {
            let is_live = remote.is_live();
            if is_live {
                operation(connection);
            }
            is_live
        });
        if started == Some(false) { Err(remote.refusal()) } else { Ok(()) }
    }

    fn with<R>(
        &self,
        operation: impl FnOnce(&mut Connection, &mut dyn FnMut(Incident)) -> R,
    ) -> Option<R> {
        self.host.with(self.thread, self.peer, operation)
    }

    /// Polls the carrier's lane; whether there were events.
    fn poll_carrier(&mut self, sink: &mut dyn FnMut(Event)) -> bool {
        let (mut ended, mut wrong) = (false, None);
        let (threads, reads) = (self.host.threads, self.reads_payloads);
        let moved = self.carrier.poll(&mut |event| match event {
            Event::Peer(_) => ended = true,
            // Nothing that follows counts.
            _ if wrong.is_some() => {}
            event => match violation(&event, threads, reads) {
                None => sink(event),
                Some(what) => wrong = Some(what),
            },
        });
        if let Some(what) = wrong {
            self.host.failed(self.peer, LossReason::Protocol(what));
        }
        if ended {
            self.carrier_ended = true;
            // Its own lane tells it as well.
            self.host.unpark_service();
        }
        // More may follow.
        self.until_carrier = if moved { 0 } else { CARRIER_EVERY };
        moved
    }
}

/// What is wrong with an event of the carrier's lane, if anything is. The peer's runtime threads, which are
/// `threads`, send payloads there, unless this host's device reads them; nothing else is sent there.
fn violation(event: &Event, threads: u32, reads_payloads: bool) -> Option<String> {
    match event {
        Event::Bulk { from, .. } if !reads_payloads && from.thread < threads => None,
        Event::Bulk { from, tag, .. } => {
            let thread = from.thread;
            Some(format!("a payload with tag {tag:?} of thread {thread} over the carrier"))
        }
        other => Some(format!("{other:?} over the carrier")),
    }
}

impl Lane for RdmaLane {
    fn peer(&self) -> HostId {
        self.peer
    }

    fn write(&mut self, to: &RemoteRegion, at: usize, from: &SharedBytes) -> Result<(), OpError> {
        let remote = self.remote(to)?;
        to.check(at, from.len(), Rights::WRITE)?;
        self.start(remote, |connection| connection.write(remote, at, from))
    }

    fn signal(&mut self, to: &RemoteRegion, at: usize, word: u64) -> Result<(), OpError> {
        let remote = self.remote(to)?;
        to.check_word(at, Rights::WRITE)?;
        self.start(remote, |connection| connection.signal(remote, at, word))
    }

    fn read(
        &mut self,
        from: &RemoteRegion,
        at: usize,
        into: &SharedBytes,
        token: u64,
    ) -> Result<(), OpError> {
        let remote = self.remote(from)?;
        from.check(at, into.len(), Rights::READ)?;
        self.start(remote, |connection| connection.read(remote, at, into, token))
    }

    fn compare_swap(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        expected: u64,
        new: u64,
        token: u64,
    ) -> Result<(), OpError> {
        let remote = self.remote(on)?;
        on.check_word(at, Rights::ATOMIC)?;
        self.start(remote, |connection| {
            connection.atomic(Verb::Swap(expected, new), remote, at, token)
        })
    }

    fn fetch_add(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        addend: u64,
        token: u64,
    ) -> Result<(), OpError> {
        let remote = self.remote(on)?;
        on.check_word(at, Rights::ATOMIC)?;
        self.start(remote, |connection| connection.atomic(Verb::Add(addend), remote, at, token))
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
        let remote = self.remote(to)?;
        to.check(at, from.len(), Rights::WRITE)?;
        self.start(remote, |connection| connection.write_notify(remote, at, from, thread, value))
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
        self.remote(on)?;
        on.check(at, len, Rights::WRITE)?;
        // It reaches no memory, so it is sent for a revoked region as well.
        let name = (on.key(), on.generation());
        self.with(|connection, _| connection.notify(name, (at, len), thread, value));
        Ok(())
    }

    fn fence(&mut self, token: u64) -> Result<(), OpError> {
        self.event_queue.check_peer()?;
        if let Some((flags, at)) = self.host.sleep_flags.own(self.peer, self.thread) {
            self.with(|connection, _| connection.fence(flags, at, token));
        }
        Ok(())
    }

    fn bulk(&mut self, thread: u32, tag: Tag, payload: Vec<u8>) -> Result<(), OpError> {
        self.event_queue.check_thread(thread)?;
        self.event_queue.check_peer()?;
        if self.host.config.reads_payloads {
            OpError::check_payload(payload.len())?;
            self.with(|connection, _| connection.offer(thread, tag.0, payload));
            return Ok(());
        }
        self.has_bulk = true;
        // The answer is expected there.
        self.until_carrier = 0;
        self.carrier.bulk(thread, tag, payload)
    }

    fn waiting_notifications(&self, thread: u32) -> usize {
        self.with(|connection, _| connection.waiting_notifications(thread)).unwrap_or(0)
    }

    fn waiting_bulk(&self, namespace: Namespace) -> usize {
        if self.host.config.reads_payloads {
            return self.with(|connection, _| connection.waiting_bulk(namespace)).unwrap_or(0);
        }
        self.carrier.waiting_bulk(namespace)
    }

    fn flush(&mut self) -> Result<(), OpError> {
        self.event_queue.check_peer()?;
        self.with(|connection, sink| connection.post(sink));
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
        let mut moved = self.host.progress(self.thread);
        if self.event_queue.is_over() {
            // The carrier may notice later, and keeps the thread awake until its event is taken.
            if !self.carrier_ended {
                self.poll_carrier(&mut |_| ());
            }
            return false;
        }
        moved |= self.host.take(&mut self.event_queue, sink);
        let ended = self.host.end_of(self.peer).is_some();
        let sleeps = self.host.thread_state(self.thread).sleeps.load(Ordering::Relaxed);
        if self.until_carrier == 0 || ended || sleeps != self.sleeps {
            self.sleeps = sleeps;
            moved |= self.poll_carrier(sink);
        } else {
            self.until_carrier -= 1;
        }
        match self.host.end_of(self.peer) {
            None => return moved,
            // What it sent before its goodbye is still to come.
            Some(PeerEvent::Left(_)) if !self.carrier_ended => return true,
            Some(_) => {}
        }
        // Completions before the end are reported before it.
        self.host.progress(self.thread);
        self.host.take(&mut self.event_queue, sink);
        if let Some(end) = self.host.end_of(self.peer) {
            self.event_queue.report(end, sink);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use transport_api::RegionKey;

    use super::*;

    #[test]
    fn only_payloads_of_runtime_threads_come_over_the_carrier() {
        let from = |thread| ThreadId { host: HostId(1), thread };
        let bulk = |thread| Event::Bulk { from: from(thread), tag: Tag(7), payload: vec![1] };
        assert_eq!(violation(&bulk(1), 2, false), None);
        let is_wrong = |event, reads_payloads| violation(&event, 2, reads_payloads).is_some();
        assert!(is_wrong(bulk(2), false), "the service thread's");
        assert!(is_wrong(bulk(1), true), "the device reads them");
        let (key, at, len, value) = (RegionKey(1), 0, 8, 9);
        let notified = Event::Notified { from: from(0), key, at, len, value };
        assert!(is_wrong(notified, false), "they follow their data");
    }
}
