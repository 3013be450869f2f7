//! The service thread: one per process. It tells peers of this host's regions and asks for theirs,
//! sees to it that a withdrawn region is used no more, takes the completions of threads that do not
//! do it themselves at the moment, and notices when a peer leaves or is lost.
//!
//! A device stops whoever still uses a withdrawn region, but ends the queue pair over it. So an
//! owner first asks all who know the region to forget it:
//!
//! ```text
//!   owner                                   importer
//!   table: no longer there
//!   Revoke  ------------------------------> no lane starts anything on it any more;
//!                                           every queue pair to the owner completes what it had
//!   <------------------------------ Forgotten
//!   registration ended
//! ```

use crate::{
    host::Host,
    imports::Remote,
    join::Joined,
    message::{Message, Told},
};
use primitive::sync::{Ordering, fence};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::{Duration, Instant},
};
use transport_api::{
    Bell, Event, HostId, Lane, LossReason, PeerEvent, RegionKey, RemoteRegion, deadline,
};

/// How often the service thread looks whether threads still poll.
pub(crate) const TICK: Duration = Duration::from_millis(2);

/// Ticks that it goes on after the last thread has gone to sleep, so that a thread which sleeps and
/// wakes all the time need not tell it each time.
const IDLE_TICKS: u32 = 3;

/// How long it sleeps while it waits for requests of this host to complete.
const SOON: Duration = Duration::from_micros(200);

/// How long it sleeps when there is nothing to wait for.
const LONG: Duration = Duration::from_secs(3600);

/// Imports of one peer that may wait for an export here.
const WAITING: usize = 4096;

/// What threads of this process ask of the service thread.
pub(crate) enum Order {
    /// Ask `owner` for a region. The answer is dropped unanswered when there is nobody to ask.
    Import { owner: HostId, key: RegionKey, patience: Duration, answer: Answer },
    /// Drop `done` when no host of `importers` uses the region any more, nor does this one.
    Withdraw {
        key: RegionKey,
        generation: u32,
        importers: BTreeSet<HostId>,
        done: mpsc::Sender<()>,
    },
    /// A queue pair to `peer` has failed.
    Ended { peer: HostId, reason: LossReason },
    /// End.
    Stop,
}

/// Where the answer to an import goes: a region, or that there is none.
pub(crate) type Answer = mpsc::Sender<Option<RemoteRegion>>;

/// Where orders are left for the service thread.
pub(crate) struct Orders(Mutex<Option<Vec<Order>>>);

impl Default for Orders {
    fn default() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }
}

impl Orders {
    /// Leaves an order; drops it if nobody will look any more.
    pub(crate) fn leave(&self, order: Order) {
        // A list of orders is whole whoever panicked.
        let mut orders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(orders) = &mut *orders {
            orders.push(order);
        }
    }

    fn take(&self) -> Vec<Order> {
        let mut orders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        orders.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// An import that a peer waits for.
struct Waiting {
    from: HostId,
    number: u64,
    key: RegionKey,
    deadline: Instant,
}

/// An import of this host that is not answered.
struct Asked {
    owner: HostId,
    key: RegionKey,
    answer: Answer,
}

/// A withdrawal of this host.
struct Withdrawal {
    /// Who has not forgotten the region; this host itself may be among them.
    users: BTreeSet<HostId>,
    _done: mpsc::Sender<()>,
}

/// Requests of this host to the owner of a withdrawn region that must complete.
struct Forgetting {
    owner: HostId,
    number: u64,
    /// What each thread's queue pair had started.
    marks: Vec<u64>,
}

pub(crate) struct Service {
    host: Arc<Host>,
    lanes: Vec<Box<dyn Lane>>,
    bell: Box<dyn Bell>,
    early: Vec<(HostId, Message)>,
    asked: HashMap<u64, Asked>,
    waiting: Vec<Waiting>,
    withdrawals: HashMap<u64, Withdrawal>,
    forgetting: Vec<Forgetting>,
    /// Peers whose end was seen to.
    ended: BTreeSet<HostId>,
    next_tick: Instant,
    idle_ticks: u32,
    /// How often each thread had looked at its completions at the last tick.
    rounds: Vec<u64>,
    /// The number of the next question.
    number: u64,
}

impl Service {
    pub(crate) fn new(joined: Joined) -> Self {
        let Joined { host, lanes, bell, early } = joined;
        let rounds = vec![0; host.threads as usize];
        Self {
            host,
            lanes,
            bell,
            early,
            asked: HashMap::new(),
            waiting: Vec::new(),
            withdrawals: HashMap::new(),
            forgetting: Vec::new(),
            ended: BTreeSet::new(),
            next_tick: Instant::now(),
            idle_ticks: 0,
            rounds,
            number: 0,
        }
    }

    /// Serves until it is told to stop.
    pub(crate) fn run(mut self) {
        for (from, message) in std::mem::take(&mut self.early) {
            self.heard(from, message);
        }
        loop {
            self.listen();
            for order in self.host.orders.take() {
                if let Order::Stop = order {
                    self.end();
                    return;
                }
                self.follow(order);
            }
            self.tick();
            self.forget();
            self.answer();
            self.see_off();
            let timeout = self.next();
            self.bell.sleep(timeout, &mut || false);
        }
    }

    /// Nobody is served any more.
    fn end(&mut self) {
        self.host.orders.close();
        for peer in self.host.clone().peers() {
            let reason = LossReason::Connection("this host has closed its connections".into());
            self.host.gone(PeerEvent::Lost(peer, reason));
        }
        self.see_off();
    }

    fn say(&mut self, to: HostId, message: &Message) {
        let threads = self.host.threads;
        if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.peer() == to) {
            // If the peer is gone, the lane reports it.
            let _ = lane.bulk(threads, 0, message.encode());
            let _ = lane.flush();
        }
    }

    /// Hears what peers have said.
    fn listen(&mut self) {
        let (mut said, mut gone) = (Vec::new(), Vec::new());
        for lane in &mut self.lanes {
            lane.poll(&mut |event| match event {
                Event::Bulk { from, payload, .. } => said.push((from, payload)),
                Event::Peer(event) => gone.push(event),
                _ => {}
            });
        }
        for (from, bytes) in said {
            let message = match from.thread == self.host.threads {
                true => Message::decode(&bytes),
                false => Err(format!("{} bytes of {from} for the service thread", bytes.len())),
            };
            match message {
                Ok(message) => self.heard(from.host, message),
                Err(what) => self.nonsense(from.host, what),
            }
        }
        for event in gone {
            self.host.gone(event);
        }
    }

    fn nonsense(&mut self, from: HostId, what: String) {
        self.lose(from, LossReason::Protocol(what.escape_debug().to_string()));
    }

    /// Counts `peer` as lost, and tells it.
    fn lose(&mut self, peer: HostId, reason: LossReason) {
        let why = reason.to_string();
        if self.host.gone(PeerEvent::Lost(peer, reason)) {
            self.say(peer, &Message::GivenUp(why));
        }
    }

    fn heard(&mut self, from: HostId, message: Message) {
        match message {
            Message::Ask { number, key, patience } => {
                if self.waiting.iter().filter(|waiting| waiting.from == from).count() == WAITING {
                    return self.nonsense(from, format!("more than {WAITING} imports at once"));
                }
                let deadline = deadline(Instant::now(), Duration::from_millis(patience));
                self.waiting.push(Waiting { from, number, key, deadline });
            }
            Message::Told { number, region } => {
                // Nobody waits any more if the importer has lost its patience.
                let is_it = |asked: &Asked| asked.owner == from;
                if self.asked.get(&number).is_some_and(is_it)
                    && let Some(Asked { key, answer, .. }) = self.asked.remove(&number)
                {
                    let region = region.map(|told| self.import(from, key, told));
                    let _ = answer.send(region);
                }
            }
            Message::Revoke { number, key, generation } => {
                self.host.imports.withdraw(from, key, generation);
                self.begin_to_forget(from, number);
            }
            Message::Forgotten { number } => self.forgotten(number, from),
            Message::GivenUp(why) => {
                let text = format!("it has given this host up: {}", why.escape_debug());
                self.host.gone(PeerEvent::Lost(from, LossReason::Connection(text)));
            }
            message @ (Message::Hello { .. } | Message::Ready) => {
                self.nonsense(from, format!("{message:?} after it was ready"));
            }
        }
    }

    /// A region of `owner`, as it has told of it. Made here, in the order of what the owner says,
    /// so that a withdrawal that follows finds it.
    fn import(&self, owner: HostId, key: RegionKey, told: Told) -> RemoteRegion {
        let Told { rights, generation, len, address, remote_key } = told;
        let remote = Arc::new(Remote::new(self.host.id, key, address, remote_key));
        self.host.imports.add(owner, generation, &remote);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        RemoteRegion::remote(owner, (key, rights, generation), len, Arc::new(remote))
    }

    fn follow(&mut self, order: Order) {
        match order {
            Order::Stop => {}
            Order::Import { owner, key, patience, answer } => {
                let number = self.numbered();
                self.asked.insert(number, Asked { owner, key, answer });
                let patience = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
                self.say(owner, &Message::Ask { number, key, patience });
                // Whoever is gone already is seen off now.
                self.ended.remove(&owner);
            }
            Order::Withdraw { key, generation, importers, done } => {
                let number = self.numbered();
                for importer in &importers {
                    self.say(*importer, &Message::Revoke { number, key, generation });
                    self.ended.remove(importer);
                }
                let mut users = importers;
                users.insert(self.host.local);
                self.withdrawals.insert(number, Withdrawal { users, _done: done });
                self.begin_to_forget(self.host.local, number);
            }
            Order::Ended { peer, reason } => {
                // A goodbye that it has said is the better reason.
                self.listen();
                self.lose(peer, reason);
            }
        }
    }

    fn numbered(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// From now on no lane of this host starts anything on some region of `owner`: what has been
    /// started must complete.
    fn begin_to_forget(&mut self, owner: HostId, number: u64) {
        let host = &self.host;
        let mark = |thread| host.with(thread, owner, |link, note| link.settle(note)).unwrap_or(0);
        let marks = (0..host.threads).map(mark).collect();
        self.forgetting.push(Forgetting { owner, number, marks });
        self.forget();
    }

    /// Looks whether it has.
    fn forget(&mut self) {
        let mut done = Vec::new();
        let host = self.host.clone();
        self.forgetting.retain(|Forgetting { owner, number, marks }| {
            let is_past = |(thread, mark): (u32, &u64)| {
                host.pump(thread);
                let past = host.with(thread, *owner, |link, note| {
                    link.settle(note);
                    link.is_past(*mark)
                });
                past != Some(false)
            };
            let all = (0..).zip(marks).all(is_past);
            if all {
                done.push((*owner, *number));
            }
            !all
        });
        for (owner, number) in done {
            if owner == host.local {
                self.forgotten(number, owner);
            } else {
                self.say(owner, &Message::Forgotten { number });
            }
        }
    }

    /// `user` does not use the region of withdrawal `number` any more.
    fn forgotten(&mut self, number: u64, user: HostId) {
        if let Some(withdrawal) = self.withdrawals.get_mut(&number) {
            withdrawal.users.remove(&user);
            if withdrawal.users.is_empty() {
                self.withdrawals.remove(&number);
            }
        }
    }

    /// Answers imports whose region is there now, or whose patience has ended.
    fn answer(&mut self) {
        let now = Instant::now();
        for Waiting { from, number, key, deadline } in std::mem::take(&mut self.waiting) {
            let region = self.host.exports.tell(key, from);
            if region.is_some() || deadline <= now {
                self.say(from, &Message::Told { number, region });
            } else {
                self.waiting.push(Waiting { from, number, key, deadline });
            }
        }
    }

    /// Ends what there was with peers that are gone.
    fn see_off(&mut self) {
        let host = self.host.clone();
        for peer in host.peers() {
            if host.end_of(peer).is_none() || !self.ended.insert(peer) {
                continue;
            }
            for thread in 0..host.threads {
                host.pump(thread);
                host.with(thread, peer, |link, _| link.end());
            }
            // Whoever waits for an answer sees its channel close.
            self.asked.retain(|_, asked| asked.owner != peer);
            self.waiting.retain(|waiting| waiting.from != peer);
            self.withdrawals.retain(|_, withdrawal| {
                withdrawal.users.remove(&peer);
                !withdrawal.users.is_empty()
            });
        }
    }

    /// Takes the completions of threads that neither poll nor sleep.
    fn tick(&mut self) {
        let now = Instant::now();
        let host = &self.host;
        let is_ticking = host.is_ticking.load(Ordering::Relaxed);
        if now < self.next_tick && is_ticking {
            return;
        }
        self.next_tick = now + TICK;
        let mut any_awake = false;
        for thread in 0..host.threads {
            let seat = host.seat(thread);
            if seat.is_asleep.load(Ordering::Acquire) {
                continue;
            }
            any_awake = true;
            let rounds = std::mem::replace(&mut self.rounds[thread as usize], seat.rounds());
            if rounds == self.rounds[thread as usize] {
                host.pump(thread);
            }
        }
        self.idle_ticks = if any_awake { 0 } else { self.idle_ticks.saturating_add(1) };
        if self.idle_ticks < IDLE_TICKS {
            host.is_ticking.store(true, Ordering::Relaxed);
        } else if host.is_ticking.swap(false, Ordering::Relaxed) {
            // A thread that has just woken either sees that, or is seen by another look.
            fence(Ordering::SeqCst);
            let is_awake = |thread| !host.seat(thread).is_asleep.load(Ordering::Acquire);
            if (0..host.threads).any(is_awake) {
                host.is_ticking.store(true, Ordering::Relaxed);
            }
        }
    }

    /// How long to sleep when nothing happens.
    fn next(&self) -> Duration {
        let now = Instant::now();
        let until = |deadline: Instant| deadline.saturating_duration_since(now);
        let is_ticking = self.host.is_ticking.load(Ordering::Relaxed);
        let tick = is_ticking.then(|| until(self.next_tick));
        let soon = (!self.forgetting.is_empty()).then_some(SOON);
        let deadlines = self.waiting.iter().map(|waiting| until(waiting.deadline));
        deadlines.chain(tick).chain(soon).min().unwrap_or(LONG)
    }
}
