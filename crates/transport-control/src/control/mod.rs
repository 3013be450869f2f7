//! [`Control`]: the control plane of one host.

mod exports;
mod goodbye;
mod imports;
mod liveness;
mod peer;
mod revocations;
mod sending;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use transport_api::{HostId, LossReason, PeerEvent};

use crate::config::{CLOSING_GRACE, Config, CutOff, Goodbye, Medium};
use crate::control::exports::Exports;
pub use crate::control::imports::ImportId;
use crate::control::imports::Imports;
use crate::control::liveness::Heartbeats;
use crate::control::peer::{Link, Peer, Request};
use crate::control::revocations::Revocations;
use crate::message::Message;
use crate::output::Output;
use crate::violation::Violation;

/// Something that happens when a time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Import `.1` of peer `.0` has waited long enough for an export.
    Waiting(HostId, u64),
    /// An import of this host has waited long enough for its answer.
    Import(u64),
    /// A revocation of this host has waited long enough for its importers.
    Revocation(u64),
    /// The connection to a peer is closed, and the cause has not become known.
    Closing(HostId),
    /// Peers have had their time to see that this host leaves.
    Leave,
}

/// The control plane of one host: which peers are there, what this host exports and imports, what is
/// being revoked, and who says goodbye.
///
/// It has no socket, thread or clock. Its transport calls it, in most cases under a lock that its
/// service thread and the threads of the program share:
///
/// | Caller | Calls |
/// |---|---|
/// | the transport when the rack is complete | [`new`](Self::new), then [`connected`](Self::connected) for each peer |
/// | the service thread, for what happens on connections | [`receive`](Self::receive), [`traffic`](Self::traffic), [`set_writable`](Self::set_writable), [`left`](Self::left), [`closing`](Self::closing), [`lose`](Self::lose), [`disconnected`](Self::disconnected), [`stopped`](Self::stopped) |
/// | threads of the program, which then wake the service thread | [`export`](Self::export), [`revoke`](Self::revoke), [`begin_import`](Self::begin_import), [`cancel_import`](Self::cancel_import), [`leave`](Self::leave) |
/// | the service thread or the runtime threads, after [`Output::Inhibit`] | [`quiesced`](Self::quiesced) |
/// | the service thread, after any of these and when a time has come | [`poll`](Self::poll) until `None`, then [`next_timeout`](Self::next_timeout) |
/// | the transport when it ends | [`close`](Self::close), then [`poll`](Self::poll) until `None` |
///
/// A round of the service thread is: sleep until there is something to read or
/// [`next_timeout`](Self::next_timeout) has come; take the time `now`; read **everything** that has
/// arrived; call [`poll`](Self::poll) with that `now` until it returns `None`, and act on each
/// output. So no peer counts as silent whose message had arrived.
///
/// # Limits
/// What a peer makes this host keep is bounded: at most
/// [`PENDING_REQUESTS`](primitive::limits::PENDING_REQUESTS) unanswered requests of it. A peer that
/// exceeds that, or sends what no peer sends, is lost with [`LossReason::Protocol`].
pub struct Control<M: Medium> {
    config: Config,
    /// By host number; this host's own is never connected.
    peers: Vec<Peer<M>>,
    exports: Exports<M>,
    imports: Imports<M>,
    revocations: Revocations<M>,
    heartbeats: Option<Heartbeats>,
    timers: BTreeSet<(Instant, Timer)>,
    /// Outputs but messages, in their order.
    events: VecDeque<Output<M>>,
    /// Peers to which there may be something to send.
    ready: BTreeSet<HostId>,
    /// The peer to which something was sent last, so that all have their turn.
    last: HostId,
    /// The number of the last request.
    number: u64,
    /// What waits for this host's goodbye to be seen; `None` before it has begun.
    leaving: Option<Vec<M::Requester>>,
    /// Whether this host has ended, and watches its peers no more.
    is_closed: bool,
}

/// For the transport, when the rack is complete.
impl<M: Medium> Control<M> {
    /// A host without peers.
    pub fn new(now: Instant, config: Config) -> Self {
        Self {
            config,
            peers: (0..config.hosts).map(|_| Peer::absent(now)).collect(),
            exports: Exports::default(),
            imports: Imports::default(),
            revocations: Revocations::default(),
            heartbeats: config.loss_bound.map(|bound| Heartbeats::new(now, bound)),
            timers: BTreeSet::new(),
            events: VecDeque::new(),
            ready: BTreeSet::new(),
            last: config.local,
            number: 0,
            leaving: None,
            is_closed: false,
        }
    }

    /// This host and `peer` can send each other messages from now on. The silence of the peer counts
    /// from `begins`, because it may still wait for others.
    pub fn connected(&mut self, peer: HostId, begins: Instant) {
        let Some(state) = self.peers.get_mut(peer.0 as usize) else { return };
        if peer != self.config.local && state.link == Link::Absent {
            state.link = Link::Open;
            state.heard = begins;
        }
    }
}

/// For the service thread: what happens on connections.
impl<M: Medium> Control<M> {
    /// `from` has sent `bytes`, one message, and `attachment` beside it.
    pub fn receive(
        &mut self,
        now: Instant,
        from: HostId,
        bytes: &[u8],
        attachment: Option<M::Attachment>,
    ) {
        match Message::decode(bytes) {
            Ok(message) => self.handle(now, from, message, attachment),
            Err(violation) => self.violated(from, violation),
        }
    }

    /// As [`receive`](Self::receive), of a message that is decoded. Does nothing if `from` is not
    /// connected.
    pub fn handle(
        &mut self,
        now: Instant,
        from: HostId,
        message: Message,
        attachment: Option<M::Attachment>,
    ) {
        let Some(peer) = self.peers.get_mut(from.0 as usize).filter(|peer| peer.is_open()) else {
            return;
        };
        peer.heard = now;
        let has_left = peer.end.is_some();
        let handled = match message {
            Message::Heartbeat => Ok(()),
            Message::Revoke { number, key, generation } => {
                self.inhibit_for(from, number, (key, generation))
            }
            Message::LeaveSeen => self.leave_seen(from),
            Message::Quiesced { number } if !has_left || self.config.cut_off == CutOff::AtStop => {
                self.quiesced_at(from, number)
            }
            // It starts nothing more, and what it had asked for has ended.
            _ if has_left => Ok(()),
            Message::Import { number, key, timeout } => {
                self.asked(now, from, number, (key, timeout))
            }
            Message::CancelImport { number } => {
                self.ask_cancelled(from, number);
                Ok(())
            }
            Message::Imported { number, region } => {
                self.answered(from, number, Ok((region, attachment, None)))
            }
            Message::Quiesced { .. } => Ok(()),
            Message::Refused { number, refusal } => self.answered(from, number, Err(refusal)),
            Message::Leave if self.config.goodbye == Goodbye::Message => {
                self.left(from);
                Ok(())
            }
            Message::Leave => Err(Violation::new("Leave beside the data path")),
            Message::GivenUp(reason) => {
                let reason = LossReason::Connection(reason.escape_debug().to_string());
                self.end(PeerEvent::Lost(from, reason));
                self.close_connection(from);
                Ok(())
            }
        };
        if let Err(violation) = handled {
            self.violated(from, violation);
        }
    }

    /// `peer` has sent something that is not for the control plane: it is alive.
    pub fn traffic(&mut self, now: Instant, peer: HostId) {
        if let Some(peer) = self.peers.get_mut(peer.0 as usize) {
            peer.heard = peer.heard.max(now);
        }
    }

    /// Whether there is room for a message to `peer`. Otherwise [`poll`](Self::poll) returns no
    /// message for it; the message that had no room stays with the transport.
    pub fn set_writable(&mut self, peer: HostId, is_writable: bool) {
        self.peer(peer).is_writable = is_writable;
        self.note_ready(peer);
    }

    /// The connection to `peer` has ended, but the cause is not known yet: unless that is reported
    /// within [`CLOSING_GRACE`], the peer is lost because it closed its connection.
    pub fn closing(&mut self, now: Instant, peer: HostId) {
        let state = self.peer(peer);
        if state.is_open() {
            state.link = Link::Closing;
            self.timers.insert((now + CLOSING_GRACE, Timer::Closing(peer)));
            self.note_departure();
        }
    }

    /// `peer` cannot be used any more, for `reason`, but the reason may still be sent to it: it is
    /// lost, and [`Output::Close`] follows.
    pub fn lose(&mut self, peer: HostId, reason: LossReason) {
        let local = self.config.local;
        let state = self.peer(peer);
        if matches!(state.link, Link::Open | Link::Closing) {
            if state.end.is_none() {
                state.giving_up = Some(format!("{local} has given this host up: {reason}"));
                self.end(PeerEvent::Lost(peer, reason));
            }
            self.close_connection(peer);
        }
    }

    /// `peer` has sent what no peer sends: it is lost.
    pub fn violated(&mut self, peer: HostId, violation: Violation) {
        self.lose(peer, LossReason::Protocol(violation.to_string()));
    }

    /// The connection to `peer` is gone: the peer is lost for `reason`, unless its end was reported
    /// before.
    pub fn disconnected(&mut self, peer: HostId, reason: LossReason) {
        if matches!(self.peer(peer).link, Link::Open | Link::Closing) {
            self.peer(peer).link = Link::Closed;
            self.end(PeerEvent::Lost(peer, reason));
            self.forget_regions_of(peer);
            self.revocations.note_silence();
            self.note_departure();
        }
    }

    /// `peer` certainly accesses no region of this host any more, as its process has ended: for
    /// [`CutOff::AtStop`].
    pub fn stopped(&mut self, peer: HostId) {
        if let Some(state) = self.peers.get_mut(peer.0 as usize) {
            state.has_stopped = true;
            self.quiesced_everywhere(peer);
        }
    }
}

/// For the service thread: what is to be done.
impl<M: Medium> Control<M> {
    /// The next thing to do or to report at the time `now`; call it until it returns `None`.
    pub fn poll(&mut self, now: Instant) -> Option<Output<M>> {
        self.limit_waits(now);
        while let Some((_, timer)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.pop_first();
            self.expired(timer);
        }
        self.check_heartbeats(now);
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        // From the peer behind the last.
        while let Some(peer) = self.next_ready() {
            if let Some(output) = self.next_for(now, peer) {
                self.last = peer;
                self.note_ready(peer);
                return Some(output);
            }
            self.ready.remove(&peer);
        }
        self.events.pop_front()
    }

    /// When [`poll`](Self::poll) must be called although nothing has happened.
    pub fn next_timeout(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let heartbeat = self.heartbeats.as_ref().map(Heartbeats::next);
        [timer, heartbeat].into_iter().flatten().min()
    }

    /// How `peer` has ended, if it has.
    pub fn end_of(&self, peer: HostId) -> Option<&PeerEvent> {
        self.peers.get(peer.0 as usize)?.end.as_ref()
    }

    /// Whether messages to and from `peer` flow.
    pub fn is_open(&self, peer: HostId) -> bool {
        self.peers.get(peer.0 as usize).is_some_and(Peer::is_open)
    }

    /// Entries that peers made this host keep: their unanswered requests, and answers that wait. For
    /// tests of the limits.
    #[cfg(any(test, fuzzing, feature = "testing"))]
    pub fn kept_for_peers(&self) -> usize {
        let of_peer = |peer: &Peer<M>| peer.waiting.len() + peer.answers.len();
        let waiting = self.exports.waiting.values().map(BTreeSet::len).sum::<usize>();
        self.peers.iter().map(of_peer).sum::<usize>() + waiting + self.revocations.inhibited()
    }

    /// This host ends: every peer is lost for `reason`, which is not sent, and everything that waits
    /// for peers ends. Revocations that wait for threads of this host go on.
    pub fn close(&mut self, reason: &LossReason) {
        self.is_closed = true;
        for peer in (0..self.config.hosts).map(HostId) {
            if matches!(self.peer(peer).link, Link::Open | Link::Closing) {
                self.end(PeerEvent::Lost(peer, reason.clone()));
                self.close_connection(peer);
            }
        }
        self.fail_local_imports(reason);
        self.end_revocations();
        self.note_departure();
    }
}

impl<M: Medium> Control<M> {
    fn peer(&mut self, peer: HostId) -> &mut Peer<M> {
        &mut self.peers[peer.0 as usize]
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn expired(&mut self, timer: Timer) {
        match timer {
            Timer::Waiting(from, number) => self.waited_enough(from, number),
            Timer::Import(number) => self.import_timed_out(number),
            Timer::Revocation(number) => self.revocation_timed_out(number),
            Timer::Closing(peer) => {
                let reason = "it closed its connection without a goodbye";
                self.disconnected(peer, LossReason::Connection(reason.into()));
            }
            Timer::Leave => self.depart(),
        }
    }

    /// Reports the end of a peer, the first time, and then that of what waits for it.
    fn end(&mut self, event: PeerEvent) {
        let (PeerEvent::Lost(host, _) | PeerEvent::Left(host)) = event;
        if self.peer(host).end.is_some() {
            return;
        }
        let reason = event.reason();
        self.peer(host).end = Some(event.clone());
        self.events.push_back(Output::PeerGone(event));
        self.fail_imports_of(host, &reason);
        self.forget_asks_of(host);
        let is_cut_off = self.config.cut_off == CutOff::AtEnd;
        if is_cut_off {
            self.quiesced_everywhere(host);
        }
        let must_quiesce = !is_cut_off && self.peer(host).is_open();
        self.peer(host).clear(must_quiesce);
        self.note_departure();
    }

    /// The connection to `peer` is to be closed, once the reason was sent.
    fn close_connection(&mut self, peer: HostId) {
        let state = self.peer(peer);
        state.link = Link::Closed;
        state.close_due = true;
        self.forget_regions_of(peer);
        self.revocations.note_silence();
        self.note_ready(peer);
    }
}
