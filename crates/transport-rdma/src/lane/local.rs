//! [`LocalLane`]: a thread's lane to its own host: the carrier's, except for atomics.
//!
//! A device's atomics are not atomic with respect to the processor's, so a word that peers change by
//! the device must be changed by the device from here, too: through a queue pair of the thread that is
//! connected to itself, created when it is first needed.
//!
//! Other operations do not wait for atomics, as the contract's order allows here. To keep them back, the
//! lane would have to copy what they write and check it twice, since their errors are those of the call,
//! and it could start them only when it is polled. Callers that need the order wait for the old value.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use primitive::SharedBytes;
use transport_api::{
    Event, EventQueue, HostId, Lane, LossReason, Namespace, OpError, RemoteRegion, Rights, Tag,
    ThreadId,
};

use crate::control::exports::Exported;
use crate::control::host::Host;
use crate::error::advice;
use crate::memory::remote::RemoteMemory;
use crate::qp::connection::Connection;
use crate::verbs::Verb;

/// A lane within a process.
pub(crate) struct LocalLane {
    host: Arc<Host>,
    thread: u32,
    event_queue: EventQueue,
    carrier: Box<dyn Lane>,
    /// Whether the queue pair exists.
    has_connection: bool,
    /// Fences that wait for atomics: how many had been started, and the token.
    fences: VecDeque<(u64, u64)>,
    /// Atomics that had been started before the last fence that has ended.
    fenced: u64,
}

impl LocalLane {
    /// The lane to this host that `event_queue` is for.
    pub(crate) fn new(host: Arc<Host>, event_queue: EventQueue, carrier: Box<dyn Lane>) -> Self {
        Self {
            host,
            thread: event_queue.thread(),
            event_queue,
            carrier,
            has_connection: false,
            fences: VecDeque::new(),
            fenced: 0,
        }
    }

    /// Creates the queue pair, unless it exists.
    fn connection(&mut self) -> Result<(), OpError> {
        if self.has_connection {
            return Ok(());
        }
        let made = self.connect_loopback();
        self.has_connection = made.is_ok();
        made.map_err(|error| {
            let text =
                format!("cannot create a queue pair for local atomics: {error}{}", advice(&error));
            OpError::PeerLost(self.host.local, LossReason::Connection(text))
        })
    }

    fn connect_loopback(&self) -> io::Result<()> {
        let Host { selected, config, threads, local, .. } = &*self.host;
        let (_, memory) = self.host.memory_for(1)?;
        let state = self.host.thread_state(self.thread);
        let me = ThreadId { host: *local, thread: self.thread };
        let from = (&state.cq, &memory, self.host.blocks(self.thread, *local));
        let mut connection = Connection::new(from, config, me, *threads)?;
        crate::control::join::connect_loopback(&mut connection, selected, config)?;
        state.connections().insert(*local, connection);
        Ok(())
    }

    /// Runs `operation` on the queue pair, if it exists.
    fn with<R>(&self, operation: impl FnOnce(&mut Connection) -> R) -> Option<R> {
        self.host.with(self.thread, self.host.local, |connection, _| operation(connection))
    }

    /// Starts the carrier's fences for those whose atomics have completed: its own operations are in
    /// order. Fences of atomics that were lost with the queue pair fail.
    fn start_fences(&mut self) -> Result<(), OpError> {
        while let Some((started, token)) = self.fences.front().copied() {
            let state = self.with(|connection| {
                let (all, ended) = connection.fetches();
                let lost = connection.lost();
                (ended, lost.map(|(tokens, why)| (all - tokens.len() as u64, why)))
            });
            let (ended, lost) = state.unwrap_or_default();
            if ended < started {
                return Ok(());
            }
            self.fences.pop_front();
            let fenced = std::mem::replace(&mut self.fenced, started);
            match lost {
                // The last atomics were lost, beginning with this number.
                Some((first, why)) if started > first.max(fenced) => {
                    let error = OpError::PeerLost(self.host.local, why);
                    let failed = Event::Failed { token: Some(token), error };
                    self.host.deliver(self.thread, self.host.local, failed);
                }
                _ => self.carrier.fence(token)?,
            }
        }
        Ok(())
    }

    fn atomic(
        &mut self,
        verb: Verb,
        on: &RemoteRegion,
        at: usize,
        token: u64,
    ) -> Result<(), OpError> {
        let key = on.key();
        let window = on.window().ok_or(OpError::Foreign(key))?;
        let (_, rights, generation) = window.name();
        let revoked = || OpError::Revoked { key, generation };
        let is_it = |exported: &Exported| exported.carrier_generation() == generation;
        let Some(exported) = self.host.exported(key).filter(is_it) else {
            let ours = on.owner() == self.host.local && !window.is_live();
            return Err(if ours { revoked() } else { OpError::Foreign(key) });
        };
        if !window.maps(exported.memory()) {
            return Err(OpError::Foreign(key));
        }
        OpError::check(key, (rights, window.len()), (at, 8, Rights::ATOMIC))?;
        if !at.is_multiple_of(8) {
            return Err(OpError::Misaligned(at));
        }
        self.connection()?;
        let (address, remote_key) = exported.remote(rights).ok_or_else(revoked)?;
        let remote = Arc::new(RemoteMemory::new((key, generation), address, remote_key));
        let started = self.with(|connection| {
            if let Some((_, why)) = connection.lost() {
                return Err(OpError::PeerLost(self.host.local, why));
            }
            // It is not revoked while the connections are locked.
            if !window.is_live() {
                return Err(revoked());
            }
            connection.atomic(verb, &remote, at, token);
            Ok(())
        });
        started.unwrap_or(Ok(()))
    }
}

impl Lane for LocalLane {
    fn peer(&self) -> HostId {
        self.host.local
    }

    fn write(&mut self, to: &RemoteRegion, at: usize, from: &SharedBytes) -> Result<(), OpError> {
        self.carrier.write(to, at, from)
    }

    fn signal(&mut self, to: &RemoteRegion, at: usize, word: u64) -> Result<(), OpError> {
        self.carrier.signal(to, at, word)
    }

    fn read(
        &mut self,
        from: &RemoteRegion,
        at: usize,
        into: &SharedBytes,
        token: u64,
    ) -> Result<(), OpError> {
        self.carrier.read(from, at, into, token)
    }

    fn compare_swap(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        expected: u64,
        new: u64,
        token: u64,
    ) -> Result<(), OpError> {
        self.atomic(Verb::Swap(expected, new), on, at, token)
    }

    fn fetch_add(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        addend: u64,
        token: u64,
    ) -> Result<(), OpError> {
        self.atomic(Verb::Add(addend), on, at, token)
    }

    fn write_notify(
        &mut self,
        to: &RemoteRegion,
        at: usize,
        from: &SharedBytes,
        thread: u32,
        value: u32,
    ) -> Result<(), OpError> {
        // The carrier's last thread is the service thread.
        self.event_queue.check_thread(thread)?;
        self.carrier.write_notify(to, at, from, thread, value)
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
        self.carrier.notify(on, at, len, thread, value)
    }

    fn bulk(&mut self, thread: u32, tag: Tag, payload: Vec<u8>) -> Result<(), OpError> {
        self.event_queue.check_thread(thread)?;
        self.carrier.bulk(thread, tag, payload)
    }

    fn waiting_notifications(&self, thread: u32) -> usize {
        self.carrier.waiting_notifications(thread)
    }

    fn waiting_bulk(&self, namespace: Namespace) -> usize {
        self.carrier.waiting_bulk(namespace)
    }

    fn fence(&mut self, token: u64) -> Result<(), OpError> {
        let fetches = self.with(|connection| connection.fetches());
        let (started, _) = fetches.unwrap_or_default();
        self.fences.push_back((started, token));
        self.start_fences()
    }

    fn flush(&mut self) -> Result<(), OpError> {
        if self.has_connection {
            self.host.with(self.thread, self.host.local, |connection, sink| connection.post(sink));
        }
        self.carrier.flush()
    }

    #[inline]
    fn wake(&mut self, thread: u32) {
        if thread < self.host.threads {
            self.carrier.wake(thread);
        }
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> bool {
        let mut moved = false;
        if self.has_connection {
            self.host.poll_tracker.record_poll(self.thread);
            moved |= self.host.progress(self.thread);
        }
        if !self.fences.is_empty() {
            // The carrier does not lose this host.
            let _ = self.start_fences();
        }
        // Atomics and failed fences are in the event queue, other fences behind them at the carrier.
        moved |= self.event_queue.take(sink);
        moved |= self.carrier.poll(sink);
        moved
    }
}
