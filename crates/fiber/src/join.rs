//! Waiting for the result of a fiber.
//!
//! Two handles, because the thread's own fibers are the common case and should not pay for
//! atomics: [`LocalJoinHandle`] shares a plain cell with its fiber and stays on the thread;
//! [`JoinHandle`] may go anywhere and can stand for work on another thread or host.

use std::cell::Cell;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use parking_lot::Mutex;
use primitive::sync::{AtomicBool, Ordering};

use crate::core::block::FiberId;
use crate::core::current;
use crate::error::JoinError;
use crate::ops;
use crate::wait::Wait;
use crate::waiter::Waiter;

/// What a fiber waits for that joins another.
const JOIN: &str = "the end of a fiber (join)";

// ---- on this thread ----------------------------------------------------------------------------

pub(crate) struct LocalPacket<T> {
    outcome: Cell<Option<Result<T, JoinError>>>,
    finished: Cell<bool>,
    waiter: Cell<Option<FiberId>>,
}

/// The fiber's end of a local packet: settles it, at the latest when dropped.
pub(crate) struct LocalPromise<T> {
    packet: Rc<LocalPacket<T>>,
}

impl<T> LocalPromise<T> {
    pub(crate) fn new() -> (LocalPromise<T>, Rc<LocalPacket<T>>) {
        let packet = Rc::new(LocalPacket {
            outcome: Cell::new(None),
            finished: Cell::new(false),
            waiter: Cell::new(None),
        });
        (LocalPromise { packet: Rc::clone(&packet) }, packet)
    }

    pub(crate) fn settle(self, outcome: Result<T, JoinError>) {
        self.put(outcome);
    }

    fn put(&self, outcome: Result<T, JoinError>) {
        self.packet.outcome.set(Some(outcome));
        self.packet.finished.set(true);
        if let Some(waiter) = self.packet.waiter.take() {
            ops::unpark(waiter);
        }
    }
}

impl<T> Drop for LocalPromise<T> {
    fn drop(&mut self) {
        if !self.packet.finished.get() {
            self.put(Err(JoinError::Cancelled));
        }
    }
}

/// Waits for a fiber of this thread. Dropping it detaches the fiber.
pub struct LocalJoinHandle<T> {
    packet: Rc<LocalPacket<T>>,
    id: FiberId,
}

impl<T> LocalJoinHandle<T> {
    pub(crate) fn new(packet: Rc<LocalPacket<T>>, id: FiberId) -> LocalJoinHandle<T> {
        LocalJoinHandle { packet, id }
    }

    /// The fiber's id.
    pub fn id(&self) -> FiberId {
        self.id
    }

    /// Whether the fiber has ended: `join` will not wait.
    ///
    /// This does not wait and lets no other fiber run. A loop that asks until the answer is yes
    /// must call [`yield_now`](crate::yield_now), or the fiber that it waits for never runs.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.packet.finished.get()
    }

    /// Parks the calling fiber until the fiber has ended, and returns its result.
    ///
    /// # Errors
    /// [`JoinError::Panicked`] with the payload of its panic, [`JoinError::Cancelled`] when its
    /// scheduler was dropped, or the caller's was and this is called by a destructor, and
    /// [`JoinError::WouldDeadlock`] when it has not ended and the caller is not a fiber, since then
    /// nothing would run it; the fiber is detached.
    ///
    /// # Panics
    /// Where it would wait and [`Config::may_wait`](crate::Config::may_wait) refuses.
    #[track_caller]
    pub fn join(self) -> Result<T, JoinError> {
        if !self.is_finished() {
            ops::check_caller_may_wait("`join`");
            let Some(id) = ops::current() else {
                return Err(JoinError::WouldDeadlock);
            };
            let mut wait = Wait::at(Location::caller());
            while !self.is_finished() {
                self.packet.waiter.set(Some(id));
                wait.explain(|| JOIN);
                if !ops::park_or_give_up() {
                    break;
                }
            }
        }
        self.packet.outcome.take().unwrap_or(Err(JoinError::Cancelled))
    }
}

impl<T> fmt::Debug for LocalJoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalJoinHandle")
            .field("id", &self.id)
            .field("finished", &self.is_finished())
            .finish()
    }
}

// ---- anywhere ----------------------------------------------------------------------------------

struct Packet<T> {
    finished: AtomicBool,
    /// The scheduler that runs the fiber, so that its own thread does not wait for itself.
    scheduler: Option<u64>,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    outcome: Option<Result<T, JoinError>>,
    waiter: Option<Waiter>,
}

/// The other end of a [`JoinHandle`]: settles it once, at the latest when dropped, which counts as
/// [`JoinError::Cancelled`].
///
/// Fibers started through a [`Remote`](crate::Remote) settle theirs by themselves. A promise made
/// by hand stands for work that ends in some other way, such as a reply of another host.
pub struct Promise<T> {
    packet: Arc<Packet<T>>,
}

impl<T> Promise<T> {
    /// A promise and the handle that waits for it.
    ///
    /// ```
    /// let (promise, handle) = gossamer_fiber::Promise::new();
    /// std::thread::spawn(move || promise.settle(Ok(42)));
    /// assert_eq!(handle.join()?, 42);
    /// # Ok::<(), gossamer_fiber::JoinError>(())
    /// ```
    pub fn new() -> (Promise<T>, JoinHandle<T>) {
        Promise::pair(None)
    }

    /// A promise that is kept by a fiber of that scheduler.
    pub(crate) fn at(scheduler: u64) -> (Promise<T>, JoinHandle<T>) {
        Promise::pair(Some(scheduler))
    }

    fn pair(scheduler: Option<u64>) -> (Promise<T>, JoinHandle<T>) {
        let packet = Arc::new(Packet {
            finished: AtomicBool::new(false),
            scheduler,
            inner: Mutex::new(Inner { outcome: None, waiter: None }),
        });
        (Promise { packet: Arc::clone(&packet) }, JoinHandle { packet })
    }

    /// Gives the handle its outcome and wakes the waiter.
    pub fn settle(self, outcome: Result<T, JoinError>) {
        self.put(outcome);
    }

    fn put(&self, outcome: Result<T, JoinError>) {
        let waiter = {
            let mut inner = self.packet.inner.lock();
            inner.outcome = Some(outcome);
            self.packet.finished.store(true, Ordering::Release);
            inner.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        // Only this end writes the flag, so relaxed reads the truth.
        if !self.packet.finished.load(Ordering::Relaxed) {
            self.put(Err(JoinError::Cancelled));
        }
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Promise")
    }
}

/// Waits for a fiber of any thread, or for other work that settles the [`Promise`]. Dropping it
/// detaches the fiber. It is also a future, for tasks of an async runtime.
pub struct JoinHandle<T> {
    packet: Arc<Packet<T>>,
}

impl<T> JoinHandle<T> {
    /// Whether the outcome is there: `join` will not wait.
    ///
    /// This does not wait and lets no other fiber run. A loop in a fiber that asks until the answer
    /// is yes must call [`yield_now`](crate::yield_now): a fiber of the same thread would never
    /// run, and what comes from other threads would never be looked at.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.packet.finished.load(Ordering::Acquire)
    }

    /// Waits for the outcome: parks the calling fiber, or blocks the calling thread when it is not
    /// running a fiber.
    ///
    /// # Errors
    /// As [`LocalJoinHandle::join`], and [`JoinError::NotStarted`].
    ///
    /// # Panics
    /// As [`LocalJoinHandle::join`].
    #[track_caller]
    pub fn join(self) -> Result<T, JoinError> {
        self.wait_until("`join`", None, Location::caller())?;
        self.outcome()
    }

    /// The outcome of a wait that has ended.
    pub(crate) fn outcome(self) -> Result<T, JoinError> {
        self.settled().unwrap_or(Err(JoinError::Cancelled))
    }

    /// What the promise was settled with; `None` if the wait was given up before.
    pub(crate) fn settled(self) -> Option<Result<T, JoinError>> {
        self.packet.inner.lock().outcome.take()
    }

    /// Waits, in the method `what` called at `place`, until the outcome is there, the deadline has
    /// passed, or the wait is given up.
    #[track_caller]
    pub(crate) fn wait_until(
        &self,
        what: &'static str,
        deadline: Option<Instant>,
        place: &'static Location<'static>,
    ) -> Result<(), JoinError> {
        if self.is_finished() {
            return Ok(());
        }
        ops::check_may_wait(what, place);
        match ops::unparker() {
            Some(unparker) => self.wait(|| Waiter::Fiber(unparker.clone()), deadline, place, true),
            None if self.runs_on_this_thread() => return Err(JoinError::WouldDeadlock),
            None => self.wait(Waiter::thread, deadline, place, false),
        }
        Ok(())
    }

    fn wait(
        &self,
        waiter: impl Fn() -> Waiter,
        deadline: Option<Instant>,
        place: &'static Location<'static>,
        in_fiber: bool,
    ) {
        let mut wait = Wait::at(place);
        loop {
            let waiter = waiter();
            let mut inner = self.packet.inner.lock();
            if inner.outcome.is_some() {
                return;
            }
            let replaced = inner.waiter.replace(waiter);
            drop(inner);
            // It may be a waker, whose destructor is the program's own code.
            drop(replaced);
            wait.explain(|| JOIN);
            if !Waiter::park(in_fiber, deadline) {
                return;
            }
        }
    }

    fn runs_on_this_thread(&self) -> bool {
        current::with_core(|core| self.packet.scheduler == Some(core.shared.scheduler))
            == Some(true)
    }
}

/// The outcome as a future, for [`select!`](crate::select) and for tasks of an async runtime. Dropping
/// it detaches the fiber, so wait for `&mut handle` if something else may come first.
///
/// It must not be polled again, or joined, when it has been ready.
impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    /// # Panics
    /// After it has returned the outcome.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = context.waker().clone();
        let mut inner = self.packet.inner.lock();
        if let Some(outcome) = inner.outcome.take() {
            return Poll::Ready(outcome);
        }
        assert!(!self.is_finished(), "a join handle was polled after its end");
        let replaced = inner.waiter.replace(Waiter::Task(waker));
        drop(inner);
        // It may be the program's own code.
        drop(replaced);
        Poll::Pending
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish()
    }
}
