//! [`Notifications`]: where the owner of a segment takes its notifications: in a fiber, in a thread, by
//! a callback, or at a file descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::engine::attached;
use crate::error::{Label, SegmentError};
use crate::notification::Notification;
use crate::notification::queue::{Callback, Queue, Waiter};
use crate::shared::Shared;

/// How long a thread without fibers sleeps between looks, at most; its parker wakes for everything.
const LOOK: Duration = Duration::from_millis(100);

/// The notifications of a segment that this process exports. Clones take from the same queue.
#[derive(Clone)]
pub struct Notifications {
    pub(crate) shared: Arc<Shared>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) label: Label,
}

impl Notifications {
    /// The next notification, if one waits.
    ///
    /// # Errors
    /// [`SegmentError::Revoked`], once the segment is revoked and all were taken.
    pub fn try_next(&self) -> Result<Option<Notification>, SegmentError> {
        self.queue.take().map_err(|_| SegmentError::Revoked(self.label.clone()))
    }

    /// Waits for the next notification: parks the fiber, or blocks the thread. An attached thread
    /// without fibers makes progress meanwhile.
    ///
    /// # Errors
    /// As [`try_next`](Self::try_next).
    #[track_caller]
    pub fn wait(&self) -> Result<Notification, SegmentError> {
        loop {
            let waiter = || {
                Some(match fiber::unparker() {
                    Some(fiber) => Waiter::Fiber(fiber),
                    None => Waiter::Thread(thread::current()),
                })
            };
            let taken = self.queue.take_or_wait(waiter);
            let taken = taken.map_err(|_| SegmentError::Revoked(self.label.clone()))?;
            if let Some(notification) = taken {
                return Ok(notification);
            }
            if fiber::in_fiber() {
                let place = std::panic::Location::caller();
                fiber::check_may_wait("the wait for a notification", place);
                if !fiber::park_or_give_up() && !self.queue.is_ready() {
                    return Err(SegmentError::RackEnded);
                }
            } else if let Some(engine) = attached(&self.shared).filter(|e| e.has_no_fibers()) {
                while !self.queue.is_ready() {
                    engine.poll_or_park(LOOK, || self.queue.is_ready());
                }
            } else {
                thread::park();
            }
        }
    }

    /// Has `callback` called for each notification, on the runtime thread that takes it: it must not
    /// wait, and nothing else takes notifications then.
    pub fn for_each(&self, callback: impl FnMut(Notification) + Send + 'static) {
        let callback: Callback = Box::new(callback);
        self.queue.set_callback(callback);
    }

    /// A descriptor that is readable while a notification waits, or none will come, for `poll`,
    /// `epoll` and what stands on them. Take notifications with [`try_next`](Self::try_next) until
    /// there is none. Some runtime thread of the process, or [`Segments::serve`](crate::Segments::serve)'s, must poll.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        self.queue.file()
    }
}

/// # Panics
/// If the system has no descriptor left; [`Notifications::descriptor`] does not.
impl AsFd for Notifications {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor().expect("a descriptor for the notifications of a segment")
    }
}
