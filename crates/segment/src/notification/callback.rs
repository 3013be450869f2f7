//! Callbacks of notifications: calling one, and refusing to wait inside it.
//!
//! A callback runs inside a poll of its thread, on the stack of that thread. A wait there would poll
//! again from the inside, or block the very thread that receives the awaited event.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use fiber::FiberId;

use crate::notification::Notification;

/// The function that is called for each notification.
pub(crate) type Callback = Box<dyn FnMut(Notification) + Send>;

thread_local! {
    /// Whether a callback runs on this thread, and in which fiber, if in one.
    static RUNS_IN: Cell<Option<Option<FiberId>>> = const { Cell::new(None) };
}

/// Calls a callback; false if it panicked, which the panic hook has reported.
pub(crate) fn call(callback: &mut Callback, notification: Notification) -> bool {
    struct Restore(Option<Option<FiberId>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            RUNS_IN.set(self.0);
        }
    }
    let _restore = Restore(RUNS_IN.replace(Some(fiber::current())));
    // Unwind safe: a callback that panicked is not called again.
    catch_unwind(AssertUnwindSafe(|| callback(notification))).is_ok()
}

/// Drops a callback. What it has captured may panic in its destructor, which must not unwind through
/// the poll of a thread.
pub(crate) fn discard(callback: Option<Callback>) {
    // The panic hook has reported it.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(callback)));
}

/// Whether the caller runs inside a callback.
#[inline]
pub(crate) fn is_running() -> bool {
    RUNS_IN.get().is_some_and(|fiber| fiber == fiber::current())
}

/// Panics inside a callback, where `operation` would wait.
pub(crate) fn check_may_wait(operation: &str, place: &'static Location<'static>) {
    assert!(
        !is_running(),
        "{operation} at {place} would wait inside a callback of notifications; start a fiber or \
         signal a thread that waits instead"
    );
}
