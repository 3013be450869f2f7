//! [`Engine`]: the lanes of an attached thread, as segments use them. It serves memory that is
//! not mapped, and operations that always need a lane: notifications, imports, revocations. This file
//! has waiting, lookups by request, and regions; `transfer.rs` writes and reads, `arrivals.rs` takes
//! what arrives.

use std::cell::{Cell, OnceCell, RefCell};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use primitive::SharedBytes;
use progress::{Import, Operation, Owner, Progress};
use transport_api::{
    HostId, LossReason, Namespace, OpError, Parker, RegionError, RegionKey, RemoteRegion,
};

use crate::clerk::requests::Requests;
use crate::engine::flow_control::FlowControl;
use crate::engine::known::Known;
use crate::error::{Label, SegmentError};
use crate::name::Name;
use crate::notification::callback;
use crate::shared::Shared;
use crate::table::Entry;

/// Rounds without progress before a thread without fibers sleeps.
const SPINS: u32 = 2_000;

/// How long an operation waits for a host that is not lost: for its answer to a lookup, or while it
/// changes the access of a segment or exports it again.
pub(crate) const PEER_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest sleep of an attached thread. Its parker wakes it for every event.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// The lanes of an attached thread, as segments use them.
pub(crate) struct Engine {
    pub(crate) shared: Arc<Shared>,
    pub(crate) thread: u32,
    pub(crate) progress: Rc<Progress>,
    /// Where a thread without fibers sleeps.
    parker: Option<RefCell<Box<dyn Parker>>>,
    pub(super) flow: FlowControl,
    /// The buffer of a write until it is flushed. Allocated by the first one: most threads never
    /// write to memory that is not mapped.
    pub(super) staging: OnceCell<SharedBytes>,
    /// The data of a notification without data.
    pub(super) nothing: SharedBytes,
    /// The segment that was notified last.
    pub(super) known: RefCell<Option<Known>>,
    /// Notifications that [`look_for`](Engine::look_for) takes before it polls again.
    pub(super) until_poll: Cell<u32>,
    pub(crate) requests: Requests,
}

impl Engine {
    /// The engine of the calling thread. `parker` is there if it has no fibers.
    pub(super) fn new(
        shared: Arc<Shared>,
        thread: u32,
        progress: Rc<Progress>,
        parker: Option<Box<dyn Parker>>,
    ) -> Rc<Engine> {
        let engine = Rc::new(Engine {
            shared,
            thread,
            flow: FlowControl::new(progress.hosts()),
            progress,
            parker: parker.map(RefCell::new),
            staging: OnceCell::new(),
            nothing: SharedBytes::heap(8).slice(0, 0),
            known: RefCell::new(None),
            until_poll: Cell::new(0),
            requests: Requests::default(),
        });
        let owner: Rc<dyn Owner> = engine.clone();
        engine.progress.add_owner(Namespace::SEGMENTS, Rc::downgrade(&owner));
        engine
    }

    // ---- waiting -------------------------------------------------------------------------------

    /// For a thread without fibers: makes progress, and gives the callbacks of notifications their
    /// turns; true if there was anything.
    pub(crate) fn poll(&self) -> bool {
        let had_turns = self.shared.take_turns(self.thread);
        self.progress.poll() || had_turns
    }

    /// Waits until `has_ended`: for a thread without fibers, which polls.
    fn poll_until(&self, parker: &RefCell<Box<dyn Parker>>, has_ended: impl Fn() -> bool) {
        let mut idle = 0;
        while !has_ended() {
            if self.poll() {
                idle = 0;
            } else if idle < SPINS {
                idle += 1;
                std::hint::spin_loop();
            } else {
                self.park(parker, LONGEST_SLEEP, &has_ended);
            }
        }
    }

    fn park(
        &self,
        parker: &RefCell<Box<dyn Parker>>,
        timeout: Duration,
        is_ready: impl Fn() -> bool,
    ) {
        parker.borrow_mut().park(timeout, &mut || is_ready() || self.poll());
    }

    /// For a thread without fibers: polls; if there is nothing, sleeps until there may be.
    pub(crate) fn poll_or_park(&self, timeout: Duration, is_ready: impl Fn() -> bool) {
        if let Some(parker) = &self.parker
            && !self.poll()
        {
            self.park(parker, timeout, is_ready);
        }
    }

    /// For what must not be begun if it cannot be waited for.
    ///
    /// # Panics
    /// Where the wait for `operation` would panic: in a callback, in a delegated closure, and outside
    /// of fibers on a thread that has some.
    #[track_caller]
    pub(crate) fn check_may_wait(&self, operation: &str) {
        let place = Location::caller();
        callback::check_may_wait(operation, place);
        if self.parker.is_none() {
            fiber::check_may_wait(operation, place);
            assert!(fiber::in_fiber(), "{operation} at {place} is outside a fiber");
        }
    }

    /// Whether the caller can wait at all: it is in a fiber, or this thread has none and polls.
    pub(crate) fn can_wait(&self) -> bool {
        self.has_no_fibers() || fiber::in_fiber()
    }

    /// Whether this thread has no fibers, and so waits by polling.
    pub(crate) fn has_no_fibers(&self) -> bool {
        self.parker.is_some()
    }

    /// Waits for an operation: parks the fiber, or polls where there are none.
    #[track_caller]
    pub(crate) fn wait(&self, operation: Operation) -> Result<u64, OpError> {
        if !operation.has_ended() {
            callback::check_may_wait("the wait for an operation", Location::caller());
        }
        if let Some(parker) = &self.parker {
            self.poll_until(parker, || operation.has_ended());
        }
        operation.wait()
    }

    /// Waits for an import, as [`wait`](Self::wait).
    #[track_caller]
    pub(crate) fn wait_import(&self, import: Import) -> Result<RemoteRegion, RegionError> {
        if !import.has_ended() {
            callback::check_may_wait("the wait for an import", Location::caller());
        }
        if let Some(parker) = &self.parker {
            self.poll_until(parker, || import.has_ended());
        }
        import.wait()
    }

    // ---- names ---------------------------------------------------------------------------------

    /// The error of operations on `host`, if it is lost. The clerk drops what it knows of a host when
    /// this thread notices the loss, so it must learn nothing from the host after that.
    pub(crate) fn loss_of(&self, host: HostId) -> Option<SegmentError> {
        self.progress.loss(host).map(|reason| SegmentError::PeerLost(host, reason))
    }

    /// Asks `thread` of `host` what that publishes under a name.
    ///
    /// # Errors
    /// [`SegmentError::PeerLost`]; [`SegmentError::Unanswered`], if it does not answer in time.
    #[track_caller]
    pub(crate) fn ask(
        &self,
        host: HostId,
        thread: u32,
        name: &Name,
    ) -> Result<Option<Entry>, SegmentError> {
        callback::check_may_wait("a lookup", Location::caller());
        // Its loss is reported once, and may have been.
        if let Some(lost) = self.loss_of(host) {
            return Err(lost);
        }
        let refused = |error| SegmentError::refused(Label { name: *name, host }, error);
        let deadline = Instant::now() + PEER_TIMEOUT;
        let asked = self.requests.ask(&self.progress, host, thread, name).map_err(refused)?;
        if let Some(parker) = &self.parker {
            let is_over = || Instant::now() >= deadline;
            self.poll_until(parker, || asked.has_ended() || is_over());
        }
        loop {
            if let Some(answer) = asked.take(fiber::current()) {
                let lost = LossReason::Connection("it has left".into());
                return answer.map_err(|host| SegmentError::PeerLost(host, lost));
            }
            // False also if the fiber is unwound, which gets no answer.
            let may_come = fiber::in_fiber() && fiber::park_until(deadline);
            if !may_come && !asked.has_ended() {
                return Err(SegmentError::Unanswered { name: *name, host });
            }
        }
    }

    /// Sleeps, while the thread runs other fibers or polls.
    #[track_caller]
    pub(crate) fn sleep(&self, duration: Duration) {
        callback::check_may_wait("a sleep", Location::caller());
        let Some(parker) = &self.parker else { return fiber::sleep(duration) };
        let end = Instant::now() + duration;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
            if !self.poll() {
                self.park(parker, left, || false);
            }
        }
    }

    // ---- regions -------------------------------------------------------------------------------

    /// Imports a region, waiting up to `timeout` for its export.
    #[track_caller]
    pub(crate) fn import(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> Result<RemoteRegion, RegionError> {
        self.wait_import(self.begin_import(owner, key, timeout)?)
    }

    /// Begins to import a region.
    pub(crate) fn begin_import(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> Result<Import, RegionError> {
        let transport = &self.shared.transport;
        self.progress.begin_import(owner, |token| {
            transport.begin_import(self.thread, owner, key, timeout, token)
        })
    }

    /// Revokes a region of this host, and waits until no operation touches its memory.
    ///
    /// # Errors
    /// [`RegionError::Unknown`]; [`RegionError::NotQuiet`]; [`RegionError::PeerLost`], of this host, if
    /// the rack ends first.
    #[track_caller]
    pub(crate) fn revoke(&self, key: RegionKey) -> Result<(), RegionError> {
        let (transport, local) = (&self.shared.transport, self.shared.local());
        let revocation = self
            .progress
            .begin_with(local, |token| transport.begin_revoke(self.thread, key, token))?;
        match self.wait(revocation) {
            Ok(_) => Ok(()),
            Err(OpError::PeerLost(host, reason)) => Err(RegionError::PeerLost(host, reason)),
            Err(OpError::NotQuiet { key, hosts }) => Err(RegionError::NotQuiet { key, hosts }),
            // No other error ends a revocation; what has failed has not waited.
            Err(_) => Err(RegionError::NotQuiet { key, hosts: Vec::new() }),
        }
    }
}
