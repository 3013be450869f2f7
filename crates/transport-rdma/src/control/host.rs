//! [`Host`]: what all threads, lanes and parkers of one process share: its queue pairs, its peers and
//! its regions.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use primitive::SharedBytes;
use primitive::sync::AtomicBool;
use rdma_protocol::MemoryDescriptor;
use transport_api::{
    Carrier, Event, EventQueues, HostId, LossReason, OpError, PeerEvent, PollTracker, Rights,
};
use transport_control::Control;

use crate::config::RdmaConfig;
use crate::control::device_selection::SelectedDevice;
use crate::control::imports::Imports;
use crate::control::medium::{Plane, Rdma};
use crate::control::revocations::Revocations;
use crate::control::sleep_flags::SleepFlags;
use crate::memory::pool::Memory;
use crate::qp::connection::{Connection, Incident};
use crate::qp::thread::{Connections, ThreadState};
use crate::verbs::{Mr, Pd};

/// What all threads of one process of the rack share.
pub(crate) struct Host {
    /// Distinguishes this transport from others of this process.
    pub(crate) id: u64,
    pub(crate) local: HostId,
    pub(crate) threads: u32,
    /// It has one thread more than the rack: the service thread.
    pub(crate) carrier: Arc<dyn Carrier>,
    pub(crate) pd: Arc<Pd>,
    pub(crate) memory: Memory,
    pub(crate) selected: SelectedDevice,
    pub(crate) config: RdmaConfig,
    pub(crate) imports: Imports,
    pub(crate) event_queues: Arc<EventQueues>,
    pub(crate) poll_tracker: PollTracker,
    /// By thread number.
    pub(crate) thread_states: Vec<ThreadState>,
    /// Locked for short times; may be locked while a thread's connections are, not the other way.
    control: Mutex<Plane>,
    /// Lanes that wait for revocations.
    pub(crate) revocations: Mutex<Revocations>,
    /// Peers that cannot be used any more, for the service thread.
    failures: Mutex<Vec<(HostId, LossReason)>>,
    /// Whether the service thread is to end.
    pub(crate) is_stopping: AtomicBool,
    pub(crate) sleep_flags: SleepFlags,
    /// By host: the blocks from which it reads payloads, a part for each thread; none for this host,
    /// nor if the carrier carries payloads. Each host's are registered on their own, so that a peer
    /// can read only its own payloads.
    blocks: Vec<Option<Mr>>,
}

impl Host {
    pub(crate) fn new(
        carrier: Arc<dyn Carrier>,
        pd: Arc<Pd>,
        selected: SelectedDevice,
        config: RdmaConfig,
        thread_states: Vec<ThreadState>,
    ) -> io::Result<Arc<Self>> {
        let (local, hosts, threads) =
            (carrier.local(), carrier.hosts(), thread_states.len() as u32);
        let memory = Memory::default();
        let sleep_flags = SleepFlags::new(&pd, &memory, hosts as usize, threads)?;
        let bytes = threads as usize * config.payload_bytes();
        let blocks = (0..hosts).map(|host| {
            let is_wanted = bytes > 0 && HostId(host) != local;
            is_wanted.then(|| Mr::new(&pd, &memory.take(bytes)?, Rights::READ)).transpose()
        });
        let blocks = blocks.collect::<io::Result<_>>()?;
        Ok(Arc::new(Self {
            id: transport_api::next_issuer(),
            local,
            threads,
            carrier,
            pd,
            memory,
            selected,
            config,
            imports: Imports::default(),
            event_queues: EventQueues::new(local, hosts, threads),
            poll_tracker: PollTracker::new(threads),
            thread_states,
            control: Mutex::new(Plane::new(local, hosts)),
            revocations: Mutex::default(),
            failures: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            sleep_flags,
            blocks,
        }))
    }

    pub(crate) fn thread_state(&self, thread: u32) -> &ThreadState {
        &self.thread_states[thread as usize]
    }

    /// The other hosts.
    pub(crate) fn peers(&self) -> impl Iterator<Item = HostId> {
        let local = self.local;
        (0..self.event_queues.hosts()).map(HostId).filter(move |host| *host != local)
    }

    /// Calls the control plane. The caller wakes the service thread if it is to act on that.
    pub(crate) fn control<R>(&self, call: impl FnOnce(&mut Control<Rdma>) -> R) -> R {
        self.plane().call(call)
    }

    /// The control plane.
    pub(crate) fn plane(&self) -> MutexGuard<'_, Plane> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the failures that the service thread has not handled.
    pub(crate) fn take_failures(&self) -> Vec<(HostId, LossReason)> {
        std::mem::take(&mut *self.failures.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn unpark_service(&self) {
        self.carrier.unpark(self.threads);
    }

    // ---- Queue pairs.

    /// Runs `operation` on the queue pair of `thread` to `peer`, if it exists.
    pub(crate) fn with<R>(
        &self,
        thread: u32,
        peer: HostId,
        operation: impl FnOnce(&mut Connection, &mut dyn FnMut(Incident)) -> R,
    ) -> Option<R> {
        self.with_locked(thread, &mut self.thread_state(thread).connections(), peer, operation)
    }

    /// As [`with`](Self::with), with the thread's connections locked.
    pub(crate) fn with_locked<R>(
        &self,
        thread: u32,
        connections: &mut Connections,
        peer: HostId,
        operation: impl FnOnce(&mut Connection, &mut dyn FnMut(Incident)) -> R,
    ) -> Option<R> {
        let Connections { by_host, incidents, .. } = &mut *connections;
        let index = peer.0 as usize;
        let mut sink = |incident| incidents.push((index, incident));
        let connection = by_host[index].as_mut()?;
        let result = operation(connection, &mut sink);
        if connection.is_crowded() {
            connection.post(&mut sink);
        }
        self.handle_incidents(thread, connections);
        Some(result)
    }

    /// Handles what has happened on queue pairs of `thread`.
    pub(crate) fn handle_incidents(&self, thread: u32, connections: &mut Connections) {
        while let Some((index, incident)) = connections.incidents.pop() {
            // In their order. Mostly there is one.
            let mut all = std::mem::take(&mut connections.incidents);
            all.push((index, incident));
            for (index, incident) in all.drain(..) {
                self.handle_incident(thread, index, incident, connections);
            }
            if connections.incidents.is_empty() {
                connections.incidents = all;
                return;
            }
        }
    }

    fn handle_incident(
        &self,
        thread: u32,
        index: usize,
        incident: Incident,
        connections: &mut Connections,
    ) {
        let peer = HostId(index as u32);
        connections.concerned |= match incident {
            Incident::Wake(to)
            | Incident::Notified { thread: to, .. }
            | Incident::Payload { thread: to, .. } => to == thread,
            Incident::Event(_) | Incident::Failed(_) => true,
        };
        match incident {
            Incident::Event(event) => self.deliver(thread, peer, event),
            Incident::Notified { thread: to, key, generation, event } => {
                // A record follows its write, which the device has not refused. If the region was
                // revoked between the two, there is nothing to check any more.
                let checked = self.control(|control| match control.exported(key) {
                    Some((exported, current)) if current == generation => {
                        Some(exported.check_notification(peer, &event))
                    }
                    _ => control.was_exported(key, generation).then_some(Ok(())),
                });
                let connection = &mut connections.by_host[index];
                match (checked, connection) {
                    (Some(Ok(())), _) => self.deliver(to, peer, event),
                    // Other memory was exported under the key since: the notification is dropped.
                    (None, Some(connection)) => {
                        connection.notifications_taken(1);
                        connection
                            .post(&mut |incident| connections.incidents.push((index, incident)));
                    }
                    (Some(Err(error)), connection) => {
                        connection.iter_mut().for_each(Connection::end);
                        let text = format!("a notification of a write that is refused: {error}");
                        self.failed(peer, LossReason::Protocol(text));
                    }
                    (None, None) => {}
                }
            }
            Incident::Payload { thread: to, event } => self.deliver(to, peer, event),
            Incident::Wake(to) => self.carrier.unpark(to),
            // That is the loss of no host. No lane reports the end of its own host, so the operations fail
            // one by one.
            Incident::Failed(reason) if peer == self.local => {
                tracing::warn!(local = %self.local, thread, %reason, "local atomics have failed");
                let connection = connections.by_host[index].as_ref();
                let lost = connection.and_then(Connection::lost).map(|(tokens, _)| tokens);
                for &token in lost.unwrap_or_default() {
                    let error = OpError::PeerLost(peer, reason.clone());
                    self.deliver(thread, peer, Event::Failed { token: Some(token), error });
                }
            }
            // The peer may have sent the reason over the carrier.
            Incident::Failed(reason) => self.failed(peer, reason),
        }
    }

    /// `peer` cannot be used any more, since a queue pair to it has failed or it has violated the protocol:
    /// the service thread handles that.
    pub(crate) fn failed(&self, peer: HostId, reason: LossReason) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.push((peer, reason));
        drop(failures);
        self.unpark_service();
    }

    /// Registered memory for a number of queue pairs, which peers cannot access: the bytes of each, and all
    /// of it.
    pub(crate) fn memory_for(&self, connections: usize) -> io::Result<(usize, Mr)> {
        let each = Connection::bytes(&self.config)?;
        let all = each.checked_mul(connections).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok((each, Mr::new(&self.pd, &self.memory.take(all)?, Rights::NONE)?))
    }

    /// The blocks from which `peer` reads the payloads of `thread`, unless the carrier carries them.
    pub(crate) fn blocks(&self, thread: u32, peer: HostId) -> Option<SharedBytes> {
        let mr = self.blocks[peer.0 as usize].as_ref()?;
        let each = self.config.payload_bytes();
        Some(mr.memory().slice(thread as usize * each, each))
    }

    /// The description of the blocks from which `peer` reads payloads.
    pub(crate) fn describe_blocks(&self, peer: HostId) -> Option<MemoryDescriptor> {
        self.blocks[peer.0 as usize].as_ref().map(|mr| mr.describe(Rights::READ))
    }

    // ---- Peers.

    /// How `peer` ended, if it has.
    pub(crate) fn end_of(&self, peer: HostId) -> Option<&PeerEvent> {
        self.event_queues.end_of(peer)
    }

    /// Records the end of a peer and wakes every thread; false if it was recorded before.
    pub(crate) fn peer_gone(&self, event: PeerEvent) -> bool {
        let (PeerEvent::Lost(host, _) | PeerEvent::Left(host)) = event;
        if !self.event_queues.end(&event) {
            return false;
        }
        match event {
            PeerEvent::Left(_) => tracing::debug!(local = %self.local, %host, "peer left"),
            PeerEvent::Lost(_, why) => {
                tracing::warn!(local = %self.local, %host, %why, "peer lost")
            }
        }
        (0..self.threads).for_each(|thread| self.carrier.unpark(thread));
        self.unpark_service();
        true
    }

    // ---- Events.

    /// Delivers an event to the lane of `thread` to `from`.
    pub(crate) fn deliver(&self, thread: u32, from: HostId, event: Event) {
        self.event_queues.deliver(thread, from, event);
        self.carrier.unpark(thread);
    }
}
