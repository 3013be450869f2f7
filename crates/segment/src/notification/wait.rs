//! [`Notifications`]: where the owner of a segment takes its notifications: in a fiber, in a thread,
//! in a task of an async runtime, by a callback, or at a file descriptor.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::panic::Location;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use std::{fmt, io};

use fiber::Unparker;
use progress::Notification as Arrived;

use crate::engine::{Engine, LONGEST_SLEEP, Look, attached, is_attached, with_attached};
use crate::error::{Label, SegmentError};
use crate::notification::queue::{Queue, Taken, Turn, Waiter};
use crate::notification::{Next, Notification, callback};
use crate::shared::Shared;
use crate::table::Notify;

/// The notifications of a segment that this process exports, oldest first. Clones take from the same
/// queue; each notification goes to one of them.
///
/// | Program | Takes notifications by |
/// |---|---|
/// | fiber, thread | [`wait`](Self::wait), [`wait_timeout`](Self::wait_timeout) |
/// | task of an async runtime | [`next`](Self::next) |
/// | `poll`, `epoll` and libraries on top | [`descriptor`](Self::descriptor), then [`try_next`](Self::try_next) until it returns `None` |
/// | no thread of its own | [`set_callback`](Self::set_callback) |
///
/// The queue holds 1024. If more arrive, the oldest are dropped, and [`Notification::missed`] of the
/// next one counts them.
///
/// A notification arrives when a thread of this process polls that is attached to the rack: a runtime
/// thread of `gossamer`, the thread of [`Segments::serve`](crate::Segments::serve), or one that
/// [`Attached::poll`](crate::Attached::poll)s or waits here.
#[derive(Clone)]
pub struct Notifications {
    pub(crate) shared: Arc<Shared>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) label: Label,
    /// The thread at which they arrive.
    pub(crate) thread: u32,
    /// Which writes notify the owner.
    pub(crate) notify: Notify,
}

impl Notifications {
    /// The next notification, if one is queued. The thread that it arrives at, attached without fibers,
    /// polls first: to repeat this, with a [`std::hint::spin_loop`] in between, is the fastest way to
    /// wait for one.
    ///
    /// # Errors
    /// [`SegmentError::Revoked`], once the segment is revoked or dropped and all notifications were
    /// taken; [`SegmentError::RackEnded`], on a thread that is not attached, once the rack has ended
    /// and all were taken.
    pub fn try_next(&self) -> Result<Option<Notification>, SegmentError> {
        if self.queue.has_any() || callback::is_running() {
            return self.result(self.queue.take());
        }
        let look = |engine: &Engine| engine.look_for(&self.queue, self.thread);
        match with_attached(&self.shared, look) {
            Some(Look::Nothing) => Ok(None),
            Some(Look::Taken(notification)) => Ok(Some(notification)),
            Some(Look::Beside(arrived)) => self.look_further(Some(arrived)),
            Some(Look::MustPoll) => self.look_further(None),
            Some(Look::Elsewhere) | None => self.result(self.queue.take()),
        }
    }

    /// Goes on where a look could not tell, or has found the notification of another queue.
    #[cold]
    #[inline(never)]
    fn look_further(&self, beside: Option<Arrived>) -> Result<Option<Notification>, SegmentError> {
        if let Some(engine) = attached(&self.shared) {
            engine.look_further(beside);
        }
        self.result(self.queue.take())
    }

    /// Waits for the next notification: parks the fiber, or blocks the thread. An attached thread
    /// without fibers makes progress meanwhile.
    ///
    /// # Errors
    /// As [`try_next`](Self::try_next); [`SegmentError::NeverNotified`] at once if the segment is
    /// exported with [`Notify::Never`].
    ///
    /// # Panics
    /// Inside a callback of [`set_callback`](Self::set_callback), if no notification is queued.
    #[track_caller]
    pub fn wait(&self) -> Result<Notification, SegmentError> {
        self.wait_until(None, Location::caller())?.ok_or(SegmentError::RackEnded)
    }

    /// As [`wait`](Self::wait), for up to `timeout`: `None` if no notification has come by then.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Option<Notification>, SegmentError> {
        // A timeout beyond the range of the clock means no timeout.
        self.wait_until(Instant::now().checked_add(timeout), Location::caller())
    }

    /// The next notification as a future, for tasks of any async runtime.
    ///
    /// # Errors
    /// The future ends as [`wait`](Self::wait) does.
    pub fn next(&self) -> Next {
        Next::new(self.clone())
    }

    /// Calls `callback` for each notification, in order: immediately for those that are queued, and
    /// then on the runtime thread that each arrives at, inside its poll. It replaces an earlier
    /// callback. While a callback is set, the other ways of taking notifications get none.
    ///
    /// After 1024 notifications in a row, the thread goes on with its own work, and an attached thread
    /// calls the callback for the rest a little later.
    ///
    /// A callback may use segments, but must not wait: it may read and write mapped memory, write
    /// elsewhere, and drop the segment. An operation that would have to wait panics before anything is
    /// done, except a write or a notification with too much in flight, which fails with
    /// [`SegmentError::WouldWait`]. A callback that
    /// panics is not called again; notifications are queued then, as if there were no callback.
    /// Once the segment is revoked or dropped, no new call begins, but one may still be running.
    ///
    /// # Errors
    /// [`SegmentError::NeverNotified`] if the segment is exported with [`Notify::Never`].
    pub fn set_callback(
        &self,
        callback: impl FnMut(Notification) + Send + 'static,
    ) -> Result<(), SegmentError> {
        self.check_notified()?;
        if self.queue.set_callback(Box::new(callback)) == Turn::Next {
            self.shared.arrange_turn(self.queue.clone(), self.thread);
        }
        Ok(())
    }

    /// A descriptor that is readable while a notification is queued, or when no more will arrive, for
    /// `poll`, `epoll` and libraries on top, edge-triggered ones as well. Take notifications with
    /// [`try_next`](Self::try_next) until it returns `None`; do not read the descriptor.
    ///
    /// # Errors
    /// If the system has no descriptor left; [`InvalidInput`](io::ErrorKind::InvalidInput) if the segment
    /// is exported with [`Notify::Never`]: the descriptor would never be readable.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        self.check_notified()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.queue.file()
    }

    /// Whether the segment takes notifications, so that waiting for one makes sense.
    ///
    /// # Errors
    /// [`SegmentError::NeverNotified`].
    pub(super) fn check_notified(&self) -> Result<(), SegmentError> {
        match self.notify {
            Notify::Never => Err(SegmentError::NeverNotified(self.label.clone())),
            Notify::Always | Notify::Conditional => Ok(()),
        }
    }

    /// Converts what the queue returned to the result for the calling thread.
    pub(super) fn result(&self, taken: Taken) -> Result<Option<Notification>, SegmentError> {
        match taken {
            Err(_) => Err(SegmentError::Revoked { segment: self.label.clone(), generation: None }),
            // No thread polls any more, unless the caller does.
            Ok(None) if self.shared.has_ended() && !is_attached(&self.shared) => {
                Err(SegmentError::RackEnded)
            }
            Ok(taken) => Ok(taken),
        }
    }

    /// Waits up to `deadline`; `None` if that passes first, or if the fiber is unwound.
    #[track_caller]
    fn wait_until(
        &self,
        deadline: Option<Instant>,
        place: &'static Location<'static>,
    ) -> Result<Option<Notification>, SegmentError> {
        self.check_notified()?;
        if let Some(notification) = self.try_next()? {
            return Ok(Some(notification));
        }
        callback::check_may_wait("the wait for a notification", place);
        fiber::check_may_wait("the wait for a notification", place);
        let waker = self.waker();
        let mut waiter = Waiter::new(&self.queue);
        let mut wait = fiber::Wait::at(place);
        loop {
            if let Some(notification) = self.result(waiter.take_or_wait(&waker))? {
                return Ok(Some(notification));
            }
            wait.explain(|| format!("a notification of {}", self.label));
            if !self.sleep(deadline) {
                return self.try_next();
            }
        }
    }

    /// Sleeps until the waker of this thread or fiber is woken, or returns early; false if the wait
    /// is over.
    fn sleep(&self, deadline: Option<Instant>) -> bool {
        if fiber::in_fiber() {
            return match deadline {
                Some(deadline) => fiber::park_until(deadline),
                None => fiber::park_or_give_up(),
            };
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return false;
        }
        if let Some(engine) = attached(&self.shared).filter(|engine| engine.has_no_fibers()) {
            let longest = left.map_or(LONGEST_SLEEP, |left| left.min(LONGEST_SLEEP));
            engine.poll_or_park(longest, || self.queue.is_ready());
        } else {
            match left {
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        }
        true
    }

    /// The waker that ends [`sleep`](Self::sleep) of the calling fiber or thread.
    fn waker(&self) -> Waker {
        let sleeper = match fiber::unparker() {
            Some(fiber) => Sleeper::Fiber(fiber),
            None => match attached(&self.shared).filter(|engine| engine.has_no_fibers()) {
                Some(engine) => Sleeper::Attached(self.shared.clone(), engine.thread),
                None => Sleeper::Thread(thread::current()),
            },
        };
        Waker::from(Arc::new(sleeper))
    }
}

/// A fiber or a thread that waits.
enum Sleeper {
    Fiber(Unparker),
    /// A thread that is attached under this number and has no fibers: it sleeps at its parker.
    Attached(Arc<Shared>, u32),
    Thread(Thread),
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match &**self {
            Sleeper::Fiber(fiber) => fiber.unpark(),
            Sleeper::Attached(shared, thread) => shared.transport.unpark(*thread),
            Sleeper::Thread(thread) => thread.unpark(),
        }
    }
}

/// # Panics
/// Where [`Notifications::descriptor`] returns an error.
impl AsFd for Notifications {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor().expect("a descriptor for the notifications of a segment")
    }
}

/// As [`AsFd`], which `tokio::io::unix::AsyncFd` does not take.
///
/// # Panics
/// As its `as_fd`.
impl AsRawFd for Notifications {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Notifications(of {})", self.label)
    }
}
