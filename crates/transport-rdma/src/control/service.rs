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
    control::host::Host, control::import_broker::ImportBroker, control::join::Joined,
    control::message::Message, control::service_queue::Command,
    memory::descriptor::RegionDescriptor, memory::remote::RemoteMemory,
};
use primitive::sync::Ordering;
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};
use transport_api::{
    Event, HostId, Lane, LossReason, Parker, PeerEvent, ProgressThread, RegionKey, RemoteRegion,
};

/// How long it sleeps while it waits for requests of this host to complete.
const SOON: Duration = Duration::from_micros(200);

/// How long it sleeps when there is nothing to wait for.
const LONG: Duration = Duration::from_secs(3600);

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
    broker: ImportBroker,
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
            broker: ImportBroker::default(),
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
            for order in self.host.service_queue.take() {
                if !self.follow(order) {
                    self.end();
                    return;
                }
            }
            self.tick();
            self.forget();
            self.answer();
            self.see_off();
            let timeout = self.next();
            self.parker.park(timeout, &mut || false);
        }
    }

    /// Nobody is served any more.
    fn end(&mut self) {
        self.host.service_queue.close();
        for peer in self.host.clone().peers() {
            let reason = LossReason::Connection("this host has closed its connections".into());
            self.host.peer_gone(PeerEvent::Lost(peer, reason));
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
            match Message::receive(from, self.host.threads, &bytes) {
                Ok(message) => self.heard(from.host, message),
                Err(what) => self.nonsense(from.host, what),
            }
        }
        for event in gone {
            self.host.peer_gone(event);
        }
    }

    fn nonsense(&mut self, from: HostId, what: String) {
        self.lose(from, LossReason::Protocol(what.escape_debug().to_string()));
    }

    /// Counts `peer` as lost, and tells it.
    fn lose(&mut self, peer: HostId, reason: LossReason) {
        let why = reason.to_string();
        if self.host.peer_gone(PeerEvent::Lost(peer, reason)) {
            self.say(peer, &Message::GivenUp(why));
        }
    }

    fn heard(&mut self, from: HostId, message: Message) {
        match message {
            Message::Import { number, key, timeout } => {
                let asked = self.broker.asked(from, (number, key, timeout), Instant::now());
                asked.unwrap_or_else(|what| self.nonsense(from, what));
            }
            Message::Imported { number, region } => {
                if let Some((key, answer)) = self.broker.answered(number, from) {
                    let region = region.map(|descriptor| self.import(from, key, descriptor));
                    // The importer may have timed out.
                    let _ = answer.send(region);
                }
            }
            Message::Revoke { number, key, generation } => {
                self.host.imports.withdraw(from, key, generation);
                self.begin_to_forget(from, number);
            }
            Message::Quiesced { number } => self.broker.forgotten(number, from),
            Message::GivenUp(why) => {
                let theirs = format!("it has given this host up: {}", why.escape_debug());
                // It may only have seen the end of what this host's device has seen fail.
                let text = match self.failure(from) {
                    Some(ours) => format!("{ours}; {theirs}"),
                    None => theirs,
                };
                self.host.peer_gone(PeerEvent::Lost(from, LossReason::Connection(text)));
            }
            message @ (Message::Hello { .. } | Message::Ready) => {
                self.nonsense(from, format!("{message:?} after it was ready"));
            }
        }
    }

    /// Why the first of the queue pairs to `peer` that have failed by now has.
    fn failure(&self, peer: HostId) -> Option<LossReason> {
        (0..self.host.threads).find_map(|thread| {
            self.host.progress(thread);
            self.host.with(thread, peer, |connection, _| connection.failure().cloned())?
        })
    }

    /// A region of `owner`, as it described it. Made here, in the order of what the owner says,
    /// so that a withdrawal that follows finds it.
    fn import(&self, owner: HostId, key: RegionKey, descriptor: RegionDescriptor) -> RemoteRegion {
        let RegionDescriptor { rights, generation, len, address, remote_key } = descriptor;
        let remote = Arc::new(RemoteMemory::new(self.host.id, key, address, remote_key));
        self.host.imports.add(owner, generation, &remote);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        RemoteRegion::remote(owner, (key, rights, generation), len, Arc::new(remote))
    }

    /// False if the service is to stop.
    fn follow(&mut self, order: Command) -> bool {
        match order {
            Command::Stop => return false,
            Command::Import { owner, key, timeout, answer } => {
                let ask = self.broker.ask(owner, key, timeout, answer);
                self.say(owner, &ask);
                // Whoever is gone already is seen off now.
                self.ended.remove(&owner);
            }
            Command::Withdraw { key, generation, importers, done } => {
                let mut users = importers.clone();
                users.insert(self.host.local);
                let number = self.broker.withdraw(users, done);
                for importer in importers {
                    self.say(importer, &Message::Revoke { number, key, generation });
                    self.ended.remove(&importer);
                }
                self.begin_to_forget(self.host.local, number);
            }
            Command::Ended { peer, reason } => {
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
        let mark = |thread| {
            host.with(thread, owner, |connection, sink| connection.settle(sink)).unwrap_or(0)
        };
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
                host.progress(thread);
                let past = host.with(thread, *owner, |connection, sink| {
                    connection.settle(sink);
                    connection.has_completed(*mark)
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
                self.broker.forgotten(number, owner);
            } else {
                self.say(owner, &Message::Quiesced { number });
            }
        }
    }

    /// Answers imports whose region is there now, or whose timeout has passed.
    fn answer(&mut self) {
        let exports = &self.host.exports;
        let answers = self.broker.answers(Instant::now(), |key, to| exports.tell(key, to));
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
                host.progress(thread);
                host.with(thread, peer, |connection, _| connection.end());
                host.thread_state(thread)
                    .connections()
                    .unwoken
                    .retain(|target| target.host != peer);
            }
            self.broker.end(peer);
        }
    }

    /// Takes the completions of threads that neither poll nor sleep, and wakes whom they should.
    fn tick(&mut self) {
        let host = &self.host;
        let is_away = |thread| host.thread_state(thread).is_asleep.load(Ordering::Acquire);
        self.progress_thread.look(&host.poll_tracker, Instant::now(), is_away, |thread| {
            host.progress(thread);
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
        let deadline = self.broker.deadline().map(until);
        [deadline, tick, soon].into_iter().flatten().min().unwrap_or(LONG)
    }
}
