//! [`Engine`]: the lanes of an attached thread, as segments use them. It serves memory that is
//! not mapped, and operations that always need a lane: notifications, imports, revocations.

use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use primitive::SharedBytes;
use progress::{Import, Notification as Arrived, Operation, Owner, Progress, Violation};
use transport_api::{
    HostId, LossReason, Namespace, OpError, Parker, PeerEvent, RegionError, RegionKey,
    RemoteRegion, Rights, Tag, ThreadId,
};

use crate::clerk::requests::Requests;
use crate::engine::windows::{PIECE, Windows};
use crate::error::{Label, SegmentError};
use crate::name::Name;
use crate::notification::{Notification, callback};
use crate::shared::{Exported, Shared};
use crate::table::{Entry, Notify};

/// The most reads of one block in flight.
const READS: usize = 8;

/// Rounds without progress before a thread without fibers sleeps.
const SPINS: u32 = 2_000;

/// The timeout of a lookup that asks a host.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// The longest sleep of a waiting thread without fibers. Its parker wakes it for every event.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// The lanes of an attached thread, as segments use them.
pub(crate) struct Engine {
    pub(crate) shared: Arc<Shared>,
    pub(crate) thread: u32,
    pub(crate) progress: Rc<Progress>,
    /// Where a thread without fibers sleeps.
    parker: Option<RefCell<Box<dyn Parker>>>,
    pub(super) windows: Windows,
    /// The buffer of a write until it is flushed. Allocated by the first one: most threads never
    /// write to memory that is not mapped.
    staging: OnceCell<SharedBytes>,
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
            windows: Windows::new(progress.hosts()),
            progress,
            parker: parker.map(RefCell::new),
            staging: OnceCell::new(),
            requests: Requests::default(),
        });
        let owner: Rc<dyn Owner> = engine.clone();
        engine.progress.add_owner(Namespace::SEGMENTS, Rc::downgrade(&owner));
        engine
    }

    // ---- waiting -------------------------------------------------------------------------------

    /// Waits until `has_ended`: for a thread without fibers, which polls.
    fn poll_until(&self, parker: &RefCell<Box<dyn Parker>>, has_ended: impl Fn() -> bool) {
        let mut idle = 0;
        while !has_ended() {
            if self.progress.poll() {
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
        parker.borrow_mut().park(timeout, &mut || is_ready() || self.progress.poll());
    }

    /// For a thread without fibers: polls; if there is nothing, sleeps until there may be.
    pub(crate) fn poll_or_park(&self, timeout: Duration, is_ready: impl Fn() -> bool) {
        if let Some(parker) = &self.parker
            && !self.progress.poll()
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

    /// `len` bytes of the staging memory.
    pub(super) fn staging(&self, len: usize) -> SharedBytes {
        self.staging.get_or_init(|| SharedBytes::heap(PIECE)).slice(0, len)
    }

    // ---- writing -------------------------------------------------------------------------------

    /// Writes at most [`PIECE`] bytes, which are in flight when this returns; `notify` is the
    /// thread of the owner to notify.
    #[track_caller]
    pub(crate) fn write(
        &self,
        to: &RemoteRegion,
        at: usize,
        bytes: &[u8],
        notify: Option<u32>,
    ) -> Result<(), OpError> {
        let host = to.owner();
        self.reserve(to, bytes.len(), notify.is_some())?;
        let staging = self.staging(bytes.len());
        staging.write_from(0, bytes);
        let mut lane = self.progress.lane(host).borrow_mut();
        let started = match notify {
            None => lane.write(to, at, &staging),
            Some(thread) => lane.write_notify(to, at, &staging, thread, 0),
        };
        if started.is_err() {
            self.windows.take_back(host, bytes.len());
        }
        started?;
        // The staging memory may change once this has returned.
        lane.flush()
    }

    /// Writes any number of bytes.
    #[track_caller]
    pub(crate) fn write_block(
        &self,
        to: &RemoteRegion,
        at: usize,
        bytes: &[u8],
    ) -> Result<(), OpError> {
        for (number, piece) in bytes.chunks(PIECE).enumerate() {
            self.write(to, at + number * PIECE, piece, None)?;
        }
        Ok(())
    }

    /// Notifies `thread` of the owner that `len` bytes at `at` have changed, after every earlier
    /// operation of this thread on the region.
    #[track_caller]
    pub(crate) fn announce(
        &self,
        on: &RemoteRegion,
        at: usize,
        len: usize,
        thread: u32,
    ) -> Result<(), OpError> {
        let nothing = self.staging(0);
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.reserve(on, 0, true)?;
        let mut lane = self.progress.lane(on.owner()).borrow_mut();
        let started = lane.write_notify(on, at, &nothing, thread, len);
        if started.is_err() {
            self.windows.take_back(on.owner(), 0);
        }
        started?;
        lane.flush()
    }

    pub(super) fn begin_fence(&self, host: HostId) -> Result<Operation, OpError> {
        self.progress.begin(host, |lane, token| lane.fence(token))
    }

    /// Waits until every earlier operation of this thread on segments of `host` has taken effect, and
    /// returns the first that was refused.
    #[track_caller]
    pub(crate) fn fence(&self, host: HostId) -> Result<(), OpError> {
        self.windows.fence(host, || self.begin_fence(host), |fence| self.wait(fence))
    }

    /// A region of `host` was imported again, because the owner had refused an operation that is
    /// repeated. The next fence would report that refusal. Unless a write is in flight, which might
    /// have been refused as well, this consumes that report.
    #[track_caller]
    pub(crate) fn forget_refusals(&self, host: HostId) {
        if self.windows.is_clean(host) {
            // Only refusals, and the loss of the host, which every operation reports.
            let _ = self.fence(host);
        }
    }

    // ---- reading -------------------------------------------------------------------------------

    /// Begins to read at most [`PIECE`] bytes. The lane keeps the memory until the read has ended.
    pub(crate) fn begin_read(
        &self,
        from: &RemoteRegion,
        at: usize,
        len: usize,
    ) -> Result<(Operation, SharedBytes), OpError> {
        let into = SharedBytes::heap(len.max(8)).slice(0, len);
        let read =
            self.progress.begin(from.owner(), |lane, token| lane.read(from, at, &into, token))?;
        Ok((read, into))
    }

    /// Reads any number of bytes into `out`, several pieces at a time.
    #[track_caller]
    pub(crate) fn read_block(
        &self,
        from: &RemoteRegion,
        at: usize,
        out: &mut [u8],
    ) -> Result<(), OpError> {
        let mut under_way = VecDeque::with_capacity(READS);
        let mut pieces = out.chunks_mut(PIECE).enumerate();
        loop {
            while under_way.len() < READS
                && let Some((number, piece)) = pieces.next()
            {
                let (read, bytes) = self.begin_read(from, at + number * PIECE, piece.len())?;
                under_way.push_back((read, bytes, piece));
            }
            let Some((read, bytes, piece)) = under_way.pop_front() else { return Ok(()) };
            self.wait(read)?;
            bytes.read_into(0, piece);
        }
    }

    // ---- atomics -------------------------------------------------------------------------------

    /// If the word at `at` is `expected`, makes it `new`; the old value.
    #[track_caller]
    pub(crate) fn compare_swap(
        &self,
        on: &RemoteRegion,
        at: usize,
        (expected, new): (u64, u64),
    ) -> Result<u64, OpError> {
        let swap = self
            .progress
            .begin(on.owner(), |lane, token| lane.compare_swap(on, at, expected, new, token))?;
        self.wait(swap)
    }

    /// Adds to the word at `at`; the old value.
    #[track_caller]
    pub(crate) fn fetch_add(
        &self,
        on: &RemoteRegion,
        at: usize,
        addend: u64,
    ) -> Result<u64, OpError> {
        let add =
            self.progress.begin(on.owner(), |lane, token| lane.fetch_add(on, at, addend, token))?;
        self.wait(add)
    }

    /// The error of operations on `host`, if it is lost. The clerk drops what it knows of a host when
    /// this thread notices the loss, so it must learn nothing from the host after that.
    pub(crate) fn loss_of(&self, host: HostId) -> Option<SegmentError> {
        self.progress.loss(host).map(|reason| SegmentError::PeerLost(host, reason))
    }

    // ---- names ---------------------------------------------------------------------------------

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
        let deadline = Instant::now() + ANSWER;
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
            // False also if the fiber is unwound: then nothing comes any more.
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
            if !self.progress.poll() {
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

impl Owner for Engine {
    fn bulk(&self, from: ThreadId, tag: Tag, payload: Vec<u8>) -> Result<(), Violation> {
        self.requests.arrived(&self.shared.clerk, &self.progress, from, tag, &payload)
    }

    fn notified(&self, arrived: Arrived) -> Result<(), Violation> {
        let Arrived { from, key, at, len, value } = arrived;
        let Some((exported, longest)) = self.shared.exports.lock().find(key) else {
            return Err(Violation(format!(
                "a notification of segment {key:?}, which was never exported"
            )));
        };
        // What has no bytes of its own tells of an earlier operation.
        let len = if len == 0 { u64::from(value) } else { len };
        let is_inside = |total: usize| len <= total as u64 && at <= total as u64 - len;
        if !is_inside(longest) {
            return Err(Violation(format!(
                "a notification of bytes {at}..{} of segment {key:?}, which never had more than \
                 {longest}",
                at.saturating_add(len)
            )));
        }
        // It may be of an earlier segment of the same name: of one that has been revoked meanwhile,
        // was longer, notified, or could be written by that host. The sender could not know.
        let is_wanted = |exported: &Arc<Exported>| {
            is_inside(exported.len)
                && exported.notify != Notify::Never
                && exported.access.of(from.host).allow(Rights::WRITE)
        };
        if let Some(exported) = exported.filter(is_wanted) {
            let (offset, len) = (at as usize, len as usize);
            exported.queue.push(Notification { from: from.host, offset, len, missed: 0 });
        }
        Ok(())
    }

    fn refused(&self, host: HostId, error: &OpError) {
        if let OpError::Revoked(key) = error {
            self.shared.doubt((host, *key));
        }
    }

    fn peer_gone(&self, event: &PeerEvent) {
        let (PeerEvent::Lost(host, _) | PeerEvent::Left(host)) = event;
        self.shared.clerk.forget_host(*host);
        self.requests.peer_gone(*host);
    }
}
