//! [`Queue`]: the notifications of one segment, from the runtime thread that they arrive at to
//! whoever takes them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::task::Waker;
use std::thread::Thread;

use fiber::Unparker;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::EventfdFlags;

use crate::notification::Notification;

/// Notifications that wait to be taken, at most; further ones are counted as missed.
const CAPACITY: usize = 1024;

/// Something that waits for a notification.
pub(crate) enum Waiter {
    Fiber(Unparker),
    Thread(Thread),
    Task(Waker),
}

impl Waiter {
    fn wake(self) {
        match self {
            Waiter::Fiber(fiber) => fiber.unpark(),
            Waiter::Thread(thread) => thread.unpark(),
            Waiter::Task(task) => task.wake(),
        }
    }
}

/// What is called for each notification, on the runtime thread that it arrives at.
pub(crate) type Callback = Box<dyn FnMut(Notification) + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<Notification>,
    /// Dropped since the last one that was kept.
    missed: u64,
    waiters: Vec<Waiter>,
    is_closed: bool,
}

/// The notifications of one segment.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    callback: Mutex<Option<Callback>>,
    /// Readable while there are notifications, or none will come.
    file: OnceLock<OwnedFd>,
}

impl Queue {
    /// A notification has arrived. Does not wait.
    pub(crate) fn push(&self, notification: Notification) {
        {
            // What the callback does may notify again, but not from here: this thread is polling.
            let mut callback = self.callback.lock();
            if let Some(callback) = &mut *callback {
                return callback(notification);
            }
        }
        let mut state = self.state.lock();
        if state.waiting.len() >= CAPACITY {
            state.missed += 1;
            return;
        }
        let missed = std::mem::take(&mut state.missed);
        state.waiting.push_back(Notification { missed, ..notification });
        self.wake(state);
    }

    /// No notification comes any more.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        self.wake(state);
        drop(self.callback.lock().take());
    }

    /// Wakes all that wait, who look again.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        if let Some(file) = self.file.get() {
            // It fails only after 2^64 of them.
            let _ = rustix::io::write(file, &1u64.to_ne_bytes());
        }
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        waiters.into_iter().for_each(Waiter::wake);
    }

    /// Takes the next notification; `Err` if there is none and none will come.
    pub(crate) fn take(&self) -> Result<Option<Notification>, Closed> {
        self.take_or_wait(|| None)
    }

    /// Takes the next notification; if there is none, `waiter` is woken when that changes.
    pub(crate) fn take_or_wait(
        &self,
        waiter: impl FnOnce() -> Option<Waiter>,
    ) -> Result<Option<Notification>, Closed> {
        let mut state = self.state.lock();
        if let Some(notification) = state.waiting.pop_front() {
            if state.waiting.is_empty() && !state.is_closed {
                self.clear();
            }
            return Ok(Some(notification));
        }
        if state.is_closed {
            return Err(Closed);
        }
        state.waiters.extend(waiter());
        Ok(None)
    }

    /// Whether a notification waits, or none will come.
    pub(crate) fn is_ready(&self) -> bool {
        let state = self.state.lock();
        state.is_closed || !state.waiting.is_empty()
    }

    /// Has `callback` called for each notification from now on, and for those that wait.
    pub(crate) fn set_callback(&self, mut callback: Callback) {
        let mut place = self.callback.lock();
        let waiting = std::mem::take(&mut self.state.lock().waiting);
        waiting.into_iter().for_each(&mut callback);
        *place = Some(callback);
    }

    fn clear(&self) {
        if let Some(file) = self.file.get() {
            // It fails if it was not readable, which does not matter.
            let _ = rustix::io::read(file, &mut [0; 8]);
        }
    }

    /// A descriptor that is readable while a notification waits, or none will come.
    pub(crate) fn file(&self) -> io::Result<BorrowedFd<'_>> {
        // With the lock, so that nothing is pushed between the look and the first write.
        let state = self.state.lock();
        if self.file.get().is_none() {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let value = u32::from(state.is_closed || !state.waiting.is_empty());
            let _ = self.file.set(rustix::event::eventfd(value, flags)?);
        }
        Ok(self.file.get().expect("it was set").as_fd())
    }
}

/// No notification will come any more.
#[derive(Debug)]
pub(crate) struct Closed;
