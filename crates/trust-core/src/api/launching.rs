//! A launch at its caller: how it is sent, and how it ends there (`launched.rs` has its trustee's side).
//!
//! Its completion is with its request, whose reply mostly is the result. If the reply says that the result
//! comes later, the completion moves to where the node keeps those that wait for such a result.

use std::panic::Location;

use crate::api::latch::Latch;
use crate::api::launched::{
    Launch, ReplyAddress, ServeLaunch, may_take_nothing, run, takes_nothing,
};
use crate::api::remote_fiber::{Started, begin};
use crate::api::trust::Trust;
use crate::client::completion::{Completion, WaitForRoom, boxed};
use crate::client::outbox::Outbox;
use crate::client::outcome::Outcome;
use crate::client::waiter::{Waiter, wait};
use crate::closure::invoke::With;
use crate::codec::Portable;
use crate::error::{CallResult, OUTSIDE, outside};
use crate::node::awaits::AwaitsReply;
use crate::node::callers::{Call, Callers};
use crate::node::racks::outside_of;
use crate::node::{CallSite, Node, current, on_node};
use crate::wire::words::Status;

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
    const IN_RUNS: bool = false;

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
    /// A launch that waits for its result.
    #[track_caller]
    pub(super) fn launch_and_wait<L, V>(&self, launch: L, arguments: V) -> CallResult<L::Output>
    where
        L: Launch<T, V>,
        V: Portable,
    {
        let place = Location::caller();
        let node = current(self).filter(|node| node.id.rack() == self.home.rack());
        let node = node.ok_or_else(|| outside_of(self.home))?;
        node.context().check_may_wait("`launch`", place);
        let callers = node.callers()?;
        let target = Some((self.home.number(), self.property));
        let what = || AwaitsReply { call: "`launch`", target };
        if callers.is_empty()
            && let Some(outbox) = self.outbox_of(node)
        {
            let Some(waiter) = Waiter::new() else { return Err(outside()) };
            let token = node.await_in_request(outbox.trustee(), place).token();
            // They are dropped when this returns: their destructors may wait, which must not come
            // between the request and this wait.
            let arguments = (token, arguments);
            self.send(node, outbox, launch, &arguments, waiter.wake());
            return waiter.wait(place, |_| what());
        }
        wait(|wake| self.start(node, callers, launch, arguments, wake, place), place, what)
    }

    /// Has the closure run at the trustee; `completion` gets the result when it ends. The arguments are
    /// dropped when this returns.
    pub(super) fn start<L, V, C>(
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
            self.send(node, outbox, launch, &arguments, completion);
        }
    }

    /// Sends a launch with its caller and the arguments of the closure, unless these are nothing.
    #[cfg_attr(optimised, inline(always))]
    fn send<L, A, V, C>(
        &self,
        node: &Node,
        outbox: &Outbox,
        launch: L,
        arguments: &(A, V),
        completion: C,
    ) where
        L: Launch<T, V>,
        A: ReplyAddress,
        V: Portable,
        C: Completion + 'static,
    {
        let (target, caller) = (self.target_by(outbox), &arguments.0);
        let completion = Launching::new(caller.token(), completion);
        if const { may_take_nothing::<V>() } && takes_nothing::<V>() {
            node.request_as::<ServeLaunch<T, A, V, L>, _, _, A, _>(
                target, launch, caller, completion,
            );
        } else {
            node.request_as::<ServeLaunch<T, A, V, L>, _, _, (A, V), _>(
                target, launch, arguments, completion,
            );
        }
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
