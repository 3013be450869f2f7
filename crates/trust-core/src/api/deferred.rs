//! [`Deferred`]: a reply that the trustee sends when it likes, for waits that are neither a request's
//! nor a fiber's.
//!
//! A fiber that waits for something at another thread (room in a channel, a notification) would
//! otherwise need a fiber there that waits for it. Instead, the closure that it sends gets a `Deferred`,
//! which the property keeps until there is an answer:
//!
//! ```text
//!   waiting fiber                     trustee
//!   -------------                     -------
//!   apply_deferred  --- request --->     closure(property, arguments, deferred): keeps `deferred`
//!   (parked)                          ...
//!                <-- request ----     later.reply(value), from any closure or fiber of the thread
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use serde::{Deserialize, Serialize};
use transport_api::ThreadId;

use crate::api::remote_fiber::{Begun, Started};
use crate::api::trust::Trust;
use crate::client::completion::boxed;
use crate::client::outcome::Outcome;
use crate::client::waiter::{count_failure, wait};
use crate::closure::invoke::{Delegable, Invoke, check_captures};
use crate::codec::Portable;
use crate::error::{DelegateError, OUTSIDE, RACK_ENDED};
use crate::node::awaited::ReplyTo;
use crate::node::awaits::AwaitsReply;
use crate::node::racks::outside_of;
use crate::node::{CallSite, Node, on_node, with_node};

/// A fiber that waits for a value of type `U`, at any thread of the rack. Dropping it fails the wait
/// with [`DelegateError::Refused`].
pub struct Deferred<U> {
    /// `None` once the reply is on its way.
    to: Option<ReplyTo>,
    _value: PhantomData<fn(U)>,
    /// Replies are sent by the thread that got it.
    _not_send: PhantomData<*const ()>,
}

impl<U: Portable> Deferred<U> {
    /// Ends the wait with `value`. Allowed in delegated context. If the waiting fiber's host is lost,
    /// the value is dropped.
    pub fn reply(mut self, value: U) {
        if let Some(to) = self.to.take() {
            on_node(|node| node.reply_later(to, Ok(Ok(value))));
        }
    }
}

/// Names a wait, at the fiber that waits and in the [`Deferred`] that ends it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeferredId(ReplyTo);

impl<U> Deferred<U> {
    /// Names the wait; `None` once the reply is on its way.
    pub fn id(&self) -> Option<DeferredId> {
        self.to.map(DeferredId)
    }

    /// The thread of the waiting fiber.
    pub fn thread(&self) -> Option<ThreadId> {
        let to = self.to?;
        on_node(|node| node.thread_numbered(to.thread())).flatten()
    }

    /// Whether no reply can arrive: the waiting fiber's host is lost.
    pub fn is_lost(&self) -> bool {
        let Some(to) = self.to else { return true };
        on_node(|node| node.number() != to.thread() && node.is_closed_to(to.thread()))
            .unwrap_or(true)
    }
}

impl<U> Drop for Deferred<U> {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            let reason = "the trustee dropped what would have answered the wait".to_owned();
            on_node(|node| node.reply_later::<()>(to, Ok(Err(reason))));
        }
    }
}

impl<U> fmt::Debug for Deferred<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred").field("thread", &self.thread()).finish()
    }
}

/// Hands the closure the [`Deferred`] of its caller.
struct Answer<F, U>(F, PhantomData<fn() -> U>);

impl<F: Clone, U> Clone for Answer<F, U> {
    fn clone(&self) -> Self {
        Answer(self.0.clone(), PhantomData)
    }
}
impl<F: Copy, U> Copy for Answer<F, U> {}

impl<T, V, U, F> Invoke<T, (ReplyTo, V)> for Answer<F, U>
where
    F: FnOnce(&mut T, V, Deferred<U>),
{
    type Output = Begun;
    fn invoke(self, property: &mut T, (reply_to, arguments): (ReplyTo, V)) -> Begun {
        let to = Some(reply_to);
        (self.0)(property, arguments, Deferred { to, _value: PhantomData, _not_send: PhantomData });
        Ok(())
    }
    fn name() -> &'static str {
        std::any::type_name::<F>()
    }
}

impl<T: 'static> Trust<T> {
    /// For layers above: as [`try_apply_with`](Self::try_apply_with), but the closure returns nothing
    /// and gets a [`Deferred`], which ends the call. Until then the fiber is parked; the rack may end
    /// meanwhile, which does not wait for such calls.
    ///
    /// # Errors
    /// As [`try_apply`](Self::try_apply); [`DelegateError::Refused`] if the `Deferred` was dropped.
    ///
    /// # Panics
    /// In delegated context.
    #[doc(hidden)]
    #[track_caller]
    pub fn apply_deferred<F, V, U>(&self, closure: F, arguments: V) -> Result<U, DelegateError>
    where
        F: FnOnce(&mut T, V, Deferred<U>) + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        let place = Location::caller();
        let answer = Answer(closure, PhantomData);
        let result = with_node(|node| {
            let node = node.filter(|node| node.id.rack() == self.home.rack());
            let node = node.ok_or_else(|| outside_of(self.home))?;
            node.context().check_may_wait("a wait", place);
            if node.is_closed() {
                count_failure();
                return Err(Box::new(RACK_ENDED));
            }
            let target = Some((self.home.number(), self.property));
            let what = || AwaitsReply { call: "a channel or a `Notify`", target };
            let send = |wake| {
                let Some(trustee) = node.thread_numbered(self.home.number()) else {
                    return boxed(wake)(Outcome::Failed(&OUTSIDE));
                };
                let reply_to = node.await_idly(trustee, place, boxed(wake));
                let started = Started::<false>::new(reply_to, trustee);
                self.begin_deferred(node, answer, (reply_to, arguments), started, place);
            };
            wait(send, place, what)
        });
        result.map_err(|error| *error)
    }

    /// For layers above: as [`apply_deferred`](Self::apply_deferred), but without waiting. `done` gets
    /// the outcome, once, on this thread: at once with an error outside the rack and after its end, and
    /// otherwise when the [`Deferred`] has been used or dropped, or its host was lost. Allowed
    /// everywhere, and neither waits for room nor gives way, so destructors may call it.
    #[doc(hidden)]
    #[track_caller]
    pub fn apply_deferred_then<F, V, U>(
        &self,
        closure: F,
        arguments: V,
        done: impl FnOnce(Result<U, DelegateError>) + 'static,
    ) -> Option<DeferredId>
    where
        F: FnOnce(&mut T, V, Deferred<U>) + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        let place = Location::caller();
        with_node(|node| {
            let node = node.filter(|node| node.id.rack() == self.home.rack());
            let trustee = node.and_then(|node| node.thread_numbered(self.home.number()));
            let (Some(node), Some(trustee)) = (node, trustee) else {
                done(Err(OUTSIDE));
                return None;
            };
            if node.is_closed() {
                done(Err(RACK_ENDED));
                return None;
            }
            let done = move |outcome: Outcome<'_>| done(outcome.caught::<U, _>(Outcome::result));
            let reply_to = node.await_idly(trustee, place, Box::new(done));
            let started = Started::<true>::new(reply_to, trustee);
            let answer = Answer(closure, PhantomData);
            self.begin_deferred(node, answer, (reply_to, arguments), started, place);
            Some(DeferredId(reply_to))
        })
    }

    /// Has the closure begin a wait, here or there.
    fn begin_deferred<F, V, U, const HEARS_PANICS: bool>(
        &self,
        node: &Node,
        answer: Answer<F, U>,
        arguments: (ReplyTo, V),
        started: Started<HEARS_PANICS>,
        place: CallSite,
    ) where
        F: FnOnce(&mut T, V, Deferred<U>) + Delegable,
        V: Portable,
        U: Portable,
    {
        if self.is_used_by(node) {
            node.request(self.target(), answer, &arguments, started);
        } else if node.context().is_free() {
            let begun = self.own().run(node, answer, arguments, place);
            started.end(begun.map_err(|error| *error));
            node.run_deferred();
        } else {
            // After the closure that runs now, which may hold the property.
            let property = self.own();
            node.defer(move |node| {
                let begun = property.run_caught(node, answer, arguments, place);
                started.end(begun.map_err(|error| *error));
            });
        }
    }
}
