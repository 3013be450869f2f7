//! `launch_guard`: launched closures that wait at a [`Condvar`](crate::Condvar), with the guard of their
//! latch instead of its value.

use crate::api::apply::or_raise;
use crate::api::latch::{Latch, LatchGuard};
use crate::api::latch_report::HeldByCaller;
use crate::api::launched::Launch;
use crate::api::trust::Trust;
use crate::closure::invoke::{Delegable, Invoke, Plain, With, check_captures};
use crate::codec::Portable;
use crate::error::DelegateError;
use crate::node::chain::Running;

/// A closure that gets the guard of the latch.
#[derive(Clone, Copy)]
struct Guarded<I>(I);

impl<T, V, U, I> Launch<T, V> for Guarded<I>
where
    U: Portable,
    I: for<'a> Invoke<LatchGuard<'a, T>, V, Output = U> + 'static,
{
    type Output = U;
    fn run(
        self,
        latch: &Latch<T>,
        property: u32,
        arguments: V,
        running: &Running,
    ) -> Result<U, HeldByCaller> {
        let mut guard = latch.acquire(None, Some(property))?;
        running.has_latch();
        Ok(self.0.invoke(&mut guard, arguments))
    }
    fn name() -> &'static str {
        I::name()
    }
}

impl<T: 'static> Trust<Latch<T>> {
    /// As [`launch`](Self::launch), but the closure gets the guard of the latch, with which it can wait
    /// at a [`Condvar`](crate::Condvar); other launches hold the latch meanwhile.
    ///
    /// ```
    /// use gossamer_trust_core::{Condvar, Latch, Trust};
    ///
    /// fn wait_until_it_is_open(door: &Trust<Latch<(bool, Condvar)>>) {
    ///     door.launch_guard(|door| {
    ///         let changed = door.1.clone();
    ///         changed.wait_while(door, |(is_open, _)| !*is_open);
    ///     });
    /// }
    /// ```
    ///
    /// # Panics
    /// As [`launch`](Self::launch).
    #[track_caller]
    pub fn launch_guard<F, U>(&self, closure: F) -> U
    where
        F: FnOnce(&mut LatchGuard<'_, T>) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        or_raise(self.launch_and_wait(Guarded(Plain(closure)), ()))
    }

    /// As [`launch_guard`](Self::launch_guard), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`launch_with`](Self::launch_with).
    #[track_caller]
    pub fn launch_guard_with<F, V, U>(&self, closure: F, arguments: V) -> U
    where
        F: FnOnce(&mut LatchGuard<'_, T>, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        or_raise(self.launch_and_wait(Guarded(With(closure)), arguments))
    }

    /// As [`launch_guard`](Self::launch_guard), but failures come back as errors.
    ///
    /// # Errors
    /// As [`try_launch`](Self::try_launch).
    ///
    /// # Panics
    /// In delegated context.
    #[track_caller]
    pub fn try_launch_guard<F, U>(&self, closure: F) -> Result<U, DelegateError>
    where
        F: FnOnce(&mut LatchGuard<'_, T>) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        self.launch_and_wait(Guarded(Plain(closure)), ()).map_err(|error| *error)
    }

    /// As [`try_launch_guard`](Self::try_launch_guard), with `arguments` for the closure.
    ///
    /// ```
    /// use gossamer_trust_core::{Condvar, DelegateError, Latch, Trust};
    ///
    /// type Jobs = (Vec<u32>, Condvar);
    ///
    /// /// Takes a job for `worker`, and waits until there is one.
    /// fn job(jobs: &Trust<Latch<Jobs>>, worker: u32) -> Result<(u32, u32), DelegateError> {
    ///     jobs.try_launch_guard_with(
    ///         |jobs, worker: u32| {
    ///             let arrived = jobs.1.clone();
    ///             arrived.wait_while(jobs, |(jobs, _)| jobs.is_empty());
    ///             (worker, jobs.0.pop().unwrap())
    ///         },
    ///         worker,
    ///     )
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`try_launch`](Self::try_launch).
    ///
    /// # Panics
    /// As [`try_launch_with`](Self::try_launch_with).
    #[track_caller]
    pub fn try_launch_guard_with<F, V, U>(
        &self,
        closure: F,
        arguments: V,
    ) -> Result<U, DelegateError>
    where
        F: FnOnce(&mut LatchGuard<'_, T>, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        self.launch_and_wait(Guarded(With(closure)), arguments).map_err(|error| *error)
    }
}
