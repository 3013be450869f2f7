//! [`Node`]: its fields, and the accessors that other code uses.

use std::cell::{Cell, RefCell};
use std::hint::cold_path;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use progress::{LaneRef, Progress};
use transport_api::{HostId, Namespace, PeerEvent, ThreadId};

use crate::client::outbox::Outbox;
use crate::closure::context::ContextCell;
use crate::closure::registry::{Closure, Tag, registry};
use crate::error::{DelegateError, Panic};
use crate::node::awaited::{AwaitedCalls, CallSite};
use crate::node::callers::Launched;
use crate::node::collected::Collectors;
use crate::node::deferred::Deferred;
use crate::node::outboxes::Outboxes;
use crate::node::turn::Turn;
use crate::trustee::inbox::{Inbox, Server};
use crate::trustee::inboxes::Inboxes;
use crate::trustee::property::{Handoff, Properties};
use crate::wire::traffic::Traffic;

/// An event that a worker gets besides whether there was progress.
#[derive(Debug)]
pub enum Incident {
    /// A host of the rack is gone or has left.
    Peer(PeerEvent),
    /// A fire-and-forget request failed, or a callback panicked.
    Unobserved {
        /// How.
        error: DelegateError,
        /// Where the call was made; `None` if that is not known, for destructors, and for the
        /// runtime's own requests.
        place: Option<&'static Location<'static>>,
        /// Whether it is a callback of the call that panicked.
        is_callback: bool,
    },
}

/// Names a thread of one of the racks that this process takes part in, in one word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct NodeId(u64);

impl NodeId {
    /// No thread's.
    pub(crate) const NONE: NodeId = NodeId(u64::MAX);

    /// The thread numbered `number` of the rack numbered `rack` (in this process).
    #[inline(always)]
    pub(crate) fn new(rack: u32, number: u32) -> Self {
        NodeId(u64::from(rack) << 32 | u64::from(number))
    }

    #[inline(always)]
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn number(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(crate) fn rack(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The delegation state of one runtime thread.
pub struct Node {
    pub(crate) me: ThreadId,
    pub(crate) id: NodeId,
    pub(super) threads: u32,
    pub(super) outboxes: Outboxes,
    pub(super) inboxes: Inboxes,
    /// The thread's lanes, which other layers use as well.
    pub(super) progress: Rc<Progress>,
    pub(super) closures: &'static [Closure],
    pub(super) properties: Properties,
    /// By thread of this host.
    pub(super) handoffs: Arc<[Arc<Handoff>]>,
    pub(super) context: ContextCell,
    pub(crate) awaited_calls: AwaitedCalls,
    pub(crate) launched: Launched,
    pub(super) deferred: Deferred,
    pub(super) runs_deferred: Cell<bool>,
    /// What collects updates of this thread.
    pub(crate) collectors: Collectors,
    /// Requests that flushes have made.
    pub(crate) flushes: Cell<u64>,
    pub(super) incidents: RefCell<Vec<Incident>>,
    pub(super) closed: Cell<bool>,
    /// Whether a poll is under way: what it runs must not start another.
    pub(super) polling: Cell<bool>,
    /// How often [`stay`](Node::stay) is in force.
    pub(super) staying: Cell<u32>,
    /// When the fiber that runs gives way.
    pub(super) turn: Turn,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("thread", &self.me).finish_non_exhaustive()
    }
}

pub(crate) struct Parts {
    pub(crate) me: ThreadId,
    pub(crate) rack: u32,
    pub(crate) threads: u32,
    pub(crate) outboxes: Outboxes,
    pub(crate) inboxes: Inboxes,
    pub(crate) progress: Rc<Progress>,
    /// By thread of this host.
    pub(crate) handoffs: Arc<[Arc<Handoff>]>,
}

impl Server for Node {
    #[inline(always)]
    fn closures(&self) -> &'static [Closure] {
        self.closures
    }

    #[inline(always)]
    fn properties(&self) -> &Properties {
        &self.properties
    }

    #[inline(always)]
    fn context(&self) -> &ContextCell {
        &self.context
    }

    #[inline(always)]
    fn lane(&self, host: HostId) -> &LaneRef {
        self.progress.lane(host)
    }

    #[cold]
    fn report_panic(&self, panic: Panic) {
        Node::report_panic(self, panic);
    }
}

impl Node {
    pub(crate) fn new(parts: Parts) -> Rc<Node> {
        let Parts { me, rack, threads, outboxes, inboxes, progress, handoffs } = parts;
        // Here, because a panicking thread cannot set a hook.
        fiber::note_panics();
        let node = Node {
            me,
            id: NodeId::new(rack, me.number(threads)),
            threads,
            outboxes,
            inboxes,
            progress,
            closures: registry().closures(),
            properties: Properties::new(handoffs[me.thread as usize].clone()),
            handoffs,
            context: ContextCell::new(),
            awaited_calls: AwaitedCalls::default(),
            launched: Launched::default(),
            deferred: Deferred::default(),
            runs_deferred: Cell::new(false),
            collectors: Collectors::default(),
            flushes: Cell::new(0),
            incidents: RefCell::default(),
            closed: Cell::new(false),
            polling: Cell::new(false),
            staying: Cell::new(0),
            turn: Turn::new(),
        };
        let node = Rc::new(node);
        let owner = Rc::downgrade(&node);
        node.progress.add_owner(Namespace::DELEGATION, owner);
        node
    }

    /// The thread that this node belongs to.
    pub fn thread(&self) -> ThreadId {
        self.me
    }

    /// Runtime threads of every host.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// The progress engine of this thread: for other layers, which start operations there and own
    /// name spaces of their own.
    pub fn progress(&self) -> &Rc<Progress> {
        &self.progress
    }

    /// Hosts of the rack.
    pub fn hosts(&self) -> u32 {
        self.progress.hosts()
    }

    /// This thread's number in the rack.
    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.id.number()
    }

    /// The number of a thread of the rack, counting through all hosts.
    #[inline(always)]
    pub(crate) fn number_of(&self, thread: ThreadId) -> u32 {
        thread.number(self.threads)
    }

    /// The thread with this number, if there is one.
    pub(crate) fn thread_numbered(&self, number: u32) -> Option<ThreadId> {
        let thread = ThreadId::from_number(number, self.threads);
        self.has(thread).then_some(thread)
    }

    /// Whether the rack has this thread.
    pub(crate) fn has(&self, thread: ThreadId) -> bool {
        thread.host.0 < self.hosts() && thread.thread < self.threads
    }

    #[inline(always)]
    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    #[inline(always)]
    pub(crate) fn context(&self) -> &ContextCell {
        &self.context
    }

    /// Takes a property into trust on this thread.
    pub(crate) fn insert<T: 'static>(&self, value: T) -> (u32, Tag) {
        self.properties.insert(value)
    }

    /// Entrusts a value to another thread of this host, without waiting for it.
    pub(crate) fn hand_off<T: Send + 'static>(&self, thread: u32, value: T) -> (u32, Tag) {
        self.handoffs[thread as usize].hand_off(value)
    }

    #[inline(always)]
    pub(super) fn lane_to(&self, outbox: &Outbox) -> &LaneRef {
        self.lane(outbox.trustee().host)
    }

    /// The outbox that leads to `home`: a thread of this node's rack, and not its own.
    #[inline(always)]
    pub(crate) fn outbox_at(&self, home: NodeId) -> Option<&Outbox> {
        match self.outboxes.recent_at(home.word()) {
            Some(outbox) => Some(outbox),
            None => {
                cold_path();
                self.find_outbox_at(home)
            }
        }
    }

    #[inline(never)]
    fn find_outbox_at(&self, home: NodeId) -> Option<&Outbox> {
        let is_here = home.rack() == self.id.rack();
        if is_here { self.outboxes.use_at(home.word(), home.number()) } else { None }
    }

    /// As [`outbox_at`](Self::outbox_at), by the outbox's token, if it is the one that was used last.
    #[inline(always)]
    pub(crate) fn recent_with_token(&self, token: u64) -> Option<&Outbox> {
        self.outboxes.recent_with_token(token)
    }

    /// Begins a batch, if there is a buffer for it.
    pub(super) fn open(&self, outbox: &Outbox) -> bool {
        let open = outbox.open(|| self.lane_to(outbox));
        if open {
            self.outboxes.list(self.number_of(outbox.trustee()));
        }
        open
    }

    /// Reports a panic of a callback or of a destructor to the worker.
    pub(crate) fn report_panic(&self, panic: Panic) {
        let (is_callback, place) = self.context.take_panicked();
        let report = crate::error::PanicReport::taken(panic);
        let error = DelegateError::Panicked { trustee: self.me, report };
        self.incidents.borrow_mut().push(Incident::Unobserved { error, place, is_callback });
    }

    /// Reports the failure of a fire-and-forget request, sent at `place`, to the worker.
    pub(crate) fn report(&self, error: DelegateError, place: Option<CallSite>) {
        let incident = Incident::Unobserved { error, place, is_callback: false };
        self.incidents.borrow_mut().push(incident);
    }

    /// Whether there are incidents.
    #[inline]
    pub fn has_incidents(&self) -> bool {
        !self.incidents.borrow().is_empty()
    }

    /// Takes the incidents.
    pub fn take_incidents(&self) -> Vec<Incident> {
        std::mem::take(&mut *self.incidents.borrow_mut())
    }

    /// Whether work waits until delegated code has ended, or is being done.
    #[inline(always)]
    pub(super) fn has_deferred(&self) -> bool {
        self.deferred.is_busy()
    }

    /// Whether a poll would find anything to do. Asked before going to sleep.
    pub fn has_work(&self) -> bool {
        self.has_deferred()
            || self.inboxes.any(Inbox::is_ready)
            || self.outboxes.all_busy().any(Outbox::is_ready)
    }

    /// How many batches this node has sent, and how many calls of its own have not ended yet (a
    /// batch under way counts as one).
    pub fn outstanding(&self) -> (u64, u64) {
        let outboxes = self.outboxes.iter();
        let (batches, not_done) = outboxes
            .map(|outbox| outbox.traffic())
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (batches, not_done + self.awaited_calls.awaited() as u64)
    }

    /// Requests and bytes that this thread has received and sent since it began.
    pub fn traffic(&self) -> Traffic {
        let mut sum = Traffic::default();
        self.outboxes.iter().for_each(|outbox| outbox.count(&mut sum));
        self.inboxes.iter().for_each(|inbox| inbox.count(&mut sum));
        self.inboxes.any(|inbox| {
            sum.unserved += inbox.unserved();
            false
        });
        sum
    }

    /// Requests to the thread with this number that have not ended, counted by the batch.
    #[inline]
    pub(crate) fn outstanding_at(&self, number: u32) -> usize {
        let outbox = self.outboxes.get(number);
        outbox.map_or(0, |outbox| outbox.outstanding())
    }

    /// Requests that were ever made of other threads, without those of flushes.
    pub(crate) fn requests_made(&self) -> u64 {
        let made: u64 = self.outboxes.iter().map(|outbox| outbox.made()).sum();
        // Flushes of a host that was lost count here only.
        made.wrapping_sub(self.flushes.get())
    }

    /// The threads, by number, that have not answered all requests of this one.
    pub(crate) fn busy(&self) -> Vec<u32> {
        let busy = self.outboxes.all_busy().filter(|outbox| outbox.is_busy());
        busy.map(|outbox| self.number_of(outbox.trustee())).collect()
    }

    /// Whether requests to the thread with this number fail: its host is lost, or the rack has ended.
    pub(crate) fn is_closed_to(&self, number: u32) -> bool {
        let outbox = self.outboxes.get(number);
        outbox.is_none_or(|outbox| outbox.closed().is_some())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }
}
