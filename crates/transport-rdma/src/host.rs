//! [`Host`]: what all threads, lanes and bells of one process share.
//!
//! Each thread has a *desk*: its queue pairs and what is under way on them, behind one lock, and a
//! completion queue for all of them. Data needs nobody at the other end; but notices and
//! notifications must be read there, and completions here. As with connections over TCP, the thread
//! itself does that: whenever it polls, and when its bell wakes, since the completion queue wakes
//! it. For a thread that does neither, because its own code keeps it busy, the service thread does
//! it at every [tick](crate::service::TICK). So the lock is free whenever its thread wants it,
//! nearly.

use crate::{
    config::RdmaConfig,
    exports::{Exported, Exports},
    imports::Imports,
    link::{Incident, Link, RECEIVES},
    memory::Memory,
    place::Place,
    service::{Order, Orders},
    verbs::{AT_ONCE, Cq, Mr, Pd},
};
use primitive::sync::{AtomicBool, AtomicU64, Ordering, fence};
use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc},
    time::Duration,
};
use transport_api::{
    Carrier, Event, HostId, LossReason, PeerEvent, RegionError, RegionKey, Rights,
};

/// Events beyond which failures that nobody waits for are no longer reported. Everything else that
/// waits in an inbox is bounded by what this host has asked for, or by the window of notifications.
const REPORTS: usize = 1024;

/// How long a withdrawal waits for peers that know the region. Whoever still uses it then is
/// stopped by the device, which ends their queue pairs.
const WITHDRAWAL: Duration = Duration::from_secs(2);

/// What has arrived for one thread from one host, until the thread's lane takes it.
#[derive(Default)]
struct Inbox {
    /// Whether there is something to look at: events, or that the host is gone.
    any: AtomicBool,
    events: Mutex<Vec<Event>>,
}

/// A thread's queue pairs.
#[derive(Default)]
pub(crate) struct Desk {
    /// By host; that to this host itself is there only if it is needed.
    pub(crate) links: Vec<Option<Link>>,
    /// The host that the queue pair of this number leads to.
    by_number: HashMap<u32, usize>,
    /// What has happened and is not dealt with yet, by host.
    incidents: Vec<(usize, Incident)>,
    /// Whether anything of that concerned the thread itself, since somebody last asked: most of
    /// what it hears while it sleeps may be for others.
    concerned: bool,
}

impl Desk {
    /// Puts the queue pair to `peer` in its place.
    pub(crate) fn put(&mut self, peer: HostId, link: Link) {
        let index = peer.0 as usize;
        self.by_number.insert(link.qp.number(), index);
        self.links[index] = Some(link);
    }

    /// Whether anything has concerned the thread itself since this was last asked.
    pub(crate) fn was_concerned(&mut self) -> bool {
        std::mem::take(&mut self.concerned)
    }
}

/// One runtime thread of this process.
pub(crate) struct Seat {
    /// By host: whether it has ever opened a lane there, and whether it holds it now.
    pub(crate) opened: Vec<AtomicBool>,
    pub(crate) listening: Vec<AtomicBool>,
    /// Whether it has taken its bell.
    pub(crate) bell: AtomicBool,
    /// Whether it sleeps there, so that completions wake it.
    pub(crate) is_asleep: AtomicBool,
    /// How often it has looked at its completions. Only the thread itself writes it.
    rounds: AtomicU64,
    /// How often it has slept.
    pub(crate) sleeps: AtomicU64,
    pub(crate) cq: Arc<Cq>,
    desk: Mutex<Desk>,
    /// By host.
    inboxes: Vec<Inbox>,
}

impl Seat {
    pub(crate) fn new(hosts: usize, cq: Arc<Cq>) -> Self {
        let flags = || (0..hosts).map(|_| AtomicBool::new(false)).collect();
        let links = (0..hosts).map(|_| None).collect();
        Self {
            opened: flags(),
            listening: flags(),
            bell: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
            cq,
            desk: Mutex::new(Desk { links, ..Default::default() }),
            inboxes: (0..hosts).map(|_| Inbox::default()).collect(),
        }
    }

    pub(crate) fn desk(&self) -> MutexGuard<'_, Desk> {
        // Nobody panics with it unless the process is beyond help.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Acquire)
    }

    /// Whether a lane that the thread holds has something to report.
    pub(crate) fn has_news(&self) -> bool {
        let mut lanes = self.listening.iter().zip(&self.inboxes);
        lanes.any(|(open, inbox)| open.load(Ordering::Relaxed) && inbox.any.load(Ordering::Acquire))
    }
}

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
    /// By host number: what became of it, once it is no longer there.
    gone: Vec<OnceLock<PeerEvent>>,
    /// By thread number.
    pub(crate) seats: Vec<Seat>,
    pub(crate) orders: Orders,
    /// Whether the service thread looks after the threads at every tick.
    pub(crate) is_ticking: AtomicBool,
}

impl Host {
    pub(crate) fn new(
        carrier: Arc<dyn Carrier>,
        pd: Arc<Pd>,
        place: Place,
        config: RdmaConfig,
        seats: Vec<Seat>,
    ) -> Arc<Self> {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let hosts = carrier.hosts();
        Arc::new(Self {
            id: NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            local: carrier.local(),
            threads: seats.len() as u32,
            carrier,
            pd,
            memory: Memory::default(),
            place,
            config,
            exports: Exports::default(),
            imports: Imports::default(),
            gone: (0..hosts).map(|_| OnceLock::new()).collect(),
            seats,
            orders: Orders::default(),
            is_ticking: AtomicBool::new(true),
        })
    }

    pub(crate) fn hosts(&self) -> u32 {
        self.gone.len() as u32
    }

    pub(crate) fn seat(&self, thread: u32) -> &Seat {
        &self.seats[thread as usize]
    }

    /// The other hosts.
    pub(crate) fn peers(&self) -> impl Iterator<Item = HostId> {
        let local = self.local;
        (0..self.hosts()).map(HostId).filter(move |host| *host != local)
    }

    /// Leaves an order for the service thread.
    pub(crate) fn leave(&self, order: Order) {
        self.orders.leave(order);
        self.ring_service();
    }

    pub(crate) fn ring_service(&self) {
        self.carrier.ring(self.threads);
    }

    // ---- Queue pairs.

    /// Does something with the queue pair of `thread` to `peer`, if it is there.
    pub(crate) fn with<R>(
        &self,
        thread: u32,
        peer: HostId,
        operation: impl FnOnce(&mut Link, &mut dyn FnMut(Incident)) -> R,
    ) -> Option<R> {
        let mut desk = self.seat(thread).desk();
        let Desk { links, incidents, .. } = &mut *desk;
        let index = peer.0 as usize;
        let mut note = |incident| incidents.push((index, incident));
        let link = links[index].as_mut()?;
        let result = operation(link, &mut note);
        if link.is_crowded() {
            link.post(&mut note);
        }
        self.deal_with(thread, &mut desk);
        Some(result)
    }

    /// Takes what has completed for `thread`, and starts what has waited for that; true if there
    /// was anything.
    pub(crate) fn pump(&self, thread: u32) -> bool {
        self.pump_at(thread, &mut self.seat(thread).desk())
    }

    /// As [`pump`](Self::pump), for whoever has the desk already.
    pub(crate) fn pump_at(&self, thread: u32, desk: &mut Desk) -> bool {
        let Desk { links, by_number, incidents, .. } = desk;
        let mut any = false;
        loop {
            let polled = self.seat(thread).cq.poll(|completion| {
                let Some(&index) = by_number.get(&completion.qp) else { return };
                let Some(link) = &mut links[index] else { return };
                link.take(completion, &mut |incident| incidents.push((index, incident)));
            });
            match polled {
                Ok(0) => break,
                Ok(count) => {
                    any = true;
                    if count < AT_ONCE {
                        break;
                    }
                }
                Err(error) => {
                    let text = format!("the RDMA device has failed: {error}");
                    for (index, link) in links.iter_mut().enumerate() {
                        if let Some(link) = link {
                            link.end();
                            let reason = LossReason::Connection(text.clone());
                            incidents.push((index, Incident::Failed(reason)));
                        }
                    }
                    any = true;
                    break;
                }
            }
        }
        if any {
            for (index, link) in links.iter_mut().enumerate() {
                if let Some(link) = link {
                    link.advance(&mut |incident| incidents.push((index, incident)));
                }
            }
            self.deal_with(thread, desk);
        }
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
            Incident::Wake(to) | Incident::Notified { thread: to, .. } => to == thread,
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
            Incident::Wake(to) => self.carrier.ring(to),
            // The peer may have said why, elsewhere.
            Incident::Failed(reason) => self.leave(Order::Ended { peer, reason }),
        }
    }

    /// Registered memory for so many queue pairs, which no peer can reach: how much each has of it,
    /// and all.
    pub(crate) fn memory_for(&self, links: usize) -> io::Result<(usize, Mr)> {
        let each = Link::bytes(&self.config)?;
        let all = each.checked_mul(links).ok_or(io::ErrorKind::OutOfMemory)?;
        let nothing = Rights::from_bits(0).expect("no right at all");
        Ok((each, Mr::new(&self.pd, &self.memory.take(all)?, nothing)?))
    }

    // ---- What becomes of peers.

    /// What became of `peer`, if it is no longer there.
    pub(crate) fn end_of(&self, peer: HostId) -> Option<&PeerEvent> {
        self.gone[peer.0 as usize].get()
    }

    /// Notes what became of a peer, the first time, and gets every thread to look; false if it was
    /// noted before.
    pub(crate) fn gone(&self, event: PeerEvent) -> bool {
        let (PeerEvent::Lost(host, _) | PeerEvent::Left(host)) = event;
        if self.gone[host.0 as usize].set(event.clone()).is_err() {
            return false;
        }
        match event {
            PeerEvent::Left(_) => tracing::debug!(local = %self.local, %host, "left"),
            PeerEvent::Lost(_, why) => tracing::warn!(local = %self.local, %host, %why, "lost"),
        }
        for thread in 0..self.threads {
            self.inbox(thread, host).any.store(true, Ordering::Release);
            self.carrier.ring(thread);
        }
        self.ring_service();
        true
    }

    // ---- What arrives for threads.

    fn inbox(&self, thread: u32, from: HostId) -> &Inbox {
        &self.seat(thread).inboxes[from.0 as usize]
    }

    /// Leaves something for the lane of `thread` to `from`.
    fn deliver(&self, thread: u32, from: HostId, event: Event) {
        let inbox = self.inbox(thread, from);
        let mut events = inbox.events.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(event, Event::Failed { token: None, .. }) && events.len() >= REPORTS {
            return;
        }
        events.push(event);
        drop(events);
        inbox.any.store(true, Ordering::Release);
        self.carrier.ring(thread);
    }

    /// Hands what was delivered for the lane of `thread` to `from` to `sink`, with `spare` to keep
    /// from allocating. Returns whether there was anything, and what became of the host if it is no
    /// longer there.
    pub(crate) fn take(
        &self,
        (thread, from): (u32, HostId),
        spare: &mut Vec<Event>,
        sink: &mut dyn FnMut(Event),
    ) -> (bool, Option<&PeerEvent>) {
        let inbox = self.inbox(thread, from);
        if !inbox.any.load(Ordering::Acquire) {
            return (false, None);
        }
        inbox.any.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // Before the events, so that what was delivered before the end is reported before it.
        let gone = self.end_of(from);
        std::mem::swap(&mut *inbox.events.lock().unwrap_or_else(PoisonError::into_inner), spare);
        let mut taken: BTreeMap<u32, u32> = BTreeMap::new();
        let any = !spare.is_empty();
        for event in spare.drain(..) {
            if let Event::Notified { from, .. } = &event {
                *taken.entry(from.thread).or_default() += 1;
            }
            sink(event);
        }
        for (of, count) in taken {
            self.with(of, from, |link, note| {
                link.taken(count);
                link.post(note);
            });
        }
        (any, gone)
    }

    /// `thread`, which calls this, looks after its own completions.
    #[inline]
    pub(crate) fn attend(&self, thread: u32) {
        let rounds = &self.seat(thread).rounds;
        rounds.store(rounds.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Called by a thread that has just woken: from now on the service thread must notice when it
    /// stops polling.
    pub(crate) fn expect_ticks(&self) {
        fence(Ordering::SeqCst);
        if !self.is_ticking.load(Ordering::Relaxed) {
            self.ring_service();
        }
    }

    // ---- Regions.

    /// Withdraws `key` (only `generation` of it, if given): when this has returned, no peer's
    /// operation touches its memory any more.
    ///
    /// # Errors
    /// [`RegionError::Unknown`] if it was not there.
    pub(crate) fn withdraw(
        &self,
        key: RegionKey,
        generation: Option<u32>,
    ) -> Result<(), RegionError> {
        let unknown = RegionError::Unknown { owner: self.local, key };
        let exported = self.exports.remove(key, generation).ok_or(unknown)?;
        // For this host's own threads.
        let revoked = self.carrier.revoke(key);
        let (importers, generation) = (exported.importers(), exported.generation());
        let (done, ended) = mpsc::channel();
        self.leave(Order::Withdraw { key, generation, importers, done });
        // Closed when all have forgotten it or are gone; a peer that hangs must not hang this.
        if ended.recv_timeout(WITHDRAWAL) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!(local = %self.local, ?key, "withdrawn from peers that still may use it");
        }
        exported.close();
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
            let _ = host.withdraw(self.key, Some(self.generation));
        }
    }
}

/// A new completion queue for a thread of a rack of so many hosts, which holds the completions of
/// all its queue pairs even when all of them fail.
pub(crate) fn completion_queue(
    pd: &Pd,
    config: &RdmaConfig,
    hosts: usize,
    most: u32,
) -> io::Result<Arc<Cq>> {
    let each = config.depth + RECEIVES;
    let needed = u32::try_from(hosts).unwrap_or(u32::MAX).saturating_mul(each);
    if needed > most {
        let text = format!(
            "{hosts} hosts and {} work requests for each need {needed} completions, and the \
             device has {most}: lower the depth",
            config.depth
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Cq::new(pd.device(), needed)
}
