//! [`Queue`]: the notifications of one segment, from the runtime thread that they arrive at to the
//! code that takes them.
//!
//! ```text
//!   runtime thread             takers
//!   push --> waiting --------> Waiter::take_or_wait: a fiber, a thread or a task, each with a waker
//!        \           \-------> take, once the file is readable
//!         \----------------->  callback, on the runtime thread
//! ```
//!
//! 1. Everything is decided under one lock. Wakers and callbacks are called, and dropped, without
//!    it: they may come back to this queue, or drop the segment.
//! 2. A push wakes every waiter. Each looks again and, if another one was first, waits again. So a
//!    waiter that gave up between its wake and its look cannot swallow the wake of another.
//! 3. A waiter is in the list only while it waits: dropping it takes it out.
//! 4. A callback takes at most as many in one turn as the queue holds, so that a peer that keeps
//!    notifying keeps no thread; an attached thread then gives it the next turn. Turns do not overlap.
//! 5. If the queue is full, the oldest notification is dropped, and the next one that is taken counts it.
//!    So the last change of a segment is always reported, and a gap is reported with the first
//!    notification behind it.
//! 6. A notification that arrives while its own thread polls to take it goes past an empty queue
//!    (`Engine::look_for`). All notifications of a segment arrive at one thread, so none is overtaken.
//!
//! `tests/loom_queue.rs` checks this file for lost wakes.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock, PoisonError};
use std::task::Waker;

use primitive::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use rustix::event::EventfdFlags;

use crate::notification::Notification;
use crate::notification::callback::{self, Callback};

/// The most notifications in the queue.
pub(crate) const CAPACITY: usize = if cfg!(loom) { 2 } else { 1024 };

#[derive(Default)]
struct State {
    waiting: VecDeque<Notification>,
    /// By the number of the waiter.
    waiters: BTreeMap<u64, Waker>,
    /// The number of waiters so far.
    numbers: u64,
    /// `None` also while it runs.
    callback: Option<Callback>,
    is_calling: bool,
    /// The callback has had its turn; [`Queue::next_turn`] will be called.
    has_next_turn: bool,
    /// No more notifications will arrive.
    is_closed: bool,
    /// The rack has ended, which takers see elsewhere.
    has_ended: bool,
}

impl State {
    fn keep(&mut self, notification: Notification) {
        self.waiting.push_back(notification);
        if self.waiting.len() > CAPACITY
            && let Some(dropped) = self.waiting.pop_front()
            && let Some(next) = self.waiting.front_mut()
        {
            next.missed += dropped.missed + 1;
        }
    }
}

/// The notifications of one segment.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Whether a notification or the end can be taken, so that polling an empty queue takes no lock.
    /// Written with the lock.
    has_any: AtomicBool,
    /// Whether a callback was ever set. Written with the lock.
    had_callback: AtomicBool,
    /// Readable while notifications are queued, or when no more will arrive.
    file: OnceLock<OwnedFd>,
}

/// No more notifications will arrive, and all were taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// Whether a callback has taken what it may take in one turn.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// No notification is left, or there is no callback.
    Over,
    /// Notifications wait: arrange that [`Queue::next_turn`] is called later, on an attached thread.
    Next,
}

/// The next notification, if there is one.
pub(crate) type Taken = Result<Option<Notification>, Closed>;

/// The producer side.
impl Queue {
    pub(crate) fn new() -> Self {
        let [has_any, had_callback] = [(); 2].map(|()| AtomicBool::new(false));
        Self { state: Mutex::default(), has_any, had_callback, file: OnceLock::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A notification has arrived. Does not wait.
    pub(crate) fn push(&self, notification: Notification) -> Turn {
        let mut state = self.lock();
        if state.is_closed {
            return Turn::Over;
        }
        state.keep(notification);
        self.has_any.store(true, Ordering::Release);
        if state.is_calling || state.has_next_turn {
            // The turn that goes on takes this one, too, or the next one.
            return Turn::Over;
        }
        if state.callback.is_some() {
            return self.call(state);
        }
        self.wake(state);
        Turn::Over
    }

    /// Closes the queue: no more notifications are accepted, and no more callbacks are called.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        self.has_any.store(true, Ordering::Release);
        let callback = state.callback.take();
        self.wake(state);
        callback::discard(callback);
    }

    /// The rack has ended: all waiters look again, and the file stays readable.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        self.wake(state);
    }

    /// Wakes all waiters, which look again.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        if let Some(file) = self.file.get() {
            // It fails only after 2^64 of them.
            let _ = rustix::io::write(file, &1u64.to_ne_bytes());
        }
        if state.waiters.is_empty() {
            return;
        }
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        waiters.into_values().for_each(Waker::wake);
    }

    /// Another turn of the callback.
    pub(crate) fn next_turn(&self) -> Turn {
        let mut state = self.lock();
        state.has_next_turn = false;
        self.call(state)
    }

    /// The next turn will not come: the next push calls the callback itself.
    pub(crate) fn lose_turn(&self) {
        self.lock().has_next_turn = false;
    }

    /// Calls the callback for each queued notification, but for no more than the queue holds: a peer
    /// that keeps notifying must not keep this thread.
    fn call<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Turn {
        state.is_calling = true;
        let mut left = CAPACITY;
        while left > 0
            && !state.waiting.is_empty()
            && let Some(mut callback) = state.callback.take()
            && let Some(notification) = state.waiting.pop_front()
        {
            drop(state);
            left -= 1;
            let is_fine = callback::call(&mut callback, notification);
            state = self.lock();
            // It may have set another callback, or dropped the segment.
            if is_fine && !state.is_closed && state.callback.is_none() {
                state.callback = Some(callback);
            } else {
                drop(state);
                callback::discard(Some(callback));
                state = self.lock();
            }
        }
        state.is_calling = false;
        self.note_taken(&state);
        if state.waiting.is_empty() {
            return Turn::Over;
        }
        if state.callback.is_some() {
            state.has_next_turn = true;
            return Turn::Next;
        }
        // The callback has panicked or is gone: others may take them.
        self.wake(state);
        Turn::Over
    }
}

/// The consumer side.
impl Queue {
    fn take_from(&self, state: &mut State) -> Taken {
        let Some(notification) = state.waiting.pop_front() else {
            self.has_any.store(state.is_closed, Ordering::Release);
            return if state.is_closed { Err(Closed) } else { Ok(None) };
        };
        self.note_taken(state);
        Ok(Some(notification))
    }

    /// Notifications were taken: if none is left, the file is not readable any more.
    fn note_taken(&self, state: &State) {
        self.has_any.store(state.is_closed || !state.waiting.is_empty(), Ordering::Release);
        let is_quiet = state.waiting.is_empty() && !state.is_closed && !state.has_ended;
        if is_quiet && let Some(file) = self.file.get() {
            // It fails if the file was not readable, which does not matter.
            let _ = rustix::io::read(file, &mut [0; 8]);
        }
    }

    /// Whether a notification or the end can be taken.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Takes the next notification.
    pub(crate) fn take(&self) -> Taken {
        if !self.has_any() {
            return Ok(None);
        }
        self.take_from(&mut self.lock())
    }

    /// Whether a callback was ever set. If not, and the queue is empty, a notification need not enter it
    /// where the thread that it arrives at is the one that takes it.
    #[inline]
    pub(crate) fn had_callback(&self) -> bool {
        self.had_callback.load(Ordering::Acquire)
    }

    /// Whether a notification is queued, or no more will arrive.
    pub(crate) fn is_ready(&self) -> bool {
        let state = self.lock();
        state.is_closed || !state.waiting.is_empty()
    }

    /// Calls `callback` for each notification from now on; this thread calls it for those that are
    /// queued, in one turn. It replaces an earlier one.
    pub(crate) fn set_callback(&self, callback: Callback) -> Turn {
        let mut state = self.lock();
        if state.is_closed {
            drop(state);
            callback::discard(Some(callback));
            return Turn::Over;
        }
        self.had_callback.store(true, Ordering::Release);
        let before = state.callback.replace(callback);
        let turn = if state.is_calling || state.has_next_turn {
            drop(state);
            Turn::Over
        } else {
            self.call(state)
        };
        callback::discard(before);
        turn
    }

    /// A descriptor that is readable while a notification is queued, or when no more will arrive.
    pub(crate) fn file(&self) -> io::Result<BorrowedFd<'_>> {
        // With the lock, so that nothing is pushed between the look and the first write.
        let state = self.lock();
        let file = match self.file.get() {
            Some(file) => file,
            None => {
                let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                let is_ready = state.is_closed || state.has_ended || !state.waiting.is_empty();
                let file = rustix::event::eventfd(u32::from(is_ready), flags)?;
                self.file.get_or_init(|| file)
            }
        };
        Ok(file.as_fd())
    }

    /// Notifications that wait.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Waiters in the list.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn waiters(&self) -> usize {
        self.lock().waiters.len()
    }
}

/// A waiter for notifications. Dropping it removes it from the list.
pub(crate) struct Waiter {
    queue: Arc<Queue>,
    /// Its number, once it has waited.
    number: Option<u64>,
}

impl Waiter {
    pub(crate) fn new(queue: &Arc<Queue>) -> Self {
        Self { queue: queue.clone(), number: None }
    }

    /// Takes the next notification; if there is none, `waker` is woken once when that changes.
    pub(crate) fn take_or_wait(&mut self, waker: &Waker) -> Taken {
        // Cloned without the lock: it may be the program's own code.
        let waker = waker.clone();
        let mut state = self.queue.lock();
        let taken = self.queue.take_from(&mut state);
        let replaced = if taken == Ok(None) {
            let number = *self.number.get_or_insert_with(|| {
                state.numbers += 1;
                state.numbers
            });
            state.waiters.insert(number, waker)
        } else {
            Some(waker)
        };
        drop(state);
        // Dropping it may be the program's own code, too.
        drop(replaced);
        taken
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.queue.lock().waiters.remove(&number);
            drop(waker);
        }
    }
}
