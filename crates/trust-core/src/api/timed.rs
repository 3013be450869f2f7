//! Calls with a timeout: `apply_timeout`, `launch_timeout` and their `_with` forms. Each waits for its
//! [`Reply`] until a deadline.

use std::panic::Location;
use std::pin::Pin;
use std::time::Duration;

use crate::Trust;
use crate::api::latch::Latch;
use crate::api::reply::{Keep, Reply};
use crate::client::completion::{Limit, WaitForRoom};
use crate::closure::invoke::{Delegable, Invoke, Plain, With, check_captures};
use crate::codec::Portable;
use crate::error::{CallResult, DelegateError};
use crate::node::racks::outside_of;
use crate::node::{CallSite, current};

/// A call that is waited for until a deadline.
struct Timed {
    what: &'static str,
    limit: Limit,
    place: CallSite,
}

impl Timed {
    fn new(what: &'static str, timeout: Duration, place: CallSite) -> Timed {
        Timed { what, limit: Limit::new(timeout), place }
    }

    /// The reply of such a call, whose wait for room counts against its time.
    fn reply<U>(&self) -> (Reply<U>, Keep<U>) {
        Reply::new(WaitForRoom::Within(self.limit))
    }

    #[track_caller]
    fn wait<T, U>(&self, trust: &Trust<T>, mut reply: Reply<U>) -> Result<U, DelegateError> {
        let Limit { timeout, deadline } = self.limit;
        fiber::drive_until(self.what, Pin::new(&mut reply), deadline, self.place).unwrap_or_else(
            || Err(DelegateError::TimedOut { trustee: trust.trustee().thread(), timeout }),
        )
    }
}

impl<T: 'static> Trust<T> {
    /// As [`try_apply`](Self::try_apply), but waits up to `timeout` only.
    ///
    /// [`DelegateError::TimedOut`] says nothing about the call: **the closure may have run, may run now,
    /// and may still run later.** A reply that comes later is dropped, and nothing else remains of the
    /// call. So repeat a call that has timed out only if it does no harm to run it twice.
    ///
    /// Where there is no room for more requests, the call waits for room first, which counts against the
    /// timeout, too. A call that finds none within it is not sent.
    ///
    /// On the trustee's own thread the closure runs at once, however long it takes.
    ///
    /// ```
    /// use gossamer_trust_core::{DelegateError, Trust};
    /// use std::time::Duration;
    ///
    /// fn is_responsive(trust: &Trust<u64>) -> bool {
    ///     match trust.apply_timeout(|_| (), Duration::from_secs(1)) {
    ///         Err(DelegateError::TimedOut { .. }) => false,
    ///         other => other.is_ok(),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// [`DelegateError::TimedOut`]; and as [`try_apply_then`](Self::try_apply_then), a panic of the
    /// closure on this very thread included.
    ///
    /// # Panics
    /// In delegated context.
    #[doc(alias = "try_lock_for")]
    #[track_caller]
    pub fn apply_timeout<F, U>(&self, closure: F, timeout: Duration) -> Result<U, DelegateError>
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        let timed = Timed::new("`apply_timeout`", timeout, Location::caller());
        self.call_until(Plain(closure), (), &timed)
    }

    /// As [`apply_timeout`](Self::apply_timeout), with `arguments` for the closure.
    ///
    /// # Errors
    /// As [`apply_timeout`](Self::apply_timeout).
    ///
    /// # Panics
    /// In delegated context.
    #[track_caller]
    pub fn apply_with_timeout<F, V, U>(
        &self,
        closure: F,
        arguments: V,
        timeout: Duration,
    ) -> Result<U, DelegateError>
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        let timed = Timed::new("`apply_with_timeout`", timeout, Location::caller());
        self.call_until(With(closure), arguments, &timed)
    }

    #[track_caller]
    fn call_until<I, V>(
        &self,
        invoke: I,
        arguments: V,
        timed: &Timed,
    ) -> Result<I::Output, DelegateError>
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
    {
        self.check_may_wait_for(timed).map_err(|error| *error)?;
        let (reply, keep) = timed.reply();
        self.cast(invoke, arguments, keep);
        timed.wait(self, reply)
    }

    /// Whether the calling code may make a call and wait for it.
    #[track_caller]
    fn check_may_wait_for(&self, timed: &Timed) -> CallResult<()> {
        match current(self) {
            Some(node) if node.id.rack() == self.home.rack() && fiber::in_fiber() => {
                node.context().check_may_wait(timed.what, timed.place);
                Ok(())
            }
            _ => Err(outside_of(self.home)),
        }
    }
}

impl<T: 'static> Trust<Latch<T>> {
    /// As [`launch`](Self::launch), but waits up to `timeout` only, with failures as errors. As with
    /// [`apply_timeout`](Trust::apply_timeout), the closure may still run when the time has passed.
    ///
    /// # Errors
    /// As [`apply_timeout`](Trust::apply_timeout); and [`DelegateError::Refused`] as
    /// [`try_launch`](Self::try_launch), at once, if a closure that waits for this one holds the latch.
    ///
    /// # Panics
    /// In delegated context.
    #[track_caller]
    pub fn launch_timeout<F, U>(&self, closure: F, timeout: Duration) -> Result<U, DelegateError>
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        let timed = Timed::new("`launch_timeout`", timeout, Location::caller());
        self.check_may_wait_for(&timed).map_err(|error| *error)?;
        let (reply, keep) = timed.reply();
        self.launch_cast(Plain(closure), (), keep, timed.place).map_err(|error| *error)?;
        timed.wait(self, reply)
    }

    /// As [`launch_timeout`](Self::launch_timeout), with `arguments` for the closure.
    ///
    /// # Errors
    /// As [`launch_timeout`](Self::launch_timeout).
    ///
    /// # Panics
    /// In delegated context.
    #[track_caller]
    pub fn launch_with_timeout<F, V, U>(
        &self,
        closure: F,
        arguments: V,
        timeout: Duration,
    ) -> Result<U, DelegateError>
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        let timed = Timed::new("`launch_with_timeout`", timeout, Location::caller());
        self.check_may_wait_for(&timed).map_err(|error| *error)?;
        let (reply, keep) = timed.reply();
        self.launch_cast(With(closure), arguments, keep, timed.place).map_err(|error| *error)?;
        timed.wait(self, reply)
    }
}
