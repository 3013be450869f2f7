//! `launch_shared`: launched closures that read, several at a time.

use std::any::type_name;

use crate::api::apply::or_raise;
use crate::api::latch::{Latch, LatchReadGuard};
use crate::api::latch_report::HeldByCaller;
use crate::api::launched::Launch;
use crate::api::trust::Trust;
use crate::closure::invoke::{Delegable, Invoke, check_captures};
use crate::codec::Portable;
use crate::error::DelegateError;
use crate::node::chain::Running;

/// A closure that reads the value of a latch.
#[derive(Clone, Copy)]
struct Reads<F>(F);

impl<T, U, F: FnOnce(&T) -> U> Invoke<LatchReadGuard<'_, T>, ()> for Reads<F> {
    type Output = U;
    fn invoke(self, value: &mut LatchReadGuard<'_, T>, (): ()) -> U {
        (self.0)(value)
    }
    fn name() -> &'static str {
        type_name::<F>()
    }
}

/// As [`Reads`], of the value and arguments.
#[derive(Clone, Copy)]
struct ReadsWith<F>(F);

impl<T, V, U, F: FnOnce(&T, V) -> U> Invoke<LatchReadGuard<'_, T>, V> for ReadsWith<F> {
    type Output = U;
    fn invoke(self, value: &mut LatchReadGuard<'_, T>, arguments: V) -> U {
        (self.0)(value, arguments)
    }
    fn name() -> &'static str {
        type_name::<F>()
    }
}

/// A closure that shares the latch with others.
#[derive(Clone, Copy)]
struct Shared<I>(I);

impl<T, V, U, I> Launch<T, V> for Shared<I>
where
    U: Portable,
    I: for<'a> Invoke<LatchReadGuard<'a, T>, V, Output = U> + 'static,
{
    type Output = U;
    fn run(
        self,
        latch: &Latch<T>,
        property: u32,
        arguments: V,
        running: &Running,
    ) -> Result<U, HeldByCaller> {
        let mut value = latch.acquire_shared(None, Some(property))?;
        running.has_latch();
        Ok(self.0.invoke(&mut value, arguments))
    }
    fn name() -> &'static str {
        I::name()
    }
}

impl<T: 'static> Trust<Latch<T>> {
    /// As [`launch`](Self::launch), but the closure only reads the value, and others that read it run at
    /// the same time: what an `RwLock` is for threads. Fibers get the latch in the order they came: a
    /// reader that comes behind a waiting writer waits for that, so readers cannot keep writers out.
    ///
    /// ```
    /// use gossamer_trust_core::{Latch, Trust};
    ///
    /// struct Prices {
    ///     base: u32,
    ///     rate: Trust<u32>,
    /// }
    ///
    /// fn price(prices: &Trust<Latch<Prices>>) -> u32 {
    ///     // Waits for another property meanwhile, as other readers may.
    ///     prices.launch_shared(|prices| prices.base * prices.rate.apply(|rate| *rate))
    /// }
    /// ```
    ///
    /// It pays only where the closure waits. One that does not is served without a fiber and without
    /// any latch by [`apply`](Trust::apply), on a value that is not in a latch; readers of a latch that do
    /// not wait gain nothing, since their thread runs one of them at a time.
    ///
    /// The value need not be `Sync`: all readers run on its thread. What it changes behind a `Cell` other
    /// readers see; a borrow of a `RefCell` that lasts while a reader waits may meet another one's. A
    /// reader cannot wait at a [`Condvar`](crate::Condvar), since the latch stays shared by others; it may
    /// notify.
    ///
    /// # Panics
    /// As [`launch`](Self::launch); also if a closure that waits for this one shares the latch, because a
    /// writer between the two would wait for ever.
    #[track_caller]
    pub fn launch_shared<F, U>(&self, closure: F) -> U
    where
        F: FnOnce(&T) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        or_raise(self.launch_and_wait(Shared(Reads(closure)), ()))
    }

    /// As [`launch_shared`](Self::launch_shared), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`launch_shared`](Self::launch_shared), and if the arguments cannot be encoded.
    #[track_caller]
    pub fn launch_shared_with<F, V, U>(&self, closure: F, arguments: V) -> U
    where
        F: FnOnce(&T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        or_raise(self.launch_and_wait(Shared(ReadsWith(closure)), arguments))
    }

    /// As [`launch_shared`](Self::launch_shared), but failures come back as errors.
    ///
    /// # Errors
    /// As [`try_launch`](Self::try_launch), and [`DelegateError::Refused`] if a closure that waits for
    /// this one shares the latch.
    ///
    /// # Panics
    /// In delegated context.
    #[track_caller]
    pub fn try_launch_shared<F, U>(&self, closure: F) -> Result<U, DelegateError>
    where
        F: FnOnce(&T) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        self.launch_and_wait(Shared(Reads(closure)), ()).map_err(|error| *error)
    }

    /// As [`try_launch_shared`](Self::try_launch_shared), with `arguments` for the closure.
    ///
    /// # Errors
    /// As [`try_launch_shared`](Self::try_launch_shared).
    ///
    /// # Panics
    /// As [`try_launch_with`](Self::try_launch_with).
    #[track_caller]
    pub fn try_launch_shared_with<F, V, U>(
        &self,
        closure: F,
        arguments: V,
    ) -> Result<U, DelegateError>
    where
        F: FnOnce(&T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        self.launch_and_wait(Shared(ReadsWith(closure)), arguments).map_err(|error| *error)
    }
}
