//! `launch`: delegated closures that may wait (thesis 2.4.3).
//!
//! `launch` runs its closure in a fiber of its own at the trustee. That fiber may wait, and while
//! it does, other requests are served; so the property must be a latch, which the fiber holds from
//! the beginning to the end of the closure (`launching.rs` says how it is sent, and `launched.rs` how its
//! result comes back).

use std::marker::PhantomData;
use std::panic::Location;

use crate::api::apply::or_raise;
use crate::api::callback::{Callback, Either, Tell, Then};
use crate::api::latch::Latch;
use crate::api::latch_report::HeldByCaller;
use crate::api::launched::Launch;
use crate::api::trust::Trust;
use crate::client::completion::WaitForRoom;
use crate::closure::invoke::{Delegable, Invoke, Plain, With, check_captures};
use crate::codec::Portable;
use crate::error::{CallResult, DelegateError};
use crate::node::callers::Callers;
use crate::node::chain::Running;
use crate::node::racks::outside_of;
use crate::node::{CallSite, with_node};

/// A closure that gets the value of the latch.
#[derive(Clone, Copy)]
struct Alone<I>(I);

impl<T, V, I> Launch<T, V> for Alone<I>
where
    I: Invoke<T, V> + 'static,
    I::Output: Portable,
{
    type Output = I::Output;
    #[inline]
    fn run(
        self,
        latch: &Latch<T>,
        property: u32,
        arguments: V,
        running: &Running,
    ) -> Result<I::Output, HeldByCaller> {
        let mut value = latch.acquire(None, Some(property))?;
        running.has_latch();
        Ok(self.0.invoke(&mut value, arguments))
    }
    fn name() -> &'static str {
        I::name()
    }
}

impl<T: 'static> Trust<Latch<T>> {
    /// As [`apply`](Trust::apply), but the closure runs in a fiber of its own at the trustee, with
    /// the latch held, and may wait: for other trusts, for fibers, for time.
    ///
    /// The closure may launch others in turn, on latches of any thread, and so may those. If one of
    /// them is launched on a latch that a closure further up this chain holds, it would wait for
    /// that closure, which waits for it. Such a launch is refused, with an error that names the
    /// places of both. The chain goes through `launch`, `launch_with`, `launch_guard_with` and
    /// their `try_` forms. A form with `_timeout` is refused as well, but the closure that it launches
    /// begins a new chain, since its caller may stop waiting. So does a closure launched by a form with
    /// `_then`, `_later` or `_async`, and a fiber that is spawned.
    ///
    /// # Panics
    /// As [`apply`](Trust::apply); if a closure that waits for this one holds the latch; and if
    /// launches are nested more than 256 deep (`primitive::limits::LAUNCH_DEPTH`).
    #[track_caller]
    pub fn launch<F, U>(&self, closure: F) -> U
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        or_raise(self.launch_and_wait(Alone(Plain(closure)), ()))
    }

    /// As [`launch`](Self::launch), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`apply_with`](Trust::apply_with).
    #[track_caller]
    pub fn launch_with<F, V, U>(&self, closure: F, arguments: V) -> U
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        or_raise(self.launch_and_wait(Alone(With(closure)), arguments))
    }

    /// As [`launch`](Self::launch), but failures come back as errors.
    ///
    /// # Errors
    /// As [`try_apply`](Trust::try_apply), and [`DelegateError::Refused`] if a closure that waits for
    /// this one holds the latch, or if launches are nested too deep (see [`launch`](Self::launch)).
    ///
    /// # Panics
    /// In delegated context.
    #[track_caller]
    pub fn try_launch<F, U>(&self, closure: F) -> Result<U, DelegateError>
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        self.launch_and_wait(Alone(Plain(closure)), ()).map_err(|error| *error)
    }

    /// As [`try_launch`](Self::try_launch), with `arguments` for the closure.
    ///
    /// # Errors
    /// As [`try_launch`](Self::try_launch).
    ///
    /// # Panics
    /// As [`try_launch`](Self::try_launch), and as [`try_apply_with`](Trust::try_apply_with).
    #[track_caller]
    pub fn try_launch_with<F, V, U>(&self, closure: F, arguments: V) -> Result<U, DelegateError>
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        self.launch_and_wait(Alone(With(closure)), arguments).map_err(|error| *error)
    }

    /// As [`launch`](Self::launch), without waiting for the closure; `then` is called with the result. A
    /// fiber waits only when there is no room for more requests, as in
    /// [`apply_then`](Trust::apply_then).
    ///
    /// # Panics
    /// Outside a thread of the rack.
    #[track_caller]
    pub fn launch_then<F, U, C>(&self, closure: F, then: C)
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
        C: FnOnce(U) + 'static,
    {
        const { check_captures::<F>() };
        let place = Location::caller();
        or_raise(self.launch_cast(Plain(closure), (), Then::new(then, place), place));
    }

    /// As [`launch_then`](Self::launch_then), with `arguments` for the closure.
    ///
    /// # Panics
    /// Outside a thread of the rack.
    #[track_caller]
    pub fn launch_with_then<F, V, U, C>(&self, closure: F, arguments: V, then: C)
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
        C: FnOnce(U) + 'static,
    {
        const { check_captures::<F>() };
        let place = Location::caller();
        or_raise(self.launch_cast(With(closure), arguments, Then::new(then, place), place));
    }

    /// As [`launch_then`](Self::launch_then), but `then` also gets failures: it is called exactly once,
    /// on this thread, with the result or the error.
    ///
    /// # Panics
    /// Outside a thread of the rack; `then` is not called.
    #[track_caller]
    pub fn try_launch_then<F, U, C>(&self, closure: F, then: C)
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
        C: FnOnce(Result<U, DelegateError>) + 'static,
    {
        const { check_captures::<F>() };
        let place = Location::caller();
        or_raise(self.launch_cast(Plain(closure), (), Either(then, PhantomData), place));
    }

    /// As [`try_launch_then`](Self::try_launch_then), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`try_launch_then`](Self::try_launch_then).
    #[track_caller]
    pub fn try_launch_with_then<F, V, U, C>(&self, closure: F, arguments: V, then: C)
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
        C: FnOnce(Result<U, DelegateError>) + 'static,
    {
        const { check_captures::<F>() };
        let place = Location::caller();
        or_raise(self.launch_cast(With(closure), arguments, Either(then, PhantomData), place));
    }

    /// A launch that does not wait for its result, made at `place`.
    pub(super) fn launch_cast<I, V, C>(
        &self,
        invoke: I,
        arguments: V,
        then: C,
        place: CallSite,
    ) -> CallResult<()>
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Callback<I::Output>,
    {
        with_node(|node| {
            let node = node.filter(|node| node.id.rack() == self.home.rack());
            let node = node.ok_or_else(|| outside_of(self.home))?;
            let callers = match then.waits_for_room() {
                WaitForRoom::Within(_) => node.callers()?,
                // Nothing waits for it.
                WaitForRoom::Always | WaitForRoom::No => Callers::default(),
            };
            let completion = Tell(then, PhantomData);
            self.start(node, callers, Alone(invoke), arguments, completion, place);
            Ok(())
        })
    }
}
