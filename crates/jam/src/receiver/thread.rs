//! What a thread has at a receiver, while it lives.

use std::cell::Cell;

use crate::arena::icache::Seen;
use crate::receiver::Receiver;
use crate::reuse::Runner;

/// What a thread has at a receiver.
pub(super) struct Thread {
    /// The receiver, which the thread must leave before that ends.
    receiver: *const Receiver,
    pub(super) runner: Runner,
    pub(super) seen: Seen,
}

/// Leaves the receiver when the thread ends.
struct Leaver(Cell<*const Thread>);

thread_local! {
    /// Of the receiver that the thread has used last: nearly always the process's only one. It has no
    /// destructor, so that its use is one load.
    static CURRENT: Cell<*const Thread> = const { Cell::new(std::ptr::null()) };
    static LEAVER: Leaver = const { Leaver(Cell::new(std::ptr::null())) };
}

impl Thread {
    #[inline(always)]
    pub(super) fn current(receiver: &Receiver) -> &Thread {
        // SAFETY: null, or made by `first` and freed only by the thread's end.
        match unsafe { CURRENT.get().as_ref() } {
            Some(thread) if std::ptr::eq(thread.receiver, receiver) => thread,
            _ => Thread::first(receiver),
        }
    }

    #[cold]
    #[inline(never)]
    fn first(receiver: &Receiver) -> &Thread {
        let runner = receiver.cache.reuse().runner();
        let thread = Box::new(Thread { receiver, runner, seen: Seen::nothing() });
        let thread = Box::into_raw(thread).cast_const();
        // A thread whose thread-locals are being destroyed keeps its place: it is leaked.
        let before = LEAVER.try_with(|leaver| leaver.0.replace(thread)).ok();
        CURRENT.set(thread);
        if let Some(before) = before {
            // SAFETY: made by this function, and not used any more: `CURRENT` was it.
            unsafe { leave(before) };
        }
        // SAFETY: made by this function, and freed only when the thread ends.
        unsafe { &*thread }
    }
}

impl Drop for Leaver {
    fn drop(&mut self) {
        CURRENT.set(std::ptr::null());
        // SAFETY: made by `Thread::first`, and not used any more.
        unsafe { leave(self.0.get()) };
    }
}

/// # Safety
/// Null, or of `Thread::first` and not used any more.
unsafe fn leave(thread: *const Thread) {
    if !thread.is_null() {
        // SAFETY: as promised by the caller; the receiver is the process's, which never ends.
        let thread = unsafe { Box::from_raw(thread.cast_mut()) };
        // SAFETY: the receiver is the process's, which never ends.
        unsafe { &*thread.receiver }.cache.reuse().leave(&thread.runner);
    }
}
