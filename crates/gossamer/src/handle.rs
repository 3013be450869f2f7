//! [`Handle`]: the rack as threads outside it see it.

use std::fmt;
use std::sync::{Arc, Weak};

use fiber::{JoinHandle, Promise};

use crate::shared::Shared;
use crate::worker::try_shared;

/// Starts fibers of this host from threads outside the rack, and from tasks of an async runtime on
/// them. A fiber of the rack makes it; then it may go to any thread of the process.
///
/// The [`JoinHandle`] that it returns is a future, which a task awaits; a plain thread joins it. Trusts
/// that were made before can be used from tasks without a fiber, with the feature `tokio`
/// (`apply_async`).
///
/// ```
/// use gossamer::{Handle, Rack, spawn_blocking};
///
/// Rack::new().threads(2).run(|| {
///     let handle = Handle::current();
///     let server = spawn_blocking(move || {
///         // A thread outside the rack: it may block, and have an async runtime.
///         let counter = handle.spawn(|| gossamer::entrust(1u64)).join().unwrap();
///         handle.spawn(move || counter.apply(|count| *count + 1)).join().unwrap()
///     });
///     assert_eq!(server.join().unwrap(), 2);
/// })?;
/// # Ok::<(), gossamer::RackError>(())
/// ```
#[derive(Clone)]
pub struct Handle(Weak<Shared>);

impl Handle {
    /// The rack of the current thread.
    ///
    /// # Panics
    /// Outside a thread of a rack.
    #[track_caller]
    #[must_use]
    pub fn current() -> Handle {
        match try_shared() {
            Ok(shared) => Handle(Arc::downgrade(&shared)),
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`spawn`](crate::spawn()), from any thread. When the rack has ended, the fiber does not start,
    /// and its join says [`JoinError::Cancelled`](crate::JoinError::Cancelled).
    pub fn spawn<F, U>(&self, closure: F) -> JoinHandle<U>
    where
        F: FnOnce() -> U + Send + 'static,
        U: Send + 'static,
    {
        match self.0.upgrade() {
            Some(shared) => shared.remote(shared.thread_for_fiber()).spawn(closure),
            // Without its promise, it is cancelled.
            None => Promise::new().1,
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("ended", &(self.0.strong_count() == 0)).finish()
    }
}
