//! [`ServiceQueue`]: what threads of this process leave for the service thread, and how they wake it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec};
use transport_api::HostId;

use crate::wire::WireError;

/// What the epoll calls the eventfd of the queue.
pub(crate) const QUEUE: u64 = u64::MAX;

/// Something for the service thread to do, beside polling the control plane.
pub(crate) enum Task {
    /// A data connection has come to an unexpected end.
    Ended { peer: HostId, broken: WireError },
    /// Close all connections without a goodbye, and end.
    Stop,
}

/// What threads of this process leave for the service thread.
pub(crate) struct ServiceQueue {
    /// Where the service thread waits.
    pub(crate) epoll: OwnedFd,
    waker: OwnedFd,
    tasks: Mutex<Vec<Task>>,
}

impl ServiceQueue {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker = eventfd()?;
        epoll::add(&epoll, &waker, EventData::new_u64(QUEUE), EventFlags::IN)?;
        Ok(Self { epoll, waker, tasks: Mutex::default() })
    }

    /// Leaves a task, and wakes the service thread.
    pub(crate) fn push(&self, task: Task) {
        self.tasks.lock().push(task);
        self.wake();
    }

    /// Takes all tasks.
    pub(crate) fn take(&self) -> Vec<Task> {
        std::mem::take(&mut self.tasks.lock())
    }

    /// Has the service thread poll the control plane.
    pub(crate) fn wake(&self) {
        notify(&self.waker);
    }

    /// For the service thread, which is awake.
    pub(crate) fn clear(&self) {
        clear(&self.waker);
    }
}

/// An eventfd, which wakes the thread that waits for it.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Makes an eventfd readable, until it is cleared.
pub(crate) fn notify(eventfd: &OwnedFd) {
    // It fails only after 2^64 calls without a `clear`.
    let _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
}

/// Makes an eventfd unreadable.
pub(crate) fn clear(eventfd: &OwnedFd) {
    // Fails if it was not readable, which does not matter.
    let _ = rustix::io::read(eventfd, &mut [0; 8]);
}

/// A time to wait, for the system.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}
