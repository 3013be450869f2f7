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
    dealings::{Dealings, Done},
    host::Host,
    imports::Remote,
    join::Joined,
    message::{Message, TAG, Told},
};
use primitive::sync::Ordering;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use transport_api::{
    Event, HostId, Importer, Lane, LossReason, Parker, PeerEvent, ProgressThread, RegionError,
    RegionKey, RemoteRegion, Rights,
};

/// How long it sleeps while it waits for requests of this host to complete.
const SOON: Duration = Duration::from_micros(200);

/// How long a withdrawal waits for peers that know the region. The device stops those that still
/// use it then, which ends their queue pairs.
const WITHDRAWAL: Duration = Duration::from_secs(2);

/// How long it sleeps when there is nothing to wait for.
const LONG: Duration = Duration::from_secs(3600);

/// What threads of this process ask of the service thread.
pub(crate) enum Order {
    /// Ask `owner` for a region. The importer is dropped unanswered when the owner is gone.
    Import { owner: HostId, key: RegionKey, timeout: Duration, importer: Importer },
    /// Call `done` when no host of `importers` uses the region any more, nor does this one; if the
    /// carrier is asked to say, with `carrier`, that this host's threads do not, once it has.
    Withdraw {
        key: RegionKey,
        generation: u32,
        importers: BTreeSet<HostId>,
        carrier: Option<u64>,
        done: Done,
    },
    /// A queue pair to `peer` has failed.
    Ended { peer: HostId, reason: LossReason },
    /// End.
    Stop,
}

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
    parker: Box<dyn Parker>,
    early: Vec<(HostId, Message)>,
    dealings: Dealings,
    forgetting: Vec<Forgetting>,
    /// Peers whose end was seen to.
    ended: BTreeSet<HostId>,
    progress_thread: ProgressThread,
}

impl Service {
    pub(crate) fn new(joined: Joined) -> Self {
        let Joined { host, lanes, parker, early } = joined;
        let progress_thread = ProgressThread::new(host.threads, Instant::now());
        Self {
            host,
            lanes,
            parker,
            early,
            dealings: Dealings::default(),
            forgetting: Vec::new(),
            ended: BTreeSet::new(),
            progress_thread,
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
                if !self.follow(order) {
                    self.end();
                    return;
                }
            }
            self.tick();
            self.forget();
            self.expire();
            self.answer();
            self.see_off();
            let timeout = self.next();
            self.parker.park(timeout, &mut || false);
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
            let _ = lane.bulk(threads, TAG, message.encode());
            let _ = lane.flush();
        }
    }

    /// Hears what peers have said.
    fn listen(&mut self) {
        let (mut said, mut gone, mut quiet) = (Vec::new(), Vec::new(), Vec::new());
        for lane in &mut self.lanes {
            lane.poll(&mut |event| match event {
                Event::Bulk { from, tag, payload } => said.push((from, tag, payload)),
                Event::Peer(event) => gone.push(event),
                Event::Completed { token, .. } => quiet.push(token),
                _ => {}
            });
        }
        for (from, tag, bytes) in said {
            match Message::heard(from, self.host.threads, tag, &bytes) {
                Ok(message) => self.heard(from.host, message),
                Err(what) => self.nonsense(from.host, what),
            }
        }
        for token in quiet {
            self.dealings.carrier_is_quiet(token);
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
            Message::Ask { number, key, timeout } => {
                let asked = self.dealings.asked(from, (number, key, timeout), Instant::now());
                asked.unwrap_or_else(|what| self.nonsense(from, what));
            }
            Message::Told { number, region } => {
                if let Some((key, importer)) = self.dealings.answered(number, from) {
                    let result = self.import(from, key, region);
                    importer.answer(result, |thread, event| self.host.deliver(thread, from, event));
                }
            }
            Message::Revoke { number, key, generation } => {
                self.host.imports.withdraw(from, key, generation);
                self.begin_to_forget(from, number);
            }
            Message::Forgotten { number } => self.dealings.forgotten(number, from),
            Message::GivenUp(why) => {
                let theirs = format!("it has given this host up: {}", why.escape_debug());
                // It may only have seen the end of what this host's device has seen fail.
                let text = match self.failure(from) {
                    Some(ours) => format!("{ours}; {theirs}"),
                    None => theirs,
                };
                self.host.gone(PeerEvent::Lost(from, LossReason::Connection(text)));
            }
            message @ (Message::Hello { .. } | Message::Ready) => {
                self.nonsense(from, format!("{message:?} after it was ready"));
            }
        }
    }

    /// Why the first of the queue pairs to `peer` that have failed by now has.
    fn failure(&self, peer: HostId) -> Option<LossReason> {
        (0..self.host.threads).find_map(|thread| {
            self.host.pump(thread);
            self.host.with(thread, peer, |link, _| link.failure().cloned())?
        })
    }

    /// A region of `owner`, as it has told of it. Made here, in the order of what the owner says,
    /// so that a withdrawal that follows finds it.
    fn import(
        &self,
        owner: HostId,
        key: RegionKey,
        told: Option<Told>,
    ) -> Result<RemoteRegion, RegionError> {
        let told = told.ok_or(RegionError::Unknown { owner, key })?;
        let Told { rights, generation, len, address, remote_key } = told;
        if rights == Rights::NONE {
            return Err(RegionError::Denied { owner, key });
        }
        let remote = Arc::new(Remote::new(self.host.id, key, address, remote_key));
        self.host.imports.add(owner, generation, &remote);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        Ok(RemoteRegion::remote(owner, (key, rights, generation), len, Arc::new(remote)))
    }

    /// False if the service is to stop.
    fn follow(&mut self, order: Order) -> bool {
        match order {
            Order::Stop => return false,
            Order::Import { owner, key, timeout, importer } => {
                let ask = self.dealings.ask(owner, key, timeout, importer);
                self.say(owner, &ask);
                // Whoever is gone already is seen off now.
                self.ended.remove(&owner);
            }
            Order::Withdraw { key, generation, importers, carrier, done } => {
                let mut users = importers.clone();
                users.insert(self.host.local);
                let deadline = Instant::now() + WITHDRAWAL;
                let number = self.dealings.withdraw(users, deadline, carrier, done);
                for importer in importers {
                    self.say(importer, &Message::Revoke { number, key, generation });
                    self.ended.remove(&importer);
                }
                self.begin_to_forget(self.host.local, number);
            }
            Order::Ended { peer, reason } => {
                // A goodbye that it has said is the better reason.
                self.listen();
                self.lose(peer, reason);
            }
        }
        true
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
                self.dealings.forgotten(number, owner);
            } else {
                self.say(owner, &Message::Forgotten { number });
            }
        }
    }

    /// Gives up peers that have not forgotten withdrawn regions in time.
    fn expire(&mut self) {
        let late = self.dealings.expire(Instant::now());
        if !late.is_empty() {
            tracing::warn!(local = %self.host.local, ?late, "a region is withdrawn from peers that may still use it");
        }
    }

    /// Answers imports whose region is there now, or whose timeout has passed.
    fn answer(&mut self) {
        let exports = &self.host.exports;
        let answers = self.dealings.answers(Instant::now(), |key, to| exports.tell(key, to));
        for (to, answer) in answers {
            self.say(to, &answer);
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
                host.seat(thread).desk().unwoken.retain(|target| target.host != peer);
            }
            self.dealings.end(peer);
        }
    }

    /// Takes the completions of threads that neither poll nor sleep, and wakes whom they should.
    fn tick(&mut self) {
        let host = &self.host;
        let is_away = |thread| host.seat(thread).is_asleep.load(Ordering::Acquire);
        self.progress_thread.look(&host.poll_tracker, Instant::now(), is_away, |thread| {
            host.pump(thread);
            host.wake_sleepers(thread);
            true
        });
    }

    /// How long to sleep when nothing happens.
    fn next(&self) -> Duration {
        let now = Instant::now();
        let until = |deadline: Instant| deadline.saturating_duration_since(now);
        let tick = self.progress_thread.next(&self.host.poll_tracker).map(until);
        let soon = (!self.forgetting.is_empty()).then_some(SOON);
        let deadline = self.dealings.deadline().map(until);
        [deadline, tick, soon].into_iter().flatten().min().unwrap_or(LONG)
    }
}
