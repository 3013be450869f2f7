//! `launch`: delegated closures that may wait (thesis 2.4.3).
//!
//! `launch` runs its closure in a fiber of its own at the trustee. That fiber may wait, and while
//! it does, other requests are served; so the property must be a latch, which the fiber holds from
//! the beginning to the end of the closure (`remote_fiber.rs` says how its result comes back).

use std::marker::PhantomData;
use std::panic::Location;

use crate::api::apply::or_raise;
use crate::api::callback::{Tell, Then};
use crate::api::latch::{Latch, place_of};
use crate::api::remote_fiber::{Begun, Started, begin};
use crate::api::trust::Trust;
use crate::client::completion::{Completion, boxed};
use crate::client::outcome::Outcome;
use crate::client::waiter::wait;
use crate::closure::invoke::{Delegable, Invoke, Plain, With, check_captures};
use crate::codec::Portable;
use crate::error::{CallResult, DelegateError, OUTSIDE, outside};
use crate::node::callers::{Call, Callers};
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
        let reply_to = call.reply_to;
        begin(reply_to, move || {
            let _running = call.run();
            let mut value = latch.acquire(None).map_err(|held| {
                format!("launched at {}, but {}", place_of(reply_to), held.reason())
            })?;
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
    /// places of both. The chain goes through `launch`, `launch_with` and `try_launch_with`, which
    /// wait; a closure launched by [`launch_then`](Self::launch_then) begins a new one, and so does
    /// a fiber that is spawned.
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

    /// As [`launch_with`](Self::launch_with), but failures come back as errors.
    ///
    /// # Errors
    /// As [`try_apply`](Trust::try_apply); also when the closure panics on this very thread, and
    /// [`DelegateError::Refused`] if a closure that waits for this one holds the latch, or if
    /// launches are nested too deep (see [`launch`](Self::launch)).
    ///
    /// # Panics
    /// In delegated context.
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

    /// As [`launch`](Self::launch), without waiting; `then` is called with the result.
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
        let completion = Tell(Then(then, PhantomData), PhantomData);
        self.launch_cast(Plain(closure), (), completion);
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
        let completion = Tell(Then(then, PhantomData), PhantomData);
        self.launch_cast(With(closure), arguments, completion);
    }

    #[track_caller]
    fn launch_call<I, V>(&self, invoke: I, arguments: V) -> CallResult<I::Output>
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
    {
        let place = Location::caller();
        with_node(|node| {
            let node =
                node.filter(|node| node.id.rack() == self.home.rack()).ok_or_else(outside)?;
            node.context().check_may_wait("`launch`", place);
            let callers = node.callers()?;
            wait(|wake| self.start(node, callers, invoke, arguments, wake, place))
        })
    }

    #[track_caller]
    fn launch_cast<I, V, C>(&self, invoke: I, arguments: V, completion: C)
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Completion + 'static,
    {
        let place = Location::caller();
        or_raise(with_node(|node| {
            let node =
                node.filter(|node| node.id.rack() == self.home.rack()).ok_or_else(outside)?;
            // Nothing waits for it.
            self.start(node, Callers::default(), invoke, arguments, completion, place);
            Ok(())
        }));
    }

    /// Has the fiber started at the trustee; `completion` gets the result when it ends.
    fn start<I, V, C>(
        &self,
        node: &Node,
        callers: Callers,
        invoke: I,
        arguments: V,
        completion: C,
        place: CallSite,
    ) where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Completion + 'static,
    {
        let Some(trustee) = node.thread_numbered(self.home.number()) else {
            return completion.complete(Outcome::Failed(&OUTSIDE));
        };
        let reply_to = node.await_reply(trustee, place, boxed(completion));
        let started = Started::new(reply_to, trustee);
        let arguments = (Call { reply_to, callers }, arguments);
        if self.is_used_by(node) {
            node.request(self.target(), Launch(invoke), &arguments, started);
        } else {
            let property = self.own();
            node.run_or_defer(move |node| {
                let result = property.run(node, Launch(invoke), arguments, place);
                started.end(result.map_err(|error| *error));
            });
        }
    }
}
