//! [`Progress`]: the lanes of a thread, when they are flushed and polled, and where events go.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use transport_api::{
    Event, HostId, Lane, LossReason, Namespace, NoticeOutbox, Notification, OpError, PeerEvent,
};

use crate::owner::{Owner, Owners, Violation};
use crate::tokens::{Kind, Outcome, Token, Tokens};
use crate::watched::Watched;

mod notified;

pub use self::notified::TakenNotification;

/// A lane that all layers of a thread share.
pub type LaneRef = RefCell<Box<dyn Lane>>;

/// Rounds between two polls of the lanes, while no operation is under way and the memory of every
/// host is mapped.
const POLL_EVERY: u32 = 32;

/// The progress engine of one thread.
///
/// Nothing of it may be called while a [lane](Self::lane) is borrowed.
pub struct Progress {
    /// By host.
    lanes: Box<[LaneRef]>,
    /// By host, then by its thread, where memory is mapped.
    outboxes: Box<[Vec<Arc<NoticeOutbox>>]>,
    /// Whether lanes are polled in every round: the memory of some host is not mapped, or an
    /// operation is under way or waits to be flushed.
    is_urgent: Cell<bool>,
    /// Rounds left before the next poll of the lanes.
    until_poll: Cell<u32>,
    /// Whether the memory of every host is mapped.
    all_mapped: bool,
    /// Hosts whose lanes have operations to be flushed.
    unflushed: RefCell<Vec<HostId>>,
    /// Keeps [`poll`](Self::poll) from allocating.
    events: Cell<Vec<Event>>,
    /// Known only while neither a poll is urgent nor the owners get the events of one.
    watched: Watched,
    /// Whether the owners get the events of a poll.
    is_dispatching: Cell<bool>,
    tokens: RefCell<Tokens>,
    owners: Owners,
    /// By host: why it is gone, if it is.
    gone: RefCell<Box<[Option<LossReason>]>>,
    /// Whether any host is.
    any_gone: Cell<bool>,
}

impl Progress {
    /// The engine of a thread with these lanes, one to each host, in order. `all_mapped`: the
    /// memory of every host is mapped ([`Transport::maps`](transport_api::Transport::maps)), so
    /// that lanes bring only what is rare.
    pub fn new(lanes: Vec<Box<dyn Lane>>, all_mapped: bool) -> Rc<Progress> {
        let gone = RefCell::new(vec![None; lanes.len()].into());
        Rc::new(Progress {
            outboxes: lanes.iter().map(|lane| lane.outboxes()).collect(),
            lanes: lanes.into_iter().map(RefCell::new).collect(),
            is_urgent: Cell::new(!all_mapped),
            until_poll: Cell::new(0),
            all_mapped,
            unflushed: RefCell::default(),
            events: Cell::default(),
            watched: Watched::default(),
            is_dispatching: Cell::default(),
            tokens: RefCell::default(),
            owners: Owners::default(),
            gone,
            any_gone: Cell::default(),
        })
    }

    /// Hands `owner` what arrives in `namespace` from now on, as long as it lives.
    ///
    /// # Panics
    /// If the name space has an owner on this thread.
    pub fn add_owner(&self, namespace: Namespace, owner: Weak<dyn Owner>) {
        self.owners.add(namespace, owner);
    }

    /// Hosts of the rack.
    pub fn hosts(&self) -> u32 {
        self.lanes.len() as u32
    }

    /// The lane to `host`, for a layer that flushes by itself. Operations with a token begin with
    /// [`begin`](Self::begin).
    #[inline(always)]
    pub fn lane(&self, host: HostId) -> &LaneRef {
        self.watched.forget();
        &self.lanes[host.0 as usize]
    }

    /// Whether no lane is borrowed.
    pub fn is_idle(&self) -> bool {
        self.lanes.iter().all(|lane| lane.try_borrow_mut().is_ok())
    }

    // ---- starting operations -------------------------------------------------------------------

    /// Has `start` start operations that take no token on the lane to `host`. The next poll flushes
    /// them.
    pub fn start<R>(&self, host: HostId, start: impl FnOnce(&mut dyn Lane) -> R) -> R {
        let result = start(&mut **self.lane(host).borrow_mut());
        let mut unflushed = self.unflushed.borrow_mut();
        if !unflushed.contains(&host) {
            unflushed.push(host);
            self.set_urgent(true);
        }
        result
    }

    /// Flushes the lane to `host` at once, and with it what [`start`](Self::start) has started there.
    ///
    /// # Errors
    /// As the lane's flush.
    pub fn flush_lane(&self, host: HostId) -> Result<(), OpError> {
        let flushed = self.lane(host).borrow_mut().flush();
        if self.is_unflushed(host) {
            self.unflushed.borrow_mut().retain(|other| *other != host);
            self.note_tokens();
        }
        flushed
    }

    /// Whether something that [`start`](Self::start) has started on the lane to `host` waits for a flush.
    pub fn is_unflushed(&self, host: HostId) -> bool {
        self.unflushed.borrow().contains(&host)
    }

    /// Takes a token for an operation of this kind, and has `start` start it.
    pub(crate) fn begin_kind<E>(
        &self,
        host: HostId,
        kind: Kind,
        start: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<Token, E> {
        let gone = self.gone.borrow()[host.0 as usize].clone();
        if let Some(reason) = gone {
            return Ok(self.tokens().ended(host, Outcome::lost(kind, host, &reason)));
        }
        let token = self.tokens().begin(host, kind);
        let started = start(token.word());
        if started.is_err() {
            self.tokens().refuse(token);
        }
        self.note_tokens();
        started.map(|()| token)
    }

    pub(crate) fn tokens(&self) -> RefMut<'_, Tokens> {
        self.tokens.borrow_mut()
    }

    /// Operations that have not ended.
    pub fn under_way(&self) -> usize {
        self.tokens().under_way()
    }

    /// Notes whether lanes are to be polled in every round.
    pub(crate) fn note_tokens(&self) {
        let is_urgent = !self.all_mapped
            || self.tokens().under_way() > 0
            || !self.unflushed.borrow().is_empty();
        self.set_urgent(is_urgent);
    }

    fn set_urgent(&self, is_urgent: bool) {
        self.is_urgent.set(is_urgent);
        if is_urgent {
            self.until_poll.set(0);
        }
        self.watched.forget();
    }

    // ---- making progress -----------------------------------------------------------------------

    /// Whether lanes are polled in every round.
    #[inline(always)]
    pub fn is_urgent(&self) -> bool {
        self.is_urgent.get()
    }

    /// Counts a round; true if the lanes must be polled in it: always while that [is
    /// urgent](Self::is_urgent), otherwise in one of 33.
    #[inline(always)]
    pub fn count_round(&self) -> bool {
        let (left, is_due) = self.until_poll.get().overflowing_sub(1);
        self.until_poll.set(left);
        if is_due {
            self.until_poll.set(if self.is_urgent() { 0 } else { POLL_EVERY });
        }
        is_due
    }

    /// The caller has polled the lanes in this round: [`count_round`](Self::count_round) returns false for it,
    /// unless an operation is started before.
    pub fn put_off(&self) {
        self.until_poll.set(self.until_poll.get().max(1));
    }

    /// Flushes started operations, then polls the lanes: wakes fibers whose operations have ended,
    /// and hands the owners their events. True if there was anything.
    pub fn poll(&self) -> bool {
        self.watched.forget();
        let mut moved = self.flush();
        let mut events = Vec::new();
        for (host, lane) in self.lanes.iter().enumerate() {
            moved |= lane.borrow_mut().poll(&mut |event| {
                if events.capacity() == 0 {
                    // Most polls bring none. An owner may poll again, with a vector of its own.
                    events = self.events.take();
                }
                events.push(event);
            });
            if !events.is_empty() {
                self.dispatch_all(HostId(host as u32), &mut events);
            }
        }
        if events.capacity() > 0 {
            self.events.set(events);
        }
        moved
    }

    fn dispatch_all(&self, host: HostId, events: &mut Vec<Event>) {
        self.watched.forget();
        /// Also if an owner panics.
        struct Restore<'a>(&'a Cell<bool>, bool);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.set(self.1);
            }
        }
        let _restore = Restore(&self.is_dispatching, self.is_dispatching.replace(true));
        events.drain(..).for_each(|event| self.dispatch(host, event));
    }

    #[inline]
    fn flush(&self) -> bool {
        !self.unflushed.borrow().is_empty() && self.flush_all()
    }

    fn flush_all(&self) -> bool {
        for host in self.unflushed.borrow_mut().drain(..) {
            // A lane that is broken says so through its peer event.
            let _ = self.lane(host).borrow_mut().flush();
        }
        self.note_tokens();
        true
    }

    fn dispatch(&self, host: HostId, event: Event) {
        if let Event::Peer(event) = event {
            return self.lose(event);
        }
        // A host that is given up may go on sending.
        if self.gone.borrow()[host.0 as usize].is_some() {
            return;
        }
        let handled = match event {
            Event::Completed { token, value } => {
                self.end(host, token, Outcome::Operation(Ok(value)))
            }
            Event::Failed { token: Some(token), error } => {
                self.end(host, token, Outcome::Operation(Err(error)))
            }
            Event::Imported { token, result } => self.end(host, token, Outcome::Import(result)),
            Event::Failed { token: None, error } => {
                let owner = error.key().and_then(|key| self.owners.of(key.namespace()));
                if let Some(owner) = owner {
                    owner.refused(host, &error);
                }
                Ok(())
            }
            Event::Bulk { from, tag, payload } => match self.owners.of(tag.namespace()) {
                Some(owner) => owner.bulk(from, tag, payload),
                None => Err(Violation(format!(
                    "a payload of {} bytes with the tag {tag:?}, which no layer here uses",
                    payload.len()
                ))),
            },
            Event::Notified { from, key, at, len, value } => {
                match self.owners.of(key.namespace()) {
                    Some(owner) => owner.notified(Notification { from, key, at, len, value }),
                    None => Err(Violation(format!(
                        "a notification of region {key:?}, which no layer here uses"
                    ))),
                }
            }
            Event::Peer(_) => Ok(()),
        };
        if let Err(violation) = handled {
            self.give_up(host, violation);
        }
    }

    fn end(&self, host: HostId, token: u64, outcome: Outcome) -> Result<(), Violation> {
        let ended = self.tokens().end(Token::from_word(token), host, outcome);
        self.note_tokens();
        match ended {
            Ok(fiber) => {
                if let Some(fiber) = fiber {
                    fiber::unpark(fiber);
                }
                Ok(())
            }
            Err(_) => Err(Violation(format!("the end of an operation {token:#x} not under way"))),
        }
    }

    // ---- losing hosts --------------------------------------------------------------------------

    /// Why `host` is gone, if it is: it answers nothing any more.
    pub fn loss(&self, host: HostId) -> Option<LossReason> {
        self.gone.borrow().get(host.0 as usize)?.clone()
    }

    /// Whether `host` is gone.
    #[inline(always)]
    pub fn is_lost(&self, host: HostId) -> bool {
        let is_gone =
            |gone: &[Option<LossReason>]| gone.get(host.0 as usize).is_some_and(Option::is_some);
        self.any_gone.get() && is_gone(&self.gone.borrow())
    }

    /// Gives up a host that has broken the protocol.
    #[cold]
    pub fn give_up(&self, host: HostId, violation: Violation) {
        self.lose(PeerEvent::Lost(host, LossReason::Protocol(violation.0)));
    }

    /// Ends the operations under way with a host, and calls the owners, once.
    fn lose(&self, event: PeerEvent) {
        let (PeerEvent::Lost(host, _) | PeerEvent::Left(host)) = event;
        // A host that has left answers nothing more, either.
        let reason = event.reason();
        {
            let mut gone = self.gone.borrow_mut();
            let Some(gone) = gone.get_mut(host.0 as usize) else { return };
            if gone.is_some() {
                return;
            }
            *gone = Some(reason.clone());
            self.any_gone.set(true);
        }
        self.end_all(|other| other == host, &reason);
        for owner in self.owners.all() {
            owner.peer_gone(&event);
        }
    }

    /// Ends every operation under way and every one to come: the rack has ended. After this no
    /// fiber waits for an operation, so that fibers can be unwound.
    pub fn close(&self) {
        self.any_gone.set(true);
        for gone in self.gone.borrow_mut().iter_mut() {
            gone.get_or_insert_with(Progress::ended);
        }
        self.end_all(|_| true, &Progress::ended());
    }

    /// Why operations fail once the rack has ended.
    pub(crate) fn ended() -> LossReason {
        LossReason::Connection("the rack has ended".into())
    }

    fn end_all(&self, concerned: impl Fn(HostId) -> bool, reason: &LossReason) {
        let fibers = self.tokens().lose(concerned, reason);
        self.note_tokens();
        fibers.into_iter().for_each(fiber::unpark);
    }
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Progress")
            .field("hosts", &self.hosts())
            .field("under_way", &self.under_way())
            .finish_non_exhaustive()
    }
}
