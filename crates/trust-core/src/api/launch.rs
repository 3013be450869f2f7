//! `launch`: delegated closures that may wait (thesis 2.4.3).
//!
//! `launch` runs its closure in a fiber of its own at the trustee. That fiber may wait, and while
//! it does, other requests are served; so the property must be a latch, which the fiber holds from
//! the beginning to the end of the closure (`remote_fiber.rs` says how its result comes back).

use std::marker::PhantomData;
use std::panic::Location;

use crate::api::apply::or_raise;
use crate::api::callback::{Callback, Either, Tell, Then};
use crate::api::latch::Latch;
use crate::api::latch_report::place_of;
use crate::api::remote_fiber::{Begun, Started, begin};
use crate::api::trust::Trust;
use crate::client::completion::{Completion, WaitForRoom, boxed};
use crate::client::outcome::Outcome;
use crate::client::waiter::wait;
use crate::closure::invoke::{Delegable, Invoke, Plain, With, check_captures};
use crate::codec::Portable;
use crate::error::{CallResult, DelegateError, OUTSIDE};
use crate::node::awaits::AwaitsReply;
use crate::node::callers::{Call, Callers};
use crate::node::racks::outside_of;
use crate::node::{CallSite, Node, with_node};

/// Starts the fiber of a launched closure.
#[derive(Clone, Copy)]
struct Launch<I>(I);

impl<T, V, I> Invoke<Latch<T>, (Call, V)> for Launch<I>
where
    T: 'static,
    V: 'static,
    I: Invoke<T, V> + 'static,
    I::Output: Portable,
{
    type Output = Begun;
    fn invoke(self, latch: &mut Latch<T>, (call, arguments): (Call, V)) -> Begun {
        let latch = latch.share();
        let Call { reply_to, property, .. } = call;
        begin(reply_to, I::name(), move || {
            let running = call.run();
            let mut value = latch.acquire(None, Some(property)).map_err(|held| {
                format!("launched at {}, but {}", place_of(reply_to), held.reason())
            })?;
            running.has_latch();
            Ok(self.0.invoke(&mut value, arguments))
        })
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
        or_raise(self.launch_call(Plain(closure), ()))
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
        or_raise(self.launch_call(With(closure), arguments))
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
        self.launch_call(Plain(closure), ()).map_err(|error| *error)
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
        self.launch_call(With(closure), arguments).map_err(|error| *error)
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

    #[track_caller]
    fn launch_call<I, V>(&self, invoke: I, arguments: V) -> CallResult<I::Output>
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
    {
        self.launch_and_wait(Launch(invoke), arguments, Location::caller())
    }

    pub(super) fn launch_and_wait<L, V, U>(
        &self,
        launch: L,
        arguments: V,
        place: CallSite,
    ) -> CallResult<U>
    where
        L: Invoke<Latch<T>, (Call, V), Output = Begun> + 'static,
        U: Portable,
        V: Portable,
    {
        with_node(|node| {
            let node = node.filter(|node| node.id.rack() == self.home.rack());
            let node = node.ok_or_else(|| outside_of(self.home))?;
            node.context().check_may_wait("`launch`", place);
            let callers = node.callers()?;
            let target = Some((self.home.number(), self.property));
            let what = || AwaitsReply { call: "`launch`", target };
            wait(|wake| self.start(node, callers, launch, arguments, wake, place), place, what)
        })
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
            self.start(node, callers, Launch(invoke), arguments, completion, place);
            Ok(())
        })
    }

    /// Has the fiber started at the trustee; `completion` gets the result when it ends.
    fn start<L, V, C>(
        &self,
        node: &Node,
        callers: Callers,
        launch: L,
        arguments: V,
        completion: C,
        place: CallSite,
    ) where
        L: Invoke<Latch<T>, (Call, V), Output = Begun> + 'static,
        V: Portable,
        C: Completion + 'static,
    {
        let Some(trustee) = node.thread_numbered(self.home.number()) else {
            return completion.complete(Outcome::Failed(&OUTSIDE));
        };
        let room = completion.waits_for_room();
        let is_timed = matches!(room, WaitForRoom::Within(_));
        let reply_to = node.await_reply(trustee, place, boxed(completion));
        let call = Call { reply_to, callers, is_timed, property: self.property };
        let arguments = (call, arguments);
        if !self.is_used_by(node) {
            let (property, started) = (self.own(), Started::<true>::new(reply_to, trustee));
            node.run_or_defer(move |node| {
                let result = property.run(node, launch, arguments, place);
                started.end(result.map_err(|error| *error));
            });
        } else if const { C::HEARS_PANICS } {
            let started = Started::<true>::new(reply_to, trustee).with_room(room);
            node.request(self.target(), launch, &arguments, started);
        } else {
            let started = Started::<false>::new(reply_to, trustee).with_room(room);
            node.request(self.target(), launch, &arguments, started);
        }
    }
}
