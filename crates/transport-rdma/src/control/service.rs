//! The service thread, one per process. It drives the control plane over the carrier's lanes, makes
//! sure that nothing uses a revoked region, handles the completions of threads that do not do it
//! themselves at the moment, and reports peers that leave or are lost.
//!
//! A device refuses access to a region once its registration has ended, but it ends the queue pair
//! as well. So an owner first asks all importers to stop:
//!
//! ```text
//!   owner                                   importer
//!   revoke: the key is free
//!   Revoke  ------------------------------> Inhibit: no lane starts anything on the region;
//!                                           what its queue pairs had started completes: settled
//!   <------------------------------ Quiesced
//!   Revoked: the registrations end
//! ```

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use primitive::sync::Ordering;
use rdma_protocol::{Message, TAG};
use transport_api::{
    Event, HostId, Lane, LossReason, Parker, PeerEvent, ProgressThread, RegionError, RegionKey,
    RemoteRegion,
};
use transport_control::{Descriptor, Importer, Message as ControlMessage, Output, Violation};

use crate::control::exports::{Exported, from_opaque};
use crate::control::host::Host;
use crate::control::join::Joined;
use crate::control::medium::Requester;
use crate::memory::remote::RemoteMemory;

/// How long it sleeps while it waits for requests of this host to complete.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// How long it sleeps when there is nothing to wait for.
const LONG: Duration = Duration::from_secs(3600);

/// Bytes of messages that wait for a peer to take them, from which on it is sent no more.
const WAITING_BYTES: usize = 64 << 10;

/// Requests of this host that must complete before something happens.
struct Settling {
    /// The host that they go to.
    peer: HostId,
    /// By thread: what its queue pair had started; for this host, its atomics.
    marks: Vec<u64>,
    then: Then,
}

/// What happens then.
enum Then {
    /// The inhibition of this epoch has settled.
    Settled(u64),
    /// The registrations of a revoked region of this host end.
    Close(Exported, Option<Requester>),
}

pub(crate) struct Service {
    host: Arc<Host>,
    /// To the other hosts.
    lanes: Vec<Box<dyn Lane>>,
    /// To this host: reports when its threads no longer use a revoked region.
    local: Box<dyn Lane>,
    parker: Box<dyn Parker>,
    early: Vec<(HostId, Message)>,
    settling: Vec<Settling>,
    /// Peers that take what they are sent too slowly.
    blocked: BTreeSet<HostId>,
    progress_thread: ProgressThread,
}

/// If the service thread panics, its waiters get an error.
impl Drop for Service {
    fn drop(&mut self) {
        if thread::panicking() {
            // A panic in here would end the process.
            let _ = catch_unwind(AssertUnwindSafe(|| self.end()));
        }
    }
}

impl Service {
    pub(crate) fn new(joined: Joined) -> Self {
        let Joined { host, lanes, local, parker, early } = joined;
        let progress_thread = ProgressThread::new(host.threads, Instant::now());
        Self {
            host,
            lanes,
            local,
            parker,
            early,
            settling: Vec::new(),
            blocked: BTreeSet::new(),
            progress_thread,
        }
    }

    /// Serves until it is stopped.
    pub(crate) fn run(mut self) {
        for (from, message) in std::mem::take(&mut self.early) {
            self.handle(Instant::now(), from, message);
        }
        loop {
            let now = Instant::now();
            // A goodbye that arrived before a queue pair failed is the better reason.
            let failures = self.host.take_failures();
            self.receive(now);
            for (peer, reason) in failures {
                self.host.control(|control| control.lose(peer, reason));
            }
            self.tick();
            self.settle();
            self.unblock();
            self.act(now);
            if self.host.is_stopping.load(Ordering::Acquire) {
                return self.end();
            }
            let timeout = self.next_timeout();
            self.parker.park(timeout, &mut || false);
        }
    }

    /// Ends the connections to all peers.
    fn end(&mut self) {
        let reason = LossReason::Connection("this host has closed its connections".into());
        self.host.control(|control| control.close(&reason));
        self.act(Instant::now());
        for settling in self.settling.drain(..) {
            if let Then::Close(exported, _) = settling.then {
                exported.close();
            }
        }
        self.host.plane().close();
        // Nothing reports any more that threads of this host have stopped.
        self.host.fail_revocations();
    }

    // ---- What arrives.

    fn receive(&mut self, now: Instant) {
        let (mut received, mut gone) = (Vec::new(), Vec::new());
        for lane in &mut self.lanes {
            lane.poll(&mut |event| match event {
                Event::Bulk { from, tag, payload } => received.push(((from, tag), payload)),
                Event::Peer(event) => gone.push(event),
                _ => {}
            });
        }
        let host = &self.host;
        self.local.poll(&mut |event| match event {
            Event::Completed { token, .. } => host.revocation_part_ended(token),
            // The carrier cannot tell whether threads of this host still use the region.
            Event::Failed { token: Some(token), .. } => host.fail_revocation(token),
            _ => {}
        });
        for (from, bytes) in received {
            let peer = from.0.host;
            match Message::receive(from, self.host.threads, &bytes) {
                Ok(message) => self.handle(now, peer, message),
                Err(what) => self.violated(peer, what),
            }
        }
        for event in gone {
            self.host.control(|control| match event {
                PeerEvent::Left(peer) => control.left(peer),
                PeerEvent::Lost(peer, reason) => control.disconnected(peer, reason),
            });
        }
    }

    fn violated(&self, peer: HostId, what: String) {
        let violation = Violation::new(what.escape_debug().to_string());
        self.host.control(|control| control.violated(peer, violation));
    }

    fn handle(&self, now: Instant, from: HostId, message: Message) {
        let Message::Control(bytes) = message else {
            return self.violated(from, format!("{message:?} after the handshake"));
        };
        // The peer may only have seen the end of what failed at this host's device.
        if let Ok(ControlMessage::GivenUp(theirs)) = ControlMessage::decode(&bytes)
            && let Some(ours) = self.failure(from)
        {
            let text = format!("{ours}; {}", theirs.escape_debug());
            let reason = LossReason::Connection(text);
            return self.host.control(|control| control.disconnected(from, reason));
        }
        self.host.control(|control| control.receive(now, from, &bytes, None));
    }

    /// Why the first queue pair to `peer` that has failed by now has failed.
    fn failure(&self, peer: HostId) -> Option<LossReason> {
        (0..self.host.threads).find_map(|thread| {
            self.host.progress(thread);
            self.host.with(thread, peer, |connection, _| connection.failure().cloned())?
        })
    }

    // ---- What the control plane wants.

    /// Acts on all outputs of the control plane.
    fn act(&mut self, now: Instant) {
        loop {
            // The lock is not held while it acts.
            while let Some(output) = self.host.control(|control| control.poll(now)) {
                self.act_on(output);
            }
            if !self.settle() {
                return;
            }
        }
    }

    fn act_on(&mut self, output: Output<crate::control::medium::Rdma>) {
        match output {
            Output::Send { to, message, .. } => {
                let mut bytes = Vec::new();
                message.encode(&mut bytes);
                self.send(to, &Message::Control(bytes));
            }
            // The carrier's connection stays; queue pairs end with `PeerGone`.
            Output::Close(_) => {}
            Output::PeerGone(event) => self.peer_gone(event),
            Output::Imported { requester, owner, key, region, .. } => {
                self.imported(requester, owner, key, region);
            }
            // A lane reports the end of the owner; a blocked thread sees its channel closed. Not so if
            // this host has left: then the owner may be there.
            Output::ImportFailed { owner, .. } if self.host.end_of(owner).is_some() => {}
            Output::ImportFailed { requester, owner, key, error } => {
                self.answer(requester, owner, Err(error.for_region(owner, key)));
            }
            Output::Inhibit { owner, key, generation, epoch } => {
                self.host.imports.revoke(owner, key, generation);
                self.begin_to_settle(owner, Then::Settled(epoch));
            }
            Output::Revoked { requester, key, export, busy, .. } => {
                if !busy.is_empty() {
                    let local = self.host.local;
                    tracing::warn!(%local, ?key, ?busy, "the device stops peers that use a revoked region");
                }
                // Threads of this host may use it through a queue pair to itself.
                self.begin_to_settle(self.host.local, Then::Close(export, requester));
            }
            Output::Departed { .. } => {}
        }
    }

    fn send(&mut self, to: HostId, message: &Message) {
        let threads = self.host.threads;
        if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.peer() == to) {
            // If the peer is gone, the lane reports it.
            let _ = lane.bulk(threads, TAG, message.encode());
            let _ = lane.flush();
            if lane.waiting_bulk(TAG.namespace()) >= WAITING_BYTES {
                // So a peer that asks on and takes no answer exceeds its limit.
                self.host.control(|control| control.set_writable(to, false));
                self.blocked.insert(to);
            }
        }
    }

    /// Notes which peers have taken what waited for them. They wake this thread when they take it.
    fn unblock(&mut self) {
        let Self { host, lanes, blocked, .. } = self;
        blocked.retain(|peer| {
            let lane = lanes.iter().find(|lane| lane.peer() == *peer);
            let waits =
                lane.is_some_and(|lane| lane.waiting_bulk(TAG.namespace()) >= WAITING_BYTES);
            if !waits {
                host.control(|control| control.set_writable(*peer, true));
            }
            waits
        });
    }

    /// Ends the queue pairs to a peer that is gone.
    fn peer_gone(&self, event: PeerEvent) {
        let (PeerEvent::Lost(peer, _) | PeerEvent::Left(peer)) = event;
        let host = &self.host;
        for thread in 0..host.threads {
            let mut connections = host.thread_state(thread).connections();
            host.progress_locked(thread, &mut connections);
            host.with_locked(thread, &mut connections, peer, |connection, _| connection.end());
            connections.unwoken.retain(|target| target.host != peer);
        }
        // Lanes report the end once it is recorded, and then nothing more. Before that, they must have
        // what other threads of the peer have sent, whichever thread's completion queue held it.
        host.peer_gone(event);
    }

    fn imported(&self, requester: Requester, owner: HostId, key: RegionKey, region: Descriptor) {
        let Descriptor { generation, rights, len, opaque } = region;
        let Some((address, remote_key)) = from_opaque(&opaque, len) else {
            self.violated(owner, format!("{region:?} of region {key:?}"));
            return;
        };
        let remote = Arc::new(RemoteMemory::new((key, generation), address, remote_key));
        self.host.imports.add(owner, generation, &remote);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let (origin, name) = ((self.host.id, owner), (key, rights, generation));
        let region = RemoteRegion::remote(origin, name, len, Arc::new(remote));
        self.answer(requester, owner, Ok(region));
    }

    fn answer(
        &self,
        requester: Requester,
        owner: HostId,
        result: Result<RemoteRegion, RegionError>,
    ) {
        if let Requester::Import(importer) = requester {
            Importer::answer(importer, result, |thread, event| {
                self.host.deliver(thread, owner, event);
            });
        }
    }

    // ---- Quiescence.

    /// From now on no thread of this host starts anything on some region of `peer`. What was started
    /// must complete.
    fn begin_to_settle(&mut self, peer: HostId, then: Then) {
        let host = &self.host;
        let is_local = peer == host.local;
        let mark = |thread| {
            let mark = host.with(thread, peer, |connection, sink| {
                let mark = connection.settle(sink);
                // Deferred atomics count: this host holds no region that could refuse them.
                if is_local { connection.fetches().0 } else { mark }
            });
            mark.unwrap_or(0)
        };
        let marks = (0..host.threads).map(mark).collect();
        self.settling.push(Settling { peer, marks, then });
    }

    /// Handles what has settled; whether anything has.
    fn settle(&mut self) -> bool {
        let host = self.host.clone();
        let has_settled = |settling: &mut Settling| {
            (0..).zip(&settling.marks).all(|(thread, mark)| {
                host.progress(thread);
                let completed = host.with(thread, settling.peer, |connection, sink| {
                    connection.settle(sink);
                    if settling.peer == host.local {
                        connection.fetches().1 >= *mark
                    } else {
                        connection.has_completed(*mark)
                    }
                });
                completed != Some(false)
            })
        };
        let settled: Vec<_> = self.settling.extract_if(.., has_settled).collect();
        let any = !settled.is_empty();
        for Settling { then, .. } in settled {
            match then {
                Then::Settled(epoch) => host.control(|control| control.quiesced(epoch)),
                Then::Close(exported, requester) => {
                    exported.close();
                    if let Some(Requester::Revocation(number)) = requester {
                        host.revocation_part_ended(number);
                    }
                }
            }
        }
        any
    }

    // ---- Time.

    /// Handles the completions of threads that neither poll nor sleep, and wakes for them.
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
    fn next_timeout(&self) -> Duration {
        let now = Instant::now();
        let until = |deadline: Instant| deadline.saturating_duration_since(now);
        let tick = self.progress_thread.next(&self.host.poll_tracker).map(until);
        let settling = (!self.settling.is_empty()).then_some(POLL_INTERVAL);
        let control = self.host.control(|control| control.next_timeout()).map(until);
        [control, tick, settling].into_iter().flatten().min().unwrap_or(LONG)
    }
}
