//! [`LocalLane`]: a thread's lane to its own host: the carrier's, except for atomics.
//!
//! A device's atomics and a processor's do not see each other, so a word that peers change by the
//! device must be changed by the device from here, too. What carries that is a queue pair of the
//! thread that leads back to itself, made when it is first needed.

use crate::{
    error::advice, exports::Exported, host::Host, imports::Remote, link::Link, verbs::Verb,
};
use primitive::SharedBytes;
use std::{io, sync::Arc};
use transport_api::{
    Event, EventQueue, HostId, Lane, LossReason, OpError, RemoteRegion, Rights, Tag, ThreadId,
};

/// A lane within a process.
pub(crate) struct LocalLane {
    host: Arc<Host>,
    thread: u32,
    event_queue: EventQueue,
    carrier: Box<dyn Lane>,
    /// Whether the queue pair is there.
    has_link: bool,
}

impl LocalLane {
    /// The lane to this host that `event_queue` is for.
    pub(crate) fn new(host: Arc<Host>, event_queue: EventQueue, carrier: Box<dyn Lane>) -> Self {
        Self { host, thread: event_queue.thread(), event_queue, carrier, has_link: false }
    }

    /// Makes the queue pair, if it is not there.
    fn link(&mut self) -> Result<(), OpError> {
        if self.has_link {
            return Ok(());
        }
        let made = self.make_link();
        self.has_link = made.is_ok();
        made.map_err(|error| {
            let text = format!("no queue pair for its own atomics: {error}{}", advice(&error));
            OpError::PeerLost(self.host.local, LossReason::Connection(text))
        })
    }

    fn make_link(&self) -> io::Result<()> {
        let Host { place, config, threads, local, .. } = &*self.host;
        let (_, memory) = self.host.memory_for(1)?;
        let seat = self.host.seat(self.thread);
        let me = ThreadId { host: *local, thread: self.thread };
        let from = (&seat.cq, &memory, self.host.offered(self.thread, *local));
        let mut link = Link::new(from, config, me, *threads)?;
        crate::join::connect_to_itself(&mut link, place, config)?;
        seat.desk().put(*local, link);
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
        let is_it = |exported: &Arc<Exported>| exported.generation() == generation;
        let Some(exported) = self.host.exports.get(key).filter(is_it) else {
            let ours = on.owner() == self.host.local && !window.is_live();
            return Err(if ours { OpError::Revoked(key) } else { OpError::Foreign(key) });
        };
        if !window.maps(exported.memory()) {
            return Err(OpError::Foreign(key));
        }
        OpError::check(key, (rights, window.len()), (at, 8, Rights::ATOMIC))?;
        if !at.is_multiple_of(8) {
            return Err(OpError::Misaligned(at));
        }
        self.link()?;
        let (address, remote_key) = exported.place(rights);
        let remote = Arc::new(Remote::new(self.host.id, key, address, remote_key));
        let (thread, local) = (self.thread, self.host.local);
        let started = self.host.with(thread, local, |link, _| {
            // It is withdrawn by whoever holds this queue pair.
            let is_live = window.is_live();
            if is_live {
                link.atomic(verb, &remote, at, token);
            }
            is_live
        });
        if started == Some(false) { Err(OpError::Revoked(key)) } else { Ok(()) }
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
        // The carrier's last thread is not one of the rack's.
        self.event_queue.check_thread(thread)?;
        self.carrier.write_notify(to, at, from, thread, value)
    }

    fn fence(&mut self, token: u64) -> Result<(), OpError> {
        if !self.has_link {
            return self.carrier.fence(token);
        }
        // What goes over the carrier is done when its call returns.
        self.host.with(self.thread, self.host.local, |link, _| link.fence(token));
        Ok(())
    }

    fn bulk(&mut self, thread: u32, tag: Tag, payload: Vec<u8>) -> Result<(), OpError> {
        self.event_queue.check_thread(thread)?;
        self.carrier.bulk(thread, tag, payload)
    }

    fn flush(&mut self) -> Result<(), OpError> {
        if self.has_link {
            self.host.with(self.thread, self.host.local, |link, note| link.post(note));
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
        let mut moved = self.carrier.poll(sink);
        if self.has_link {
            self.host.poll_tracker.record_poll(self.thread);
            moved |= self.host.pump(self.thread);
        }
        self.event_queue.take(sink) || moved
    }
}
