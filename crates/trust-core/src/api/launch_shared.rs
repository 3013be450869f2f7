//! `launch_shared`: launched closures that read, several at a time.

use std::any::type_name;
use std::panic::Location;

use crate::api::apply::or_raise;
use crate::api::latch::Latch;
use crate::api::latch_report::HeldByCaller;
use crate::api::launched::Launch;
use crate::api::trust::Trust;
use crate::closure::invoke::{Delegable, check_captures};
use crate::codec::Portable;
use crate::error::{CallResult, DelegateError};
use crate::node::CallSite;
use crate::node::chain::Running;

/// A closure that reads a value, with or without an argument.
trait Read<T, V> {
    type Output;
    fn read(self, value: &T, arguments: V) -> Self::Output;
    fn name() -> &'static str;
}

/// A closure of the value alone.
#[derive(Clone, Copy)]
struct Plain<F>(F);

impl<T, U, F: FnOnce(&T) -> U> Read<T, ()> for Plain<F> {
    type Output = U;
    fn read(self, value: &T, (): ()) -> U {
        (self.0)(value)
    }
    fn name() -> &'static str {
        type_name::<F>()
    }
}

/// A closure of the value and arguments.
#[derive(Clone, Copy)]
struct With<F>(F);

impl<T, V, U, F: FnOnce(&T, V) -> U> Read<T, V> for With<F> {
    type Output = U;
    fn read(self, value: &T, arguments: V) -> U {
        (self.0)(value, arguments)
    }
    fn name() -> &'static str {
        type_name::<F>()
    }
}

/// A closure that shares the latch with others.
#[derive(Clone, Copy)]
struct Shared<I>(I);

impl<T, V, I> Launch<T, V> for Shared<I>
where
    I: Read<T, V> + 'static,
    I::Output: Portable,
{
    type Output = I::Output;
    fn run(
        self,
        latch: &Latch<T>,
        property: u32,
        arguments: V,
        running: &Running,
    ) -> Result<I::Output, HeldByCaller> {
        let value = latch.acquire_shared(None, Some(property))?;
        running.has_latch();
        Ok(self.0.read(&value, arguments))
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
        or_raise(self.launch_shared_call(Plain(closure), (), Location::caller()))
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
        or_raise(self.launch_shared_call(With(closure), arguments, Location::caller()))
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
        let place = Location::caller();
        self.launch_shared_call(Plain(closure), (), place).map_err(|error| *error)
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
        let place = Location::caller();
        self.launch_shared_call(With(closure), arguments, place).map_err(|error| *error)
    }

    fn launch_shared_call<I, V>(
        &self,
        invoke: I,
        arguments: V,
        place: CallSite,
    ) -> CallResult<I::Output>
    where
        I: Read<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
    {
        self.launch_and_wait(Shared(invoke), arguments, place)
    }
}
