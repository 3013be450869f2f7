//! [`Host`]: what all threads, lanes and parkers of one process share.
//!
//! Who reads a connection? Best the thread that it belongs to: while it polls, at each poll of its
//! lane; while it sleeps, because its parker waits for the thread's own connections. But a peer must
//! not wait for a thread that does neither, because its own code keeps it busy (or because the
//! program has no such thread yet). Such a thread's connections are *adopted* by the service
//! thread, until it polls again. So on the paths that matter no byte changes threads, and no thread
//! holds anybody up for longer than two [ticks](PollTracker::TICK) and one [push](Conn::push).

use crate::{
    bulk,
    conn::Conn,
    control::{Answered, Described},
    export::{Exported, Exports},
    lane::Handle,
    machine::Port,
    service::{Desk, Order},
    wire::Broken,
};
use primitive::sync::{AtomicBool, AtomicU32, Ordering};
use rustix::event::epoll;
use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use transport_api::{
    Event, EventQueue, EventQueues, HostId, LossReason, PeerEvent, PollTracker, QuietPoints,
    RegionError, RegionKey, RemoteRegion, Rights, Waiting, park_word::ParkWord,
};

/// What the epoll of a thread calls its eventfd, and the alarm of another transport; connections have
/// the number of their peer.
pub(crate) const RUNG: u64 = u64::MAX;
pub(crate) const ALARM: u64 = u64::MAX - 1;

/// One runtime thread of this process.
pub(crate) struct Seat {
    /// The word of its park word.
    word: AtomicU32,
    /// Whether the service thread looks after its connections.
    pub(crate) adopted: AtomicBool,
    /// Where it sleeps: its connections and `rung`.
    pub(crate) epoll: OwnedFd,
    /// An eventfd.
    pub(crate) rung: OwnedFd,
}

impl Seat {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let rung = crate::service::eventfd()?;
        epoll::add(&epoll, &rung, epoll::EventData::new_u64(RUNG), epoll::EventFlags::IN)?;
        let (word, adopted) = (AtomicU32::new(0), AtomicBool::new(true));
        Ok(Self { word, adopted, epoll, rung })
    }

    /// Wakes the thread from its sleep whenever `alarm` becomes readable anew.
    pub(crate) fn watch(&self, alarm: impl AsFd) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, alarm, epoll::EventData::new_u64(ALARM), flags)?)
    }

    pub(crate) fn park_word(&self) -> ParkWord<'_> {
        ParkWord::new(&self.word)
    }

    /// Whether nobody need look whether the thread polls: it sleeps, or its connections are
    /// adopted.
    pub(crate) fn is_away(&self) -> bool {
        self.adopted.load(Ordering::Relaxed)
            || self.word.load(Ordering::Acquire) == transport_api::park_word::PARKED
    }
}

/// One host of the rack as this process sees it.
pub(crate) struct Peer {
    /// By thread; none for this host itself, nor for its neighbours.
    links: Vec<Mutex<Conn>>,
    /// Links on which it has said goodbye.
    goodbyes: AtomicU32,
}

impl Peer {
    pub(crate) fn new(links: Vec<Conn>) -> Self {
        let links = links.into_iter().map(Mutex::new).collect();
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
    pub(crate) exports: Arc<Exports>,
    /// By host number, this host included.
    peers: Vec<Peer>,
    /// By thread number.
    pub(crate) seats: Vec<Seat>,
    pub(crate) desk: Desk,
}

impl Host {
    pub(crate) fn new(local: HostId, peers: Vec<Peer>, seats: Vec<Seat>, desk: Desk) -> Arc<Self> {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let id = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Arc::new_cyclic(|host: &std::sync::Weak<Host>| {
            let host = host.clone();
            let exports = Exports::new(move |key| {
                let Some(host) = host.upgrade() else { return };
                for (peer, thread) in host.links() {
                    host.link(peer, thread).machine.forget(key);
                }
            });
            let threads = seats.len() as u32;
            let event_queues = EventQueues::new(local, peers.len() as u32, threads);
            let (poll_tracker, quiet_points) =
                (PollTracker::new(threads), QuietPoints::new(threads));
            Self {
                id,
                local,
                threads,
                event_queues,
                poll_tracker,
                quiet_points,
                exports,
                peers,
                seats,
                desk,
            }
        })
    }

    fn peer(&self, host: HostId) -> &Peer {
        &self.peers[host.0 as usize]
    }

    pub(crate) fn seat(&self, thread: u32) -> &Seat {
        &self.seats[thread as usize]
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
    pub(crate) fn link(&self, peer: HostId, thread: u32) -> MutexGuard<'_, Conn> {
        // Nobody panics with it unless the process is beyond help; its bytes are in order then.
        self.peer(peer).links[thread as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads once what there is on a connection, and writes what waits; true if any byte came.
    pub(crate) fn pump(&self, peer: HostId, thread: u32) -> bool {
        let mut conn = self.link(peer, thread);
        let received = conn.receive(&mut Arrivals { host: self, peer });
        let both = received.and_then(|moved| self.push(&mut conn, peer, thread).map(|()| moved));
        both.unwrap_or_else(|broken| {
            self.broken(conn, peer, broken);
            true
        })
    }

    /// Writes what waits on a connection that the caller has locked, and sees to it that whoever
    /// waits for the connection waits for room, too, if there is none.
    pub(crate) fn push(&self, conn: &mut Conn, peer: HostId, thread: u32) -> Result<(), Broken> {
        conn.push()?;
        Ok(conn.watch(&self.seat(thread).epoll, &self.desk.epoll, peer, thread)?)
    }

    /// As [`push`](Self::push), and deals with what goes wrong.
    pub(crate) fn push_or_lose(&self, mut conn: MutexGuard<'_, Conn>, peer: HostId, thread: u32) {
        if let Err(broken) = self.push(&mut conn, peer, thread) {
            self.broken(conn, peer, broken);
        }
    }

    /// A connection has come to its end.
    fn broken(&self, mut conn: MutexGuard<'_, Conn>, peer: HostId, broken: Broken) {
        let expected = conn.machine.heard_goodbye() && !matches!(broken, Broken::Nonsense(_));
        conn.close();
        drop(conn);
        match broken {
            _ if expected => {}
            // What was sent is in the reason.
            Broken::Nonsense(_) => self.lose(peer, broken),
            // The peer may have said why, on its control connection.
            _ => self.desk.leave(Order::Ended { peer, broken }),
        }
    }

    /// Reports `peer` as lost, for all threads.
    pub(crate) fn lose(&self, peer: HostId, broken: Broken) {
        let reason = match broken {
            Broken::Closed => {
                LossReason::Connection("it closed its connection without a goodbye".into())
            }
            Broken::Failed(why) | Broken::Untrusted(why) => LossReason::Connection(why),
            Broken::Nonsense(what) => LossReason::Protocol(what),
        };
        self.gone(PeerEvent::Lost(peer, reason));
    }

    /// Notes what became of a peer, the first time, and gets every thread to look.
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
        self.desk.ring();
    }

    /// What became of `peer`, if it is no longer there.
    pub(crate) fn end_of(&self, peer: HostId) -> Option<&PeerEvent> {
        self.event_queues.end_of(peer)
    }

    /// Leaves something for the lane of `thread` to `from`.
    pub(crate) fn deliver(&self, thread: u32, from: HostId, event: Event) {
        self.event_queues.deliver(thread, from, event);
        self.wake(thread);
    }

    /// Reports the revocations of this host that no thread is in the way of any more.
    pub(crate) fn report_quiet(&self) {
        for Waiting { thread, token } in self.quiet_points.reached() {
            self.deliver(thread, self.local, Event::Completed { token, value: 0 });
        }
    }

    /// `owner` has answered an import.
    pub(crate) fn imported(&self, owner: HostId, answered: Answered) {
        let Answered { key, importer, described } = answered;
        let result = match described {
            None => Err(RegionError::Unknown { owner, key }),
            Some(Described { rights: Rights::NONE, .. }) => Err(RegionError::Denied { owner, key }),
            Some(Described { rights, generation, len }) => {
                let handle = Arc::new(Handle { issuer: self.id });
                Ok(RemoteRegion::remote(owner, (key, rights, generation), len, handle))
            }
        };
        importer.answer(result, |thread, event| self.deliver(thread, owner, event));
    }

    /// Hands what has arrived for the lane of `event_queue`, which leads to another host, to `sink`,
    /// and tells the peer's threads how much of theirs was taken; whether there was anything.
    pub(crate) fn take(&self, event_queue: &mut EventQueue, sink: &mut dyn FnMut(Event)) -> bool {
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
        for (link, cost) in taken {
            let mut conn = self.link(event_queue.peer(), link);
            conn.machine.taken(event_queue.thread(), cost);
            self.push_or_lose(conn, event_queue.peer(), link);
        }
        any
    }

    /// Wakes `thread`, which exists, if it sleeps.
    pub(crate) fn wake(&self, thread: u32) {
        let seat = self.seat(thread);
        if seat.park_word().must_wake() {
            crate::service::ring(&seat.rung);
        }
    }

    /// `thread`, which calls this, looks after its own connections.
    #[inline]
    pub(crate) fn record_poll(&self, thread: u32) {
        self.poll_tracker.record_poll(thread);
        let adopted = &self.seat(thread).adopted;
        if adopted.load(Ordering::Relaxed) {
            adopted.store(false, Ordering::Relaxed);
            self.expect_ticks();
        }
    }

    /// Called by a thread that has begun to look after its connections: from now on the service
    /// thread must notice when it stops.
    pub(crate) fn expect_ticks(&self) {
        if self.poll_tracker.must_notify() {
            self.desk.ring();
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
        self.host.exports.get(key)
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
            self.host.gone(PeerEvent::Left(self.peer));
        }
    }
}
