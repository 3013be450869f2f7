//! [`Host`]: what all threads, lanes and parkers of one process share.
//!
//! Which thread reads a connection? Best the thread that it belongs to: while it polls, at each poll
//! of its lane; while it sleeps, because its parker waits for the thread's own connections. But a
//! peer must not wait for a thread that does neither, because its own code keeps it busy (or because
//! the program has no such thread yet). The service thread *adopts* the connections of such a
//! thread, until it polls again. So on the paths that matter no byte changes threads, and no thread
//! delays a peer for longer than two [ticks](PollTracker::TICK) and one [push](Conn::push).
//!
//! Whatever arrives on a connection wakes the connection's thread: through the thread's epoll, or by the
//! service thread after it has read the connection.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use primitive::sync::{AtomicBool, AtomicU32, Ordering};
use rustix::event::epoll;
use transport_api::park_word::ParkWord;
use transport_api::{
    Event, EventQueue, EventQueues, HostId, PeerEvent, PollTracker, QuietPoints, RegionKey, Waiting,
};
use transport_control::Config;

use crate::conn::Conn;
use crate::export::Exported;
use crate::machine::{Name, Port, bulk};
use crate::plane::SharedPlane;
use crate::readiness::{ALARM, Readiness, WAKEUP};
use crate::service_queue::{ServiceQueue, Task, eventfd, notify};
use crate::wire::WireError;

/// One runtime thread of this process.
pub(crate) struct ThreadState {
    /// Its park word.
    word: AtomicU32,
    /// Whether the service thread serves its connections.
    pub(crate) adopted: AtomicBool,
    /// Where it sleeps: `wakeup`, and its connections while they are awaited.
    pub(crate) epoll: OwnedFd,
    /// An eventfd.
    pub(crate) wakeup: OwnedFd,
    readiness: Readiness,
}

impl ThreadState {
    /// A thread of a rack of so many hosts, which asks its epoll which connections to read, or does not
    /// (see [`asks`](crate::readiness::asks)).
    pub(crate) fn new(hosts: usize, asks: bool) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wakeup = eventfd()?;
        epoll::add(&epoll, &wakeup, epoll::EventData::new_u64(WAKEUP), epoll::EventFlags::IN)?;
        let (word, adopted) = (AtomicU32::new(0), AtomicBool::new(true));
        let readiness = Readiness::new(hosts, asks);
        Ok(Self { word, adopted, epoll, wakeup, readiness })
    }

    /// Whether the thread asks its epoll which connections to read.
    pub(crate) fn asks(&self) -> bool {
        self.readiness.asks()
    }

    /// Whether the thread, which calls this, is to read its connection to `peer` in this poll.
    /// `last_look` belongs to the lane.
    #[inline]
    pub(crate) fn must_read(&self, peer: HostId, last_look: &mut u64) -> bool {
        self.readiness.must_read(peer, last_look, &self.epoll, &self.wakeup)
    }

    /// Wakes the thread from its sleep whenever `alarm` becomes readable anew.
    pub(crate) fn watch(&self, alarm: impl AsFd) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, alarm, epoll::EventData::new_u64(ALARM), flags)?)
    }

    pub(crate) fn park_word(&self) -> ParkWord<'_> {
        ParkWord::new(&self.word)
    }

    /// Whether the service thread need not look whether the thread polls: it sleeps, or its
    /// connections are adopted.
    pub(crate) fn is_away(&self) -> bool {
        self.adopted.load(Ordering::Relaxed) || self.park_word().is_parked()
    }
}

/// One host of the rack as this process sees it.
pub(crate) struct Peer {
    /// By thread; none for this host itself, nor for its neighbours.
    links: Vec<Arc<Mutex<Conn>>>,
    /// Links on which it has said goodbye.
    goodbyes: AtomicU32,
}

impl Peer {
    pub(crate) fn new(links: Vec<Conn>) -> Self {
        let links = links.into_iter().map(Mutex::new).map(Arc::new).collect();
        Self { links, goodbyes: AtomicU32::new(0) }
    }
}

/// What all threads of one process of the rack share.
pub(crate) struct Host {
    /// Tells this transport from every other that this process has made.
    pub(crate) id: u64,
    pub(crate) local: HostId,
    pub(crate) threads: u32,
    pub(crate) event_queues: Arc<EventQueues>,
    pub(crate) poll_tracker: PollTracker,
    /// Of lanes of this host to itself.
    pub(crate) quiet_points: QuietPoints,
    /// By thread: what it has sent to each thread of this host that has not taken it.
    untaken: Vec<Mutex<Box<[Waiting]>>>,
    pub(crate) plane: SharedPlane,
    /// By host number, this host included.
    peers: Vec<Peer>,
    /// By thread number.
    pub(crate) thread_states: Vec<ThreadState>,
    pub(crate) service_queue: ServiceQueue,
}

impl Host {
    pub(crate) fn new(
        config: Config,
        peers: Vec<Peer>,
        thread_states: Vec<ThreadState>,
        service_queue: ServiceQueue,
    ) -> Self {
        let (Config { local, hosts, .. }, threads) = (config, thread_states.len() as u32);
        let of_each = || (0..threads).map(|_| Waiting::default()).collect();
        Self {
            id: transport_api::next_issuer(),
            local,
            threads,
            event_queues: EventQueues::new(local, hosts, threads),
            poll_tracker: PollTracker::new(threads),
            quiet_points: QuietPoints::new(threads),
            untaken: (0..threads).map(|_| Mutex::new(of_each())).collect(),
            plane: SharedPlane::new(config),
            peers,
            thread_states,
            service_queue,
        }
    }

    fn peer(&self, host: HostId) -> &Peer {
        &self.peers[host.0 as usize]
    }

    pub(crate) fn thread_state(&self, thread: u32) -> &ThreadState {
        &self.thread_states[thread as usize]
    }

    /// What `thread` has sent to each thread of this host that has not taken it.
    pub(crate) fn untaken(&self, thread: u32) -> MutexGuard<'_, Box<[Waiting]>> {
        self.untaken[thread as usize].lock()
    }

    /// Whether `host` is this one, or one that it is connected with.
    pub(crate) fn reaches(&self, host: HostId) -> bool {
        let is_connected = |peer: &Peer| !peer.links.is_empty();
        host == self.local || self.peers.get(host.0 as usize).is_some_and(is_connected)
    }

    /// The hosts that this one is connected with.
    pub(crate) fn others(&self) -> impl Iterator<Item = HostId> {
        let peers = (0..).map(HostId).zip(&self.peers);
        peers.filter(|(_, peer)| !peer.links.is_empty()).map(|(host, _)| host)
    }

    /// Every data connection, as peer and thread.
    pub(crate) fn links(&self) -> impl Iterator<Item = (HostId, u32)> {
        let threads = self.threads;
        self.others().flat_map(move |host| (0..threads).map(move |thread| (host, thread)))
    }

    /// The connection of `thread` to `peer`, which is another host.
    pub(crate) fn link(&self, peer: HostId, thread: u32) -> &Arc<Mutex<Conn>> {
        &self.peer(peer).links[thread as usize]
    }

    /// Reads once what there is on the connection of `thread` to `peer`, which the caller has locked, and
    /// writes what waits; true if any byte came.
    pub(crate) fn pump(&self, mut conn: MutexGuard<'_, Conn>, peer: HostId, thread: u32) -> bool {
        let received = conn.receive(&mut Arrivals { host: self, peer });
        let both = received.and_then(|moved| {
            // In most polls nothing has come, and nothing waits.
            if conn.has_outgoing() {
                self.push(&mut conn, peer, thread)?;
            }
            Ok(moved)
        });
        both.unwrap_or_else(|broken| {
            self.broken(conn, peer, broken);
            true
        })
    }

    /// Writes what waits on a connection that the caller has locked. If there is no room, the threads
    /// that wait for the connection wait for room, too.
    pub(crate) fn push(&self, conn: &mut Conn, peer: HostId, thread: u32) -> Result<(), WireError> {
        conn.push()?;
        let own = &self.thread_state(thread).epoll;
        Ok(conn.watch(own, &self.service_queue.epoll, peer, thread)?)
    }

    /// As [`push`](Self::push), and handles failures.
    pub(crate) fn push_or_lose(&self, mut conn: MutexGuard<'_, Conn>, peer: HostId, thread: u32) {
        if let Err(broken) = self.push(&mut conn, peer, thread) {
            self.broken(conn, peer, broken);
        }
    }

    /// A connection has come to its end.
    fn broken(&self, mut conn: MutexGuard<'_, Conn>, peer: HostId, broken: WireError) {
        let expected = conn.machine.heard_goodbye() && !matches!(broken, WireError::Violation(_));
        conn.close();
        drop(conn);
        match broken {
            _ if expected => {}
            // What was sent is in the reason.
            WireError::Violation(_) => self.lose(peer, broken),
            // The peer may have said why, on its control connection.
            _ => self.service_queue.push(Task::Ended { peer, broken }),
        }
    }

    /// Counts `peer` as lost.
    pub(crate) fn lose(&self, peer: HostId, broken: WireError) {
        self.plane.lock().control.lose(peer, broken.reason());
        self.poll_control();
    }

    /// Notes how a peer has ended, and wakes every thread.
    pub(crate) fn gone(&self, event: PeerEvent) {
        let (PeerEvent::Lost(host, _) | PeerEvent::Left(host)) = event;
        if !self.event_queues.end(&event) {
            return;
        }
        match event {
            PeerEvent::Left(_) => tracing::debug!(local = %self.local, %host, "left"),
            PeerEvent::Lost(_, why) => tracing::warn!(local = %self.local, %host, %why, "lost"),
        }
        (0..self.threads).for_each(|thread| self.wake(thread));
    }

    /// How `peer` has ended, if it has.
    pub(crate) fn end_of(&self, peer: HostId) -> Option<&PeerEvent> {
        self.event_queues.end_of(peer)
    }

    /// Queues an event for the lane of `thread` to `from`, and wakes the thread.
    pub(crate) fn deliver(&self, thread: u32, from: HostId, event: Event) {
        self.event_queues.deliver(thread, from, event);
        self.wake(thread);
    }

    /// Tells the control plane which revoked regions no thread of this host uses any more.
    pub(crate) fn report_quiet(&self) {
        let reached = self.quiet_points.reached();
        if !reached.is_empty() {
            let mut plane = self.plane.lock();
            reached.iter().for_each(|epoch| plane.control.quiesced(*epoch));
            drop(plane);
            self.poll_control();
        }
    }

    /// Hands what has arrived for the lane of `event_queue`, which leads to another host, to `sink`,
    /// and tells the peer's threads how much of theirs was taken; whether there was anything.
    #[inline]
    pub(crate) fn take(&self, event_queue: &mut EventQueue, sink: &mut dyn FnMut(Event)) -> bool {
        event_queue.has_any() && self.take_all(event_queue, sink)
    }

    #[inline(never)]
    fn take_all(&self, event_queue: &mut EventQueue, sink: &mut dyn FnMut(Event)) -> bool {
        let mut taken: BTreeMap<u32, u64> = BTreeMap::new();
        let any = event_queue.take(&mut |event| {
            let cost = match &event {
                Event::Bulk { from, payload, .. } => Some((from, bulk::cost_of(payload.len()))),
                Event::Notified { from, .. } => Some((from, bulk::cost_of(0))),
                _ => None,
            };
            if let Some((from, cost)) = cost {
                *taken.entry(from.thread).or_default() += cost;
            }
            sink(event);
        });
        if !any {
            return false;
        }
        for (link, cost) in taken {
            let mut conn = self.link(event_queue.peer(), link).lock();
            conn.machine.taken(event_queue.thread(), cost);
            self.push_or_lose(conn, event_queue.peer(), link);
        }
        true
    }

    /// Wakes `thread`, which exists, if it sleeps.
    pub(crate) fn wake(&self, thread: u32) {
        let state = self.thread_state(thread);
        if state.park_word().must_wake() {
            notify(&state.wakeup);
        }
    }

    /// `thread`, which calls this, serves its own connections.
    #[inline]
    pub(crate) fn record_poll(&self, thread: u32) {
        self.poll_tracker.record_poll(thread);
        let adopted = &self.thread_state(thread).adopted;
        if adopted.load(Ordering::Relaxed) {
            adopted.store(false, Ordering::Relaxed);
            self.expect_ticks();
        }
    }

    /// Called by a thread that has begun to serve its connections: from now on the service thread
    /// must notice when it stops.
    pub(crate) fn expect_ticks(&self) {
        if self.poll_tracker.must_notify() {
            self.service_queue.wake();
        }
    }
}

/// Where what arrives from one peer goes.
pub(crate) struct Arrivals<'a> {
    pub(crate) host: &'a Host,
    pub(crate) peer: HostId,
}

impl Port for Arrivals<'_> {
    fn region(&mut self, key: RegionKey) -> Option<Arc<Exported>> {
        self.host.plane.lock().control.exported(key).map(|(exported, _)| exported.clone())
    }

    fn was_exported(&mut self, Name { key, generation }: Name) -> bool {
        self.host.plane.lock().control.was_exported(key, generation)
    }

    fn event(&mut self, thread: u32, event: Event) {
        self.host.deliver(thread, self.peer, event);
    }

    fn wake(&mut self, thread: u32) {
        self.host.wake(thread);
    }

    fn goodbye(&mut self) {
        let said = self.host.peer(self.peer).goodbyes.fetch_add(1, Ordering::AcqRel) + 1;
        if said == self.host.threads {
            self.host.plane.lock().control.left(self.peer);
            self.host.poll_control();
        }
    }
}
