//! `launch`: delegated closures that may wait (thesis 2.4.3).
//!
//! `launch` runs its closure in a fiber of its own at the trustee. That fiber may wait, and while
//! it does, other requests are served; so the property must be a latch, which the fiber holds from
//! the beginning to the end of the closure (`launched.rs` says how its result comes back).

use std::marker::PhantomData;
use std::panic::Location;

use crate::api::apply::or_raise;
use crate::api::callback::{Callback, Either, Tell, Then};
use crate::api::latch::Latch;
use crate::api::latch_report::HeldByCaller;
use crate::api::launched::{Launch, ServeLaunch, ServeNested, is_token_only, run};
use crate::api::remote_fiber::{Started, begin};
use crate::api::trust::Trust;
use crate::client::completion::{Completion, WaitForRoom, boxed};
use crate::client::outbox::Outbox;
use crate::client::outcome::Outcome;
use crate::client::waiter::{Waiter, wait};
use crate::closure::invoke::{Delegable, Invoke, Plain, With, check_captures};
use crate::codec::Portable;
use crate::error::{CallResult, DelegateError, OUTSIDE, outside};
use crate::node::awaits::AwaitsReply;
use crate::node::callers::{Call, Callers};
use crate::node::chain::Running;
use crate::node::racks::outside_of;
use crate::node::{CallSite, Node, current, on_node, with_node};
use crate::wire::words::Status;

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

/// Ends a launch with the reply of its request, or has it wait for the later one. It names no waiter:
/// the fiber knows what it has launched, and could not find it by a request that has been answered.
struct Launching<C> {
    token: LaunchToken,
    completion: C,
}

impl<C> Launching<C> {
    #[inline(always)]
    fn new(token: u64, completion: C) -> Self {
        Launching { token: LaunchToken(token), completion }
    }
}

/// The token of a launch whose completion is with its request.
struct LaunchToken(u64);

impl Drop for LaunchToken {
    #[inline(always)]
    fn drop(&mut self) {
        on_node(|node| node.forget_awaited(self.0));
    }
}

impl<C: Completion + 'static> Completion for Launching<C> {
    const HEARS_PANICS: bool = C::HEARS_PANICS;

    #[inline]
    fn complete(self, outcome: Outcome<'_>) {
        let Launching { token, completion } = self;
        if let Outcome::Reply { status: Status::Later, .. } = outcome {
            on_node(|node| node.await_further(token.0, boxed(completion)));
            std::mem::forget(token);
        } else {
            drop(token);
            completion.complete(outcome);
        }
    }

    fn waits_for_room(&self) -> WaitForRoom {
        self.completion.waits_for_room()
    }

    fn name() -> &'static str {
        C::name()
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
        self.launch_and_wait(Alone(invoke), arguments, Location::caller())
    }

    pub(super) fn launch_and_wait<L, V>(
        &self,
        launch: L,
        arguments: V,
        place: CallSite,
    ) -> CallResult<L::Output>
    where
        L: Launch<T, V>,
        V: Portable,
    {
        let node = current(self).filter(|node| node.id.rack() == self.home.rack());
        let node = node.ok_or_else(|| outside_of(self.home))?;
        node.context().check_may_wait("`launch`", place);
        let callers = node.callers()?;
        let target = Some((self.home.number(), self.property));
        let what = || AwaitsReply { call: "`launch`", target };
        if callers.is_empty()
            && let Some(outbox) = self.outbox_of(node)
        {
            let Some(fiber) = fiber::waiting() else { return Err(outside()) };
            let token = node.await_in_request(outbox.trustee(), place).token();
            // They are dropped when this returns: their destructors may wait, which must not come
            // between the request and this wait.
            let arguments = (token, arguments);
            let waiter = Waiter::new(fiber);
            self.send(node, outbox, launch, &arguments, waiter.wake());
            return waiter.wait(place, |_| what());
        }
        wait(|wake| self.start(node, callers, launch, arguments, wake, place), place, what)
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

    /// Has the closure run at the trustee; `completion` gets the result when it ends. The arguments are
    /// dropped when this returns.
    fn start<L, V, C>(
        &self,
        node: &Node,
        callers: Callers,
        launch: L,
        arguments: V,
        completion: C,
        place: CallSite,
    ) where
        L: Launch<T, V>,
        V: Portable,
        C: Completion + 'static,
    {
        let is_timed = matches!(completion.waits_for_room(), WaitForRoom::Within(_));
        let Some(outbox) = self.outbox_of(node) else {
            let Some(trustee) = node.thread_numbered(self.home.number()) else {
                return completion.complete(Outcome::Failed(&OUTSIDE));
            };
            let reply_to = node.await_reply(trustee, place, boxed(completion));
            let call = Call { reply_to, callers, is_timed };
            return self.start_here(node, launch, call, arguments, place);
        };
        let reply_to = node.await_in_request(outbox.trustee(), place);
        if callers.is_empty() {
            let arguments = (reply_to.token(), arguments);
            self.send(node, outbox, launch, &arguments, completion);
        } else {
            let arguments = (Call { reply_to, callers, is_timed }, arguments);
            self.send_nested(node, outbox, launch, &arguments, completion);
        }
    }

    /// Sends a launch that no other waits for, with its token and the arguments of the closure.
    #[cfg_attr(optimised, inline(always))]
    fn send<L, V, C>(
        &self,
        node: &Node,
        outbox: &Outbox,
        launch: L,
        arguments: &(u64, V),
        completion: C,
    ) where
        L: Launch<T, V>,
        V: Portable,
        C: Completion + 'static,
    {
        let (target, token) = (self.target_by(outbox), arguments.0);
        let completion = Launching::new(token, completion);
        if is_token_only::<V>() {
            node.request_as::<ServeLaunch<T, V, L>, _, _, u64, _>(
                target, launch, &token, completion,
            );
        } else {
            node.request_as::<ServeLaunch<T, V, L>, _, _, (u64, V), _>(
                target, launch, arguments, completion,
            );
        }
    }

    /// As [`send`](Self::send), of a launch that others wait for.
    #[inline(never)]
    fn send_nested<L, V, C>(
        &self,
        node: &Node,
        outbox: &Outbox,
        launch: L,
        arguments: &(Call, V),
        completion: C,
    ) where
        L: Launch<T, V>,
        V: Portable,
        C: Completion + 'static,
    {
        let completion = Launching::new(arguments.0.reply_to.token(), completion);
        let target = self.target_by(outbox);
        node.request_as::<ServeNested<T, V, L>, _, _, _, _>(target, launch, arguments, completion);
    }

    /// Has the closure run on this thread, which is the trustee.
    #[inline(never)]
    fn start_here<L, V>(&self, node: &Node, launch: L, call: Call, arguments: V, place: CallSite)
    where
        L: Launch<T, V>,
        V: Portable,
    {
        let (property, number) = (self.own(), self.property);
        let started = Started::<true>::new(call.reply_to, node.me);
        node.run_or_defer(move |node| {
            let begin = |latch: &mut Latch<T>, (launch, call, arguments): (L, Call, V)| {
                let latch = latch.share();
                begin(call.reply_to, L::name(), move || {
                    run(launch, &latch, number, call, arguments)
                })
            };
            let begun = property.run(node, With(begin), (launch, call, arguments), place);
            started.end(begun.map_err(|error| *error));
        });
    }
}
