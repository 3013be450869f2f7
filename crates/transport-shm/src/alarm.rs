//! [`Alarm`]: how a thread is woken that waits for more than memory brings.
//!
//! A thread of a rack with hosts on other machines sleeps where its connections are, on an epoll,
//! and no futex wakes it there. So each of its neighbours holds a copy of an eventfd of the thread,
//! and rings that instead. The protocol of the doorbell is the same: the thread announces its sleep,
//! looks once more, and only then sleeps; a waker who finds the announcement owes the ring.

use crate::host::Host;
use rustix::event::{EventfdFlags, eventfd};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

/// An eventfd for each of so many threads.
pub(crate) fn make(threads: u32) -> io::Result<Vec<OwnedFd>> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    (0..threads).map(|_| Ok(eventfd(0, flags)?)).collect()
}

/// Rings an eventfd.
pub(crate) fn ring(alarm: &OwnedFd) {
    // It fails only if it has been rung 2^64 times.
    let _ = rustix::io::write(alarm, &1u64.to_ne_bytes());
}

/// What one thread needs to be woken by its neighbours wherever it sleeps: an eventfd that becomes
/// readable anew with each ring. It is never read, so it is to be waited for edge-triggered.
///
/// ```text
///   alarm.announce();
///   if !ready() && !alarm.has_news() {
///       // wait for the eventfd, and for whatever else there is
///   }
///   alarm.cancel();
/// ```
pub struct Alarm {
    host: Arc<Host>,
    thread: u32,
}

impl Alarm {
    /// The alarm of a thread that is not woken by futex.
    pub(crate) fn new(host: Arc<Host>, thread: u32) -> Self {
        Self { host, thread }
    }

    /// Says that the thread is about to sleep. It must look for work once more afterwards, and
    /// [`cancel`](Self::cancel) when it is awake.
    pub fn announce(&self) {
        self.host.own().doorbell(self.thread).announce();
    }

    /// Whether a lane that the thread holds has something to report: it must not sleep over that.
    pub fn has_news(&self) -> bool {
        let listening = &self.host.seats[self.thread as usize].listening;
        self.host.own().asked_any(self.thread, listening)
    }

    /// Says that the thread is awake.
    pub fn cancel(&self) {
        self.host.own().doorbell(self.thread).cancel();
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.host.own().alarm(self.thread).expect("a thread that is woken by an alarm").as_fd()
    }
}
