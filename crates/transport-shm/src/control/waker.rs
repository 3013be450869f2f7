//! [`Waker`]: how threads wake the service thread, and end it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes the service thread of a host.
pub(crate) struct Waker {
    wakeup: OwnedFd,
    is_stopped: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { wakeup, is_stopped: AtomicBool::new(false) })
    }

    /// Has the service thread look at everything again.
    pub(crate) fn wake(&self) {
        // It fails only after 2^64 wakes that the service thread has not seen.
        let _ = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
    }

    /// Ends the service thread.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.wake();
    }

    /// For the service thread: takes the wakes so far; false if it is to end.
    pub(crate) fn take(&self) -> bool {
        let mut wakes = [0; 8];
        // Fails without a wake.
        let _ = rustix::io::read(&self.wakeup, &mut wakes);
        !self.is_stopped.load(Ordering::Acquire)
    }
}

impl AsFd for Waker {
    /// Readable when there are wakes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}
