//! [`Host`]: what all threads, lanes and parkers of one process share; how they get at queue pairs,
//! what comes of completions, and what becomes of peers and regions.

use crate::{
    config::RdmaConfig,
    exports::{Exported, Exports},
    imports::Imports,
    link::{Incident, Link},
    memory::Memory,
    message::Told,
    payloads::cost_of,
    place::Place,
    seat::{Desk, Seat},
    service::{Order, Orders},
    sleepers::Sleepers,
    verbs::{Mr, Pd},
};
use primitive::SharedBytes;
use std::{collections::BTreeMap, io, sync::Arc};
use transport_api::{
    Carrier, Event, EventQueue, EventQueues, HostId, PeerEvent, PollTracker, RegionError,
    RegionKey, Rights,
};

/// What all threads of one process of the rack share.
pub(crate) struct Host {
    /// Tells this transport from every other that this process has made.
    pub(crate) id: u64,
    pub(crate) local: HostId,
    pub(crate) threads: u32,
    /// What joins the hosts otherwise, with one thread more: the service thread.
    pub(crate) carrier: Arc<dyn Carrier>,
    pub(crate) pd: Arc<Pd>,
    pub(crate) memory: Memory,
    pub(crate) place: Place,
    pub(crate) config: RdmaConfig,
    pub(crate) exports: Exports,
    pub(crate) imports: Imports,
    /// How many regions were withdrawn.
    withdrawals: std::sync::atomic::AtomicU64,
    pub(crate) event_queues: Arc<EventQueues>,
    pub(crate) poll_tracker: PollTracker,
    /// By thread number.
    pub(crate) seats: Vec<Seat>,
    pub(crate) orders: Orders,
    pub(crate) sleepers: Sleepers,
    /// By host: where it fetches payloads from, a part for each thread; nothing for this host, and
    /// where the carrier has them. Each is registered by itself, so that a peer can read what is for
    /// it only.
    offered: Vec<Option<Mr>>,
}

impl Host {
    pub(crate) fn new(
        carrier: Arc<dyn Carrier>,
        pd: Arc<Pd>,
        place: Place,
        config: RdmaConfig,
        seats: Vec<Seat>,
    ) -> io::Result<Arc<Self>> {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let (local, hosts, threads) = (carrier.local(), carrier.hosts(), seats.len() as u32);
        let memory = Memory::default();
        let sleepers = Sleepers::new(&pd, &memory, hosts as usize, threads)?;
        let bytes = threads as usize * config.payload_bytes();
        let offered = (0..hosts).map(|host| {
            let is_wanted = bytes > 0 && HostId(host) != local;
            is_wanted.then(|| Mr::new(&pd, &memory.take(bytes)?, Rights::READ)).transpose()
        });
        let offered = offered.collect::<io::Result<_>>()?;
        Ok(Arc::new(Self {
            id: NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            local,
            threads,
            carrier,
            pd,
            memory,
            place,
            config,
            exports: Exports::default(),
            imports: Imports::default(),
            withdrawals: std::sync::atomic::AtomicU64::new(0),
            event_queues: EventQueues::new(local, hosts, threads),
            poll_tracker: PollTracker::new(threads),
            seats,
            orders: Orders::default(),
            sleepers,
            offered,
        }))
    }

    pub(crate) fn seat(&self, thread: u32) -> &Seat {
        &self.seats[thread as usize]
    }

    /// The other hosts.
    pub(crate) fn peers(&self) -> impl Iterator<Item = HostId> {
        let local = self.local;
        (0..self.event_queues.hosts()).map(HostId).filter(move |host| *host != local)
    }

    /// Leaves an order for the service thread.
    pub(crate) fn leave(&self, order: Order) {
        self.orders.leave(order);
        self.ring_service();
    }

    pub(crate) fn ring_service(&self) {
        self.carrier.unpark(self.threads);
    }

    // ---- Queue pairs.

    /// Does something with the queue pair of `thread` to `peer`, if it is there.
    pub(crate) fn with<R>(
        &self,
        thread: u32,
        peer: HostId,
        operation: impl FnOnce(&mut Link, &mut dyn FnMut(Incident)) -> R,
    ) -> Option<R> {
        self.with_desk(thread, &mut self.seat(thread).desk(), peer, operation)
    }

    /// As [`with`](Self::with), for whoever has the desk already.
    pub(crate) fn with_desk<R>(
        &self,
        thread: u32,
        desk: &mut Desk,
        peer: HostId,
        operation: impl FnOnce(&mut Link, &mut dyn FnMut(Incident)) -> R,
    ) -> Option<R> {
        let Desk { links, incidents, .. } = &mut *desk;
        let index = peer.0 as usize;
        let mut note = |incident| incidents.push((index, incident));
        let link = links[index].as_mut()?;
        let result = operation(link, &mut note);
        if link.is_crowded() {
            link.post(&mut note);
        }
        self.deal_with(thread, desk);
        Some(result)
    }

    /// Takes what has completed for `thread`, and starts what has waited for that; true if there
    /// was anything.
    pub(crate) fn pump(&self, thread: u32) -> bool {
        self.pump_at(thread, &mut self.seat(thread).desk())
    }

    /// As [`pump`](Self::pump), for whoever has the desk already.
    pub(crate) fn pump_at(&self, thread: u32, desk: &mut Desk) -> bool {
        let any = desk.pump(&self.seat(thread).cq);
        if any {
            self.deal_with(thread, desk);
        }
        self.wake_next(thread, desk);
        any
    }

    /// Deals with what has happened on queue pairs of `thread`.
    fn deal_with(&self, thread: u32, desk: &mut Desk) {
        while let Some((index, incident)) = desk.incidents.pop() {
            // In their order, of which there is mostly one.
            let mut all = std::mem::take(&mut desk.incidents);
            all.push((index, incident));
            for (index, incident) in all.drain(..) {
                self.happened(thread, index, incident, desk);
            }
            if desk.incidents.is_empty() {
                desk.incidents = all;
                return;
            }
        }
    }

    fn happened(&self, thread: u32, index: usize, incident: Incident, desk: &mut Desk) {
        let peer = HostId(index as u32);
        desk.concerned |= match incident {
            Incident::Wake(to)
            | Incident::Notified { thread: to, .. }
            | Incident::Payload { thread: to, .. } => to == thread,
            Incident::Event(_) | Incident::Failed(_) => true,
        };
        match incident {
            Incident::Event(event) => self.deliver(thread, peer, event),
            Incident::Notified { thread: to, key, generation, event } => {
                let is_it = |exported: &Arc<Exported>| exported.generation() == generation;
                if self.exports.get(key).as_ref().is_some_and(is_it) {
                    self.deliver(to, peer, event);
                } else if let Some(link) = &mut desk.links[index] {
                    // Revoked since, and so is what it tells of.
                    link.taken(1);
                    link.post(&mut |incident| desk.incidents.push((index, incident)));
                }
            }
            Incident::Payload { thread: to, event } => self.deliver(to, peer, event),
            Incident::Wake(to) => self.carrier.unpark(to),
            // The peer may have said why, elsewhere.
            Incident::Failed(reason) => self.leave(Order::Ended { peer, reason }),
        }
    }

    /// Registered memory for so many queue pairs, which no peer can reach: how much each has of it,
    /// and all.
    pub(crate) fn memory_for(&self, links: usize) -> io::Result<(usize, Mr)> {
        let each = Link::bytes(&self.config)?;
        let all = each.checked_mul(links).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok((each, Mr::new(&self.pd, &self.memory.take(all)?, Rights::NONE)?))
    }

    /// Where the lane of `thread` to `peer` has its payloads fetched from, if it has.
    pub(crate) fn offered(&self, thread: u32, peer: HostId) -> Option<SharedBytes> {
        let mr = self.offered[peer.0 as usize].as_ref()?;
        let each = self.config.payload_bytes();
        Some(mr.memory().slice(thread as usize * each, each))
    }

    /// What `peer` is told of where it fetches payloads from.
    pub(crate) fn tell_offered(&self, peer: HostId) -> Option<Told> {
        self.offered[peer.0 as usize].as_ref().map(|mr| Told::of(mr, Rights::READ))
    }

    // ---- What becomes of peers.

    /// What became of `peer`, if it is no longer there.
    pub(crate) fn end_of(&self, peer: HostId) -> Option<&PeerEvent> {
        self.event_queues.end_of(peer)
    }

    /// Notes what became of a peer, the first time, and gets every thread to look; false if it was
    /// noted before.
    pub(crate) fn gone(&self, event: PeerEvent) -> bool {
        let (PeerEvent::Lost(host, _) | PeerEvent::Left(host)) = event;
        if !self.event_queues.end(&event) {
            return false;
        }
        match event {
            PeerEvent::Left(_) => tracing::debug!(local = %self.local, %host, "left"),
            PeerEvent::Lost(_, why) => tracing::warn!(local = %self.local, %host, %why, "lost"),
        }
        (0..self.threads).for_each(|thread| self.carrier.unpark(thread));
        self.ring_service();
        true
    }

    // ---- What arrives for threads.

    /// Leaves something for the lane of `thread` to `from`.
    pub(crate) fn deliver(&self, thread: u32, from: HostId, event: Event) {
        self.event_queues.deliver(thread, from, event);
        self.carrier.unpark(thread);
    }

    /// Hands what has arrived for the lane of `event_queue`, which leads to another host, to `sink`,
    /// and tells the peer's threads how many of their notifications and payloads were taken; whether
    /// there was anything.
    pub(crate) fn take(&self, event_queue: &mut EventQueue, sink: &mut dyn FnMut(Event)) -> bool {
        // By thread of the peer: notifications, and what payloads were charged.
        let mut taken: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        let any = event_queue.take(&mut |event| {
            match &event {
                Event::Notified { from, .. } => taken.entry(from.thread).or_default().0 += 1,
                Event::Bulk { from, payload, .. } => {
                    taken.entry(from.thread).or_default().1 += cost_of(payload.len());
                }
                _ => {}
            }
            sink(event);
        });
        for (of, (notifications, cost)) in taken {
            self.with(of, event_queue.peer(), |link, note| {
                link.taken(notifications);
                link.took(event_queue.thread(), cost);
                link.post(note);
            });
        }
        any
    }

    /// Called by a thread that has just woken: from now on the service thread must notice when it
    /// stops polling.
    pub(crate) fn expect_ticks(&self) {
        if self.poll_tracker.must_notify() {
            self.ring_service();
        }
    }

    // ---- Regions.

    /// Withdraws `key` (only `generation` of it, if given), and calls `done` when no peer's operation
    /// touches its memory any more; if `reports_quiet`, when those of this host's threads do not,
    /// either. Should the device not end its registration, that is logged, and the memory is never
    /// used for anything else.
    ///
    /// # Errors
    /// [`RegionError::Unknown`] if it was not there.
    pub(crate) fn withdraw(
        &self,
        key: RegionKey,
        generation: Option<u32>,
        reports_quiet: bool,
        done: impl FnOnce() + Send + 'static,
    ) -> Result<(), RegionError> {
        let unknown = RegionError::Unknown { owner: self.local, key };
        let exported = self.exports.remove(key, generation).ok_or(unknown)?;
        let (importers, generation) = (exported.importers(), exported.generation());
        let done = Box::new(move || {
            exported.close();
            done();
        });
        let token = self.withdrawals.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let carrier = reports_quiet.then_some(token);
        // For this host's own threads; the service thread hears of it.
        let revoked = match carrier {
            Some(token) => self.carrier.begin_revoke(self.threads, key, token),
            None => self.carrier.revoke(key),
        };
        self.leave(Order::Withdraw { key, generation, importers, carrier, done });
        revoked
    }

    /// Whether nothing that threads of this host have flushed is still under way.
    pub(crate) fn is_quiet(&self, peer: HostId) -> bool {
        (0..self.threads).all(|thread| {
            self.pump(thread);
            let quiet = self.with(thread, peer, |link, note| {
                link.settle(note);
                link.is_quiet()
            });
            quiet != Some(false)
        })
    }
}

/// Withdraws a region when its last clone is dropped.
pub(crate) struct Guard {
    pub(crate) host: std::sync::Weak<Host>,
    pub(crate) key: RegionKey,
    pub(crate) generation: u32,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(host) = self.host.upgrade() {
            // It may have been revoked already.
            let _ = host.withdraw(self.key, Some(self.generation), false, || ());
        }
    }
}
