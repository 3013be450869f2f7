//! [`Node`]: everything that one runtime thread has of delegation.
//!
//! A node is a pure machine: it is handed memory, lanes and calls to [`poll`](Node::poll), and has
//! no socket, clock or thread of its own. The worker that owns it polls like this:
//!
//! ```text
//!   loop { run ready fibers; node.poll(); if nothing happened, back off }
//! ```
//!
//! One poll hands over what fibers have queued (so a batch is what they queued since the last
//! poll, or a full buffer before that), serves what has arrived, and takes replies, which makes
//! fibers ready again.

use crate::{
    arrivals::Arrivals,
    completion::{Completion, Outcome, Source, boxed},
    context::{Context, ContextCell},
    error::{DelegateError, Panic},
    inbox::Inbox,
    outbox::{BULK_REQUEST, LaneRef, Outbox, Request},
    property::{Dead, Properties},
    registry::{Closure, Tag, registry},
    system::System,
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    panic::{AssertUnwindSafe, Location, catch_unwind},
    rc::Rc,
};
use transport_api::{Event, HostId, PeerEvent, ThreadId};

/// Polls between two looks at the lanes, while nothing waits for what only they bring, and memory
/// brings everything else.
const LANE_POLL_EVERY: u32 = 32;

thread_local! {
    static CURRENT: Cell<Option<&'static Node>> = const { Cell::new(None) };
}

/// What a worker is told besides whether there was progress.
#[derive(Debug)]
pub enum Incident {
    /// A host of the rack is gone or has left.
    Peer(PeerEvent),
    /// A request that nobody waits for failed, or a callback panicked.
    Unobserved(DelegateError),
    /// A peer's `write_notify` has arrived.
    Notified(Event),
}

/// Work that runs when the delegated code that runs now has ended.
type Deferred = Box<dyn FnOnce(&Node)>;

/// A thread of one of the racks that this process takes part in, as one word to compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seat(u64);

impl Seat {
    /// No thread's.
    pub(crate) const NONE: Seat = Seat(u64::MAX);

    /// The thread numbered `number` of the rack numbered `rack` (in this process).
    #[inline(always)]
    pub(crate) fn new(rack: u32, number: u32) -> Self {
        Seat(u64::from(rack) << 32 | u64::from(number))
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

/// Everything that one runtime thread has of delegation.
pub struct Node {
    pub(crate) me: ThreadId,
    pub(crate) seat: Seat,
    threads: u32,
    outboxes: Box<[Option<Box<Outbox>>]>,
    inboxes: Box<[Option<Inbox>]>,
    arrivals: Option<Arrivals>,
    lanes: Box<[LaneRef]>,
    closures: &'static [Closure],
    properties: Properties,
    context: ContextCell,
    pub(crate) system: System,
    deferred: RefCell<VecDeque<Deferred>>,
    has_deferred: Cell<bool>,
    runs_deferred: Cell<bool>,
    /// Outboxes with something under way.
    busy: RefCell<Vec<u32>>,
    /// Whether the memory of every host is mapped.
    all_mapped: bool,
    /// Polls before the next look at the lanes, if it is.
    until_lanes: Cell<u32>,
    incidents: RefCell<Vec<Incident>>,
    closed: Cell<bool>,
    /// Whether a poll is under way: what it runs must not start another.
    polling: Cell<bool>,
    /// How often [`stay`](Node::stay) is in force.
    staying: Cell<u32>,
}

pub(crate) struct Parts {
    pub(crate) me: ThreadId,
    pub(crate) rack: u32,
    pub(crate) threads: u32,
    pub(crate) outboxes: Box<[Option<Box<Outbox>>]>,
    pub(crate) inboxes: Box<[Option<Inbox>]>,
    pub(crate) arrivals: Option<Arrivals>,
    pub(crate) lanes: Box<[LaneRef]>,
    /// Whether the memory of every host is mapped, so that lanes bring only what is rare.
    pub(crate) all_mapped: bool,
}

impl Node {
    pub(crate) fn new(parts: Parts) -> Rc<Node> {
        let Parts { me, rack, threads, outboxes, inboxes, arrivals, lanes, all_mapped } = parts;
        let node = Node {
            me,
            seat: Seat::new(rack, me.host.0 * threads + me.thread),
            threads,
            outboxes,
            inboxes,
            arrivals,
            lanes,
            closures: registry().closures(),
            properties: Properties::default(),
            context: ContextCell::new(),
            system: System::default(),
            deferred: RefCell::default(),
            has_deferred: Cell::new(false),
            runs_deferred: Cell::new(false),
            busy: RefCell::default(),
            all_mapped,
            until_lanes: Cell::new(0),
            incidents: RefCell::default(),
            closed: Cell::new(false),
            polling: Cell::new(false),
            staying: Cell::new(0),
        };
        crate::system::install(&node);
        Rc::new(node)
    }

    /// Makes `node` the current thread's until the guard is dropped.
    ///
    /// # Panics
    /// If the thread has one already.
    pub fn enter(node: Rc<Node>) -> EnteredNode {
        // SAFETY: the reference is taken out of the thread-local by the guard's drop, while the
        // guard still holds the node; `with_node` never lets it escape, and if somebody is still
        // inside `with_node` then, the node is never freed.
        let current = unsafe { &*Rc::as_ptr(&node) };
        if let Some(before) = CURRENT.get() {
            panic!("this thread already runs {}", before.me);
        }
        CURRENT.set(Some(current));
        EnteredNode(node)
    }

    /// The thread that this node belongs to.
    pub fn thread(&self) -> ThreadId {
        self.me
    }

    /// Runtime threads of every host.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// Hosts of the rack.
    pub fn hosts(&self) -> u32 {
        self.lanes.len() as u32
    }

    /// This thread's number in the rack.
    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.seat.number()
    }

    /// The number of a thread of the rack, counting through all hosts.
    #[inline(always)]
    pub(crate) fn number_of(&self, thread: ThreadId) -> u32 {
        thread.host.0 * self.threads + thread.thread
    }

    /// The thread with this number, if there is one.
    pub(crate) fn thread_numbered(&self, number: u32) -> Option<ThreadId> {
        let thread =
            ThreadId { host: HostId(number / self.threads), thread: number % self.threads };
        (thread.host.0 < self.hosts()).then_some(thread)
    }

    #[inline(always)]
    pub(crate) fn closures(&self) -> &'static [Closure] {
        self.closures
    }

    #[inline(always)]
    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    #[inline(always)]
    pub(crate) fn context(&self) -> &ContextCell {
        &self.context
    }

    #[inline(always)]
    pub(crate) fn lane(&self, host: HostId) -> &LaneRef {
        &self.lanes[host.0 as usize]
    }

    /// Takes a property into trust on this thread.
    pub(crate) fn insert<T: 'static>(&self, value: T, first: u64) -> (u32, Tag) {
        self.properties.insert(value, first)
    }

    /// Sends a request to the thread with this number. A fiber in free context may wait here for room.
    #[inline(always)]
    pub(crate) fn send<C: Completion + 'static>(
        &self,
        number: u32,
        request: Request<'_>,
        completion: C,
    ) {
        let Some(Some(outbox)) = self.outboxes.get(number as usize) else {
            let error = DelegateError::NoRack("the trust's trustee is not a thread of this rack");
            return completion.complete(Outcome::failed(&Source::Failed(&error)));
        };
        match outbox.append(&request, completion, || self.lane_to(outbox)) {
            Ok(false) => {}
            Ok(true) => {
                outbox.flush(self.lane_to(outbox));
            }
            Err(completion) => self.send_in_next(outbox, number, request, completion),
        }
    }

    /// Sends a request for which no batch is open, or not one with room for it.
    #[inline(never)]
    fn send_in_next<C: Completion + 'static>(
        &self,
        outbox: &Outbox,
        number: u32,
        request: Request<'_>,
        completion: C,
    ) {
        if !self.open(outbox, number) {
            return self.send_later(outbox, number, request, completion);
        }
        // An empty batch takes every request, and more than one.
        if let Err(completion) = outbox.append(&request, completion, || self.lane_to(outbox)) {
            self.send_later(outbox, number, request, completion);
        }
    }

    #[inline(always)]
    fn lane_to(&self, outbox: &Outbox) -> &LaneRef {
        self.lane(outbox.trustee().host)
    }

    /// Begins a batch, if there is a buffer for it.
    fn open(&self, outbox: &Outbox, number: u32) -> bool {
        let open = outbox.open(self.lane_to(outbox));
        if open {
            self.list(outbox, number);
        }
        open
    }

    /// Notes that something is under way to this outbox's trustee.
    fn list(&self, outbox: &Outbox, number: u32) {
        if !outbox.listed.replace(true) {
            self.busy.borrow_mut().push(number);
        }
    }

    #[cold]
    #[inline(never)]
    fn send_later<C: Completion + 'static>(
        &self,
        outbox: &Outbox,
        number: u32,
        request: Request<'_>,
        completion: C,
    ) {
        if let Some(error) = outbox.closed() {
            return completion.complete(Outcome::failed(&Source::Failed(&error)));
        }
        let _stay = self.stay();
        let ticket = outbox.postpone(request, boxed(completion));
        self.list(outbox, number);
        // Back-pressure, for those who would otherwise go on and queue more.
        if C::WAITS_FOR_ROOM
            && self.context.is_free()
            && let Some(fiber) = fiber::current()
        {
            while !outbox.has_moved(ticket) {
                outbox.wait_for_room(fiber);
                fiber::park();
            }
        }
    }

    /// Runs `work` on this thread: now, or when the delegated code that runs now has ended.
    #[inline(always)]
    pub(crate) fn run_or_defer(&self, work: impl FnOnce(&Node) + 'static) {
        if self.context.is_free() {
            work(self);
            self.run_deferred();
        } else {
            self.deferred.borrow_mut().push_back(Box::new(work));
            self.has_deferred.set(true);
        }
    }

    /// Runs what was deferred, if delegated code has ended.
    #[inline(always)]
    pub(crate) fn run_deferred(&self) {
        if self.has_deferred.get() && self.context.is_free() && !self.runs_deferred.get() {
            self.run_deferred_now();
        }
    }

    #[cold]
    #[inline(never)]
    fn run_deferred_now(&self) {
        // What is deferred may defer more, and ends in free context like all delegated code: the
        // loop here runs it, so that the stack does not grow with the length of the chain.
        self.runs_deferred.set(true);
        loop {
            let next = self.deferred.borrow_mut().pop_front();
            let Some(work) = next else { break };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(self))) {
                self.report_panic(panic);
            }
        }
        self.has_deferred.set(false);
        self.runs_deferred.set(false);
    }

    /// Drops a property that nothing refers to any more.
    pub(crate) fn bury(&self, dead: Option<Dead>) {
        if let Some(dead) = dead {
            let context = self.context.enter(Context::Dropping);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(dead))) {
                self.report_panic(panic);
            }
            drop(context);
        }
    }

    /// Tells the worker of a panic that nobody waits for.
    pub(crate) fn report_panic(&self, panic: Panic) {
        let report = crate::error::PanicReport::taken(panic);
        self.report(DelegateError::Panicked { trustee: self.me, report });
    }

    /// Tells the worker of a failure that nobody waits for.
    pub(crate) fn report(&self, error: DelegateError) {
        self.incidents.borrow_mut().push(Incident::Unobserved(error));
    }

    /// Makes progress: sends, serves, takes replies. True if anything happened. Call it from the
    /// worker, outside any fiber.
    fn poll(&self) -> bool {
        if self.polling.replace(true) {
            return false;
        }
        let progress = self.poll_once();
        self.polling.set(false);
        progress
    }

    fn poll_once(&self) -> bool {
        let sent = self.flush();
        // Where only lanes bring what others write, it is served or taken in the same round: to look
        // again, which is a system call, would come between a reply and what its fiber sends next.
        let moved = !self.all_mapped && self.poll_lanes();
        // A fiber that waits inside a delegated closure holds a reference to its property. It must
        // not, but a bare `park` cannot tell: nothing is served until it has gone on.
        let served = self.context.is_free() && self.serve();
        let reaped = self.reap();
        self.run_deferred();
        let moved = moved || (self.all_mapped && self.poll_lanes_sometimes());
        moved || sent || served || reaped
    }

    /// Polls the lanes in one of many rounds: memory brings what is frequent.
    #[inline(always)]
    fn poll_lanes_sometimes(&self) -> bool {
        let left = self.until_lanes.get();
        self.until_lanes.set(if left == 0 { LANE_POLL_EVERY } else { left - 1 });
        left == 0 && self.poll_lanes()
    }

    fn flush(&self) -> bool {
        let mut sent = false;
        for number in self.busy.borrow().iter() {
            let outbox = self.outbox(*number);
            sent |= outbox.flush(self.lane_to(outbox));
        }
        sent
    }

    #[inline(always)]
    fn serve(&self) -> bool {
        match &self.arrivals {
            None => self.inboxes.iter().flatten().fold(false, |any, inbox| inbox.serve(self) | any),
            Some(arrivals) => arrivals.serve(&self.inboxes, self),
        }
    }

    fn reap(&self) -> bool {
        let mut reaped = false;
        let mut i = 0;
        let _context = self.context.enter(Context::Callback);
        loop {
            // Completions may send, which may lengthen the list: borrow it for one look at a time.
            let Some(number) = self.busy.borrow().get(i).copied() else { break };
            let outbox = self.outbox(number);
            if outbox.reap(&self.context, &mut |panic| self.report_panic(panic)) {
                reaped = true;
                outbox.refill(self.lane_to(outbox), fiber::unpark);
            }
            if outbox.is_busy() {
                i += 1;
            } else {
                outbox.listed.set(false);
                self.busy.borrow_mut().swap_remove(i);
            }
        }
        reaped
    }

    fn outbox(&self, number: u32) -> &Outbox {
        self.outboxes[number as usize].as_ref().expect("only outboxes that exist are listed")
    }

    /// Takes what the lanes have: bulk payloads, notifications, losses. True if there was anything.
    fn poll_lanes(&self) -> bool {
        let mut moved = false;
        for lane in &self.lanes {
            let mut events = Vec::new();
            moved |= lane.borrow_mut().poll(&mut |event| events.push(event));
            for event in events {
                self.handle(event);
            }
        }
        moved
    }

    fn handle(&self, event: Event) {
        match event {
            Event::Bulk { from, tag, payload } => {
                let number = self.number_of(from) as usize;
                if tag == BULK_REQUEST {
                    if let Some(Some(inbox)) = self.inboxes.get(number) {
                        inbox.bulk_arrived(payload);
                    }
                } else if let Some(Some(outbox)) = self.outboxes.get(number) {
                    outbox.bulk_arrived(payload);
                }
            }
            Event::Peer(event) => {
                if let PeerEvent::Lost(host, reason) = &event {
                    self.lose(*host, reason);
                }
                self.incidents.borrow_mut().push(Incident::Peer(event));
            }
            notified @ Event::Notified { .. } => {
                self.incidents.borrow_mut().push(Incident::Notified(notified));
            }
            // The node starts no operation that has a completion.
            Event::Completed { .. } | Event::Failed { .. } => {}
        }
    }

    /// Ends everything that is under way with `host`.
    fn lose(&self, host: HostId, reason: &transport_api::LossReason) {
        let error = DelegateError::PeerLost { host, reason: reason.clone() };
        let _context = self.context.enter(Context::Callback);
        let caught = &mut |panic: Panic| self.report_panic(panic);
        for outbox in self.outboxes.iter().flatten().filter(|o| o.trustee().host == host) {
            outbox.close(&error, caught, fiber::unpark);
        }
        for inbox in self.inboxes.iter().flatten().filter(|i| i.client().host == host) {
            inbox.close();
        }
        self.system.lose(host, reason, caught);
    }

    /// Whether anything happened that somebody should know.
    #[inline]
    pub fn has_incidents(&self) -> bool {
        !self.incidents.borrow().is_empty()
    }

    /// What happened that somebody should know; empties the list.
    pub fn take_incidents(&self) -> Vec<Incident> {
        std::mem::take(&mut *self.incidents.borrow_mut())
    }

    /// Whether a poll would find anything to do. Asked before going to sleep.
    pub fn has_work(&self) -> bool {
        self.has_deferred.get()
            || self.inboxes.iter().flatten().any(Inbox::is_ready)
            || self.busy.borrow().iter().any(|number| self.outbox(*number).is_ready())
    }

    /// How many batches this node has sent, and how many calls of its own have not ended yet (a
    /// batch under way counts as one).
    pub fn outstanding(&self) -> (u64, u64) {
        let outboxes = self.outboxes.iter().flatten();
        let (batches, not_done) = outboxes
            .map(|outbox| outbox.traffic())
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (batches, not_done + self.system.awaited() as u64)
    }

    /// The type names of the properties that are alive here.
    pub fn alive(&self) -> Vec<&'static str> {
        self.properties.alive().into_iter().filter(|name| !System::is_named(name)).collect()
    }

    /// Ends every request under way and every one to come: the rack has ended. After this no fiber
    /// waits for a reply, so that fibers can be unwound.
    fn close(&self) {
        self.closed.set(true);
        let error = || DelegateError::NoRack("the rack has ended");
        let _context = self.context.enter(Context::Callback);
        let caught = &mut |panic: Panic| self.report_panic(panic);
        for outbox in self.outboxes.iter().flatten() {
            outbox.close(&error(), caught, fiber::unpark);
        }
        self.system.fail(|_| true, error, caught);
    }

    /// Refuses what would pull the node out from under the code that it runs.
    fn check_idle(&self, what: &str) {
        assert!(
            !self.polling.get() && self.context.is_free(),
            "a node cannot {what} inside delegated code or callbacks"
        );
    }

    /// Keeps the node from going until the guard is dropped. For functions of the node that, outside
    /// any other context, run code of users or park the fiber, and look at the node again behind it.
    pub(crate) fn stay(&self) -> Stay<'_> {
        self.staying.set(self.staying.get() + 1);
        Stay(self)
    }

    /// Whether no function of the node is on any stack of this thread, those of parked fibers
    /// included: all that could lead to the node's end are in a context, in a poll, at a lane, or
    /// have asked it to stay.
    fn is_unused(&self) -> bool {
        self.context.is_free()
            && !self.polling.get()
            && !self.runs_deferred.get()
            && self.staying.get() == 0
            && self.lanes.iter().all(|lane| lane.try_borrow_mut().is_ok())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Drops all properties, for the end of the rack.
    fn clear(&self) {
        for dead in self.properties.clear() {
            self.bury(Some(dead));
        }
    }
}

/// While it lives, its node does not go.
pub(crate) struct Stay<'a>(&'a Node);

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        self.0.staying.set(self.0.staying.get() - 1);
    }
}

/// Ends a thread's being a node when it is dropped.
///
/// # Panics
/// When it is dropped by code that the node runs, or while fibers wait inside the node: their
/// scheduler must go first. The thread goes on being that node then, for good.
pub struct EnteredNode(Rc<Node>);

/// What only the owner of a thread's node may do; code that runs *in* the node (closures,
/// callbacks, fibers) never has this.
impl EnteredNode {
    /// Makes progress: sends, serves, takes replies. True if anything happened. Call it from the
    /// worker, outside any fiber; called by what it runs itself, it does nothing.
    pub fn poll(&self) -> bool {
        self.0.poll()
    }

    /// Takes what the lanes have: bulk payloads, notifications, losses. True if there was anything.
    pub fn poll_lanes(&self) -> bool {
        !self.0.polling.get() && self.0.poll_lanes()
    }

    /// Ends every request under way and every one to come: the rack has ended. After this no fiber
    /// waits for a reply, so that fibers can be unwound.
    ///
    /// # Panics
    /// Inside delegated code or callbacks.
    pub fn close(&self) {
        self.0.check_idle("close");
        self.0.close();
    }

    /// Drops all properties, for the end of the rack.
    ///
    /// # Panics
    /// Inside delegated code or callbacks.
    pub fn clear(&self) {
        self.0.check_idle("clear");
        self.0.clear();
    }
}

impl std::ops::Deref for EnteredNode {
    type Target = Node;
    fn deref(&self) -> &Node {
        &self.0
    }
}

impl Drop for EnteredNode {
    fn drop(&mut self) {
        if self.0.is_unused() {
            return CURRENT.set(None);
        }
        // Somebody will go on using it.
        std::mem::forget(self.0.clone());
        assert!(
            std::thread::panicking(),
            "a thread cannot stop being a node inside delegated code or callbacks, nor while fibers \
             wait inside the node: let them end, or drop their scheduler first"
        );
    }
}

/// Runs `f` with the current thread's node, if it has one.
#[inline(always)]
pub(crate) fn with_node<R>(f: impl FnOnce(Option<&Node>) -> R) -> R {
    f(CURRENT.get())
}

/// The current thread's node, if it has one, for code on the common path of a request: unlike what
/// is in a closure, it is sure to be part of its caller. As with [`with_node`], the node does not
/// leave the function that asks: whatever it asks with must be its own argument.
#[inline(always)]
pub(crate) fn current(_asking: &impl Sized) -> Option<&Node> {
    CURRENT.get()
}

/// The place of whoever called, for messages.
pub(crate) type Place = &'static Location<'static>;
