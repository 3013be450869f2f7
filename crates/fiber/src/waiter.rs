//! [`Waiter`]: a fiber, a thread outside fibers, or a task of an async runtime, that any thread may
//! wake.

use std::task::Waker;
use std::thread::{self, Thread};
use std::time::Instant;

use crate::ops;
use crate::unparker::Unparker;

/// A fiber, a thread or a task that waits.
pub(crate) enum Waiter {
    Fiber(Unparker),
    Thread(Thread),
    Task(Waker),
}

impl Waiter {
    /// The current thread, whether or not it runs a fiber.
    pub(crate) fn thread() -> Waiter {
        Waiter::Thread(thread::current())
    }

    /// Waits until [`wake`](Self::wake), or returns early; false if the wait is given up, as
    /// [`park_or_give_up`](crate::park_or_give_up) does, or if `deadline` has passed. The caller is the
    /// fiber or thread that waits.
    pub(crate) fn park(fiber: bool, deadline: Option<Instant>) -> bool {
        match deadline {
            Some(deadline) if fiber => return ops::park_until_then(deadline),
            None if fiber => return ops::park_or_give_up(),
            Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                Some(left) => thread::park_timeout(left),
                None => return false,
            },
            None => thread::park(),
        }
        true
    }

    /// Ends the wait.
    pub(crate) fn wake(self) {
        match self {
            Waiter::Fiber(unparker) => unparker.unpark(),
            Waiter::Thread(thread) => thread.unpark(),
            Waiter::Task(waker) => waker.wake(),
        }
    }
}
