//! Waiting for the result of a fiber for a limited time: [`JoinHandle::join_timeout`].

use std::error::Error;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

use crate::error::JoinError;
use crate::join::JoinHandle;
use crate::ops::deadline_after;

/// Why [`JoinHandle::join_timeout`] has no result.
#[derive(Debug)]
pub enum JoinTimeout<H> {
    /// The fiber has not ended. Wait again with its handle, or drop that to detach the fiber.
    TimedOut(H),
    /// There is no result.
    Failed(JoinError),
}

impl<H> fmt::Display for JoinTimeout<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JoinTimeout::TimedOut(_) => "the fiber has not ended within the timeout",
            JoinTimeout::Failed(_) => "the fiber has no result",
        })
    }
}

impl<H: fmt::Debug> Error for JoinTimeout<H> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            JoinTimeout::TimedOut(_) => None,
            JoinTimeout::Failed(error) => Some(error),
        }
    }
}

impl<T> JoinHandle<T> {
    /// As [`join`](Self::join), for up to `timeout`. The fiber goes on if it passes.
    ///
    /// ```
    /// use gossamer_fiber::{JoinTimeout, Promise};
    /// use std::time::Duration;
    ///
    /// let (promise, handle) = Promise::new();
    /// let handle = match handle.join_timeout(Duration::from_millis(1)) {
    ///     Err(JoinTimeout::TimedOut(handle)) => handle,
    ///     other => panic!("{other:?}"),
    /// };
    /// promise.settle(Ok(42));
    /// assert_eq!(handle.join_timeout(Duration::from_secs(60)).unwrap(), 42);
    /// ```
    ///
    /// # Errors
    /// [`JoinTimeout::TimedOut`] with the handle if the fiber has not ended by then,
    /// [`JoinTimeout::Failed`] where [`join`](Self::join) has an error.
    ///
    /// # Panics
    /// As [`join`](Self::join).
    #[track_caller]
    pub fn join_timeout(self, timeout: Duration) -> Result<T, JoinTimeout<Self>> {
        // A timeout that the clock cannot express means no timeout.
        let deadline = deadline_after(timeout);
        match self.wait_until("`join_timeout`", deadline, Location::caller()) {
            Ok(()) if deadline.is_some() && !self.is_finished() => Err(JoinTimeout::TimedOut(self)),
            Ok(()) => self.outcome().map_err(JoinTimeout::Failed),
            Err(error) => Err(JoinTimeout::Failed(error)),
        }
    }
}
