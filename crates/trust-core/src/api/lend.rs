//! Calls whose arguments are lent: [`Trust::lend`].
//!
//! Nothing owns the arguments on their way, so nothing allocates for them:
//!
//! ```text
//!   another thread   the caller's bytes -> the slot -> memory of the trustee's thread -> the closure
//!   the own thread   the caller's bytes -> the closure
//! ```
//!
//! The copy out of the slot is for safety: a peer may write there while the closure runs.

use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use crate::Trust;
use crate::api::apply::or_raise;
use crate::api::own::panicked;
use crate::api::prefetch::look;
use crate::client::viewing::Viewing;
use crate::client::waiter::Waiter;
use crate::closure::ahead::Ahead;
use crate::closure::invoke::{Delegable, Plain, Step, With, WithRef, check_captures};
use crate::closure::lent::{ApplyLent, InvokeLent};
use crate::codec::{AsView, Lend, Portable};
use crate::error::{CallResult, DelegateError, Panic, outside};
use crate::node::awaits::AwaitsReply;
use crate::node::racks::outside_of;
use crate::node::{Node, current};

impl<T: 'static> Trust<T> {
    /// A call with `arguments` that borrow from the caller.
    ///
    /// The closure gets references of the same kind: to the caller's own bytes on the property's own
    /// thread, to a copy that is gone after the call on any other. Neither side allocates for them, unless
    /// they have more than 8 KiB.
    ///
    /// ```
    /// use gossamer_trust_core::Trust;
    /// use std::collections::HashMap;
    ///
    /// fn append(texts: &Trust<HashMap<String, String>>, name: &str, more: &str) -> bool {
    ///     texts.lend((name, more)).apply(|texts, (name, more)| match texts.get_mut(name) {
    ///         Some(text) => {
    ///             text.push_str(more);
    ///             true
    ///         }
    ///         None => false,
    ///     })
    /// }
    /// ```
    #[cfg_attr(optimised, inline(always))]
    pub fn lend<V: Lend>(&self, arguments: V) -> Lending<'_, T, V> {
        Lending { trust: self, arguments }
    }
}

/// Arguments that are lent to a call: see [`Trust::lend`].
#[must_use = "it calls nothing by itself"]
pub struct Lending<'a, T: 'static, V> {
    trust: &'a Trust<T>,
    arguments: V,
}

impl<T, V> fmt::Debug for Lending<'_, T, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lending").field("trust", self.trust).finish_non_exhaustive()
    }
}

impl<T: 'static, V: Lend> Lending<'_, T, V> {
    /// As [`Trust::apply_with`].
    ///
    /// # Panics
    /// As [`Trust::apply_with`].
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply<F, U>(self, closure: F) -> U
    where
        F: for<'a> FnOnce(&mut T, V::Lent<'a>) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        or_raise(self.call::<_, _, false>(With(closure)))
    }

    /// As [`Trust::try_apply_with`].
    ///
    /// # Errors
    /// As [`Trust::try_apply_with`].
    ///
    /// # Panics
    /// As [`Trust::try_apply_with`].
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn try_apply<F, U>(self, closure: F) -> Result<U, DelegateError>
    where
        F: for<'a> FnOnce(&mut T, V::Lent<'a>) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        self.call::<_, _, true>(With(closure)).map_err(|error| *error)
    }

    /// As [`apply`](Self::apply), after `hook` has asked for the memory that the call will touch: see
    /// [`Trust::with_prefetch`].
    ///
    /// # Panics
    /// As [`Trust::apply_with`].
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply_with_prefetch<H, F, U>(self, hook: H, closure: F) -> U
    where
        H: for<'a> Fn(&T, &V::Lent<'a>, Step) + Delegable,
        F: for<'a> FnOnce(&mut T, V::Lent<'a>) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<H>() };
        const { check_captures::<F>() };
        look(self.trust, |property, step| hook(property, &self.arguments.lend(), step));
        or_raise(self.call::<_, _, false>(Ahead::new(hook, With(closure))))
    }

    /// As [`Trust::apply_ref_with`]: the closure refers to a part of the property, and `view` sees that.
    ///
    /// ```
    /// use gossamer_trust_core::Trust;
    /// use std::collections::HashMap;
    ///
    /// fn length(texts: &Trust<HashMap<String, String>>, name: &str) -> Option<usize> {
    ///     texts.lend(name).apply_ref(|texts, name| texts.get(name), |text| text.map(str::len))
    /// }
    /// ```
    ///
    /// # Panics
    /// As [`Trust::apply_ref_with`].
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply_ref<F, R, C, U>(self, closure: F, view: C) -> U
    where
        F: for<'a, 'b> FnOnce(&'a mut T, V::Lent<'b>) -> Option<&'a R> + Delegable,
        R: AsView + ?Sized + 'static,
        C: for<'a> FnOnce(Option<R::View<'a>>) -> U,
    {
        const { check_captures::<F>() };
        or_raise(self.call_ref(WithRef::new(closure), view))
    }

    /// As [`apply_ref`](Self::apply_ref), after `hook` has asked for the memory that the call will touch:
    /// see [`Trust::with_prefetch`].
    ///
    /// # Panics
    /// As [`Trust::apply_ref_with`].
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply_ref_with_prefetch<H, F, R, C, U>(self, hook: H, closure: F, view: C) -> U
    where
        H: for<'a> Fn(&T, &V::Lent<'a>, Step) + Delegable,
        F: for<'a, 'b> FnOnce(&'a mut T, V::Lent<'b>) -> Option<&'a R> + Delegable,
        R: AsView + ?Sized + 'static,
        C: for<'a> FnOnce(Option<R::View<'a>>) -> U,
    {
        const { check_captures::<H>() };
        const { check_captures::<F>() };
        look(self.trust, |property, step| hook(property, &self.arguments.lend(), step));
        or_raise(self.call_ref(Ahead::new(hook, WithRef::new(closure)), view))
    }

    /// A call that waits; see [`Trust::call`].
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    fn call<I, U, const CATCHES: bool>(self, invoke: I) -> CallResult<U>
    where
        I: for<'a> InvokeLent<T, V, Output<'a> = U, InPlace = U> + 'static,
        U: Portable,
    {
        let (trust, place) = (self.trust, Location::caller());
        let Some(node) = current(trust) else { return Err(outside_of(trust.home)) };
        let Some(outbox) = trust.begin_call(node, "`apply`", place)? else {
            let run = |property: &mut T| -> Result<U, Panic> {
                let invoke = || invoke.invoke_lent(property, self.arguments.lend());
                if CATCHES { catch_unwind(AssertUnwindSafe(invoke)) } else { Ok(invoke()) }
            };
            let result = trust.own().run(node, Plain(run), (), place);
            let result =
                result.and_then(|result| result.map_err(|panic| panicked(node, panic, place)));
            node.run_deferred();
            return result;
        };
        let (target, arguments) = (trust.target_by(outbox), lend_at(node, &self.arguments));
        let Some(waiter) = Waiter::new() else { return Err(outside()) };
        let end = waiter.wake();
        node.request_encoded::<ApplyLent<T, V, I>, T, I, _, _>(target, invoke, &arguments, end);
        waiter.wait(place, AwaitsReply::of)
    }

    /// As [`call`](Self::call), of a closure that refers to a part of the property.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    fn call_ref<I, R, C, U>(self, invoke: I, view: C) -> CallResult<U>
    where
        I: for<'a> InvokeLent<T, V, Output<'a> = Option<&'a R>> + 'static,
        R: AsView + ?Sized + 'static,
        C: for<'a> FnOnce(Option<R::View<'a>>) -> U,
    {
        let (trust, place) = (self.trust, Location::caller());
        let Some(node) = current(trust) else { return Err(outside_of(trust.home)) };
        let Some(outbox) = trust.begin_call(node, "`apply_ref`", place)? else {
            let run = |property: &mut T| {
                view(invoke.invoke_lent(property, self.arguments.lend()).map(AsView::as_view))
            };
            let result = trust.own().run(node, Plain(run), (), place);
            node.run_deferred();
            return result;
        };
        let (target, arguments) = (trust.target_by(outbox), lend_at(node, &self.arguments));
        let Some(viewing) = Viewing::<R, C, U>::new(view) else { return Err(outside()) };
        let end = viewing.end();
        node.request_encoded::<ApplyLent<T, V, I>, T, I, _, _>(target, invoke, &arguments, end);
        viewing.wait(place, AwaitsReply::of)
    }
}

/// Lends the arguments. Call it before making a waiter, which must be ended: `Lend::lend` is user code, and
/// may panic or wait.
#[cfg_attr(optimised, inline(always))]
fn lend_at<'a, V: Lend>(node: &Node, arguments: &'a V) -> V::Lent<'a> {
    let _stay = node.stay();
    arguments.lend()
}
