//! [`Trust::with_prefetch`]: calls whose property is too large for the processor's cache.
//!
//! The caller says once which memory a call will touch. At the trustee the hook sees the arguments of
//! several requests before these are served ([`ahead`](crate::closure::ahead)). On the property's own
//! thread, where a call runs at once, the calling fiber asks for the memory and lets the others run.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use crate::Trust;
use crate::api::apply::or_raise;
use crate::api::callback::Either;
use crate::closure::ahead::Ahead;
use crate::closure::invoke::{Delegable, Plain, Step, With, WithRef, check_captures};
use crate::codec::{AsView, Portable};
use crate::error::DelegateError;
use crate::node::current;

impl<T: 'static> Trust<T> {
    /// Calls of this trust that are served faster where `hook` names the memory that they touch.
    ///
    /// A closure that looks something up in a large property waits for memory several times, one after
    /// the other: with 100,000 values of 100 bytes, nearly half of the time of a request. `hook` gets the
    /// property and the arguments of a request that will be served soon, and asks for that memory by
    /// `gossamer::prefetch`. It is called twice for each ([`Step`]). Its only effect should be
    /// that: it may be called for a request more than once, or not at all.
    ///
    /// It is called where several requests of this kind follow each other; and on the property's own
    /// thread, where the calling fiber yields after each step, so that others run while the memory is
    /// on its way. So it pays for calls of many fibers, or by many callbacks. Other calls cost the same
    /// as before.
    ///
    /// ```
    /// use gossamer_trust_core::{Step, Trust};
    ///
    /// struct Texts {
    ///     places: Vec<usize>,
    ///     texts: Vec<String>,
    /// }
    ///
    /// fn length(texts: &Trust<Texts>, number: usize) -> usize {
    ///     let hook = |texts: &Texts, &number: &usize, step| match step {
    ///         Step::First => primitive::prefetch(&texts.places[number]),
    ///         Step::Second => primitive::prefetch(&texts.texts[texts.places[number]]),
    ///     };
    ///     texts.with_prefetch(hook).apply_with(|t, number| t.texts[t.places[number]].len(), number)
    /// }
    /// ```
    ///
    /// Like a delegated closure, `hook` captures nothing. If it panics at the trustee, the requests are
    /// served without it; on the property's own thread the panic is the caller's.
    #[cfg_attr(optimised, inline(always))]
    pub fn with_prefetch<V, H>(&self, hook: H) -> Prefetching<'_, T, V, H>
    where
        H: Fn(&T, &V, Step) + Delegable,
    {
        const { check_captures::<H>() };
        Prefetching { trust: self, hook, _arguments: PhantomData }
    }
}

/// A trust with a hook: see [`Trust::with_prefetch`].
pub struct Prefetching<'a, T: 'static, V, H> {
    trust: &'a Trust<T>,
    hook: H,
    _arguments: PhantomData<fn(V)>,
}

impl<T, V, H> fmt::Debug for Prefetching<'_, T, V, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefetching").field("trust", self.trust).finish_non_exhaustive()
    }
}

impl<T, V, H> Prefetching<'_, T, V, H>
where
    T: 'static,
    V: Portable,
    H: Fn(&T, &V, Step) + Delegable,
{
    /// As [`Trust::apply_with`].
    ///
    /// # Panics
    /// As [`Trust::apply_with`].
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply_with<F, U>(self, closure: F, arguments: V) -> U
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        look(self.trust, |property, step| (self.hook)(property, &arguments, step));
        let invoke = Ahead::new(self.hook, With(closure));
        or_raise(self.trust.call::<_, _, false>(invoke, arguments))
    }

    /// As [`Trust::apply_ref_with`].
    ///
    /// # Panics
    /// As [`Trust::apply_ref_with`].
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply_ref_with<F, R, C, U>(self, closure: F, arguments: V, view: C) -> U
    where
        F: for<'a> FnOnce(&'a mut T, V) -> Option<&'a R> + Delegable,
        R: AsView + ?Sized + 'static,
        C: for<'a> FnOnce(Option<R::View<'a>>) -> U,
    {
        const { check_captures::<F>() };
        look(self.trust, |property, step| (self.hook)(property, &arguments, step));
        let invoke = Ahead::new(self.hook, WithRef::new(closure));
        or_raise(self.trust.call_ref::<_, _, _, _, false>(invoke, arguments, view))
    }

    /// As [`Trust::try_apply_with_then`]. On the property's own thread the hook is not called, since this
    /// does not wait.
    ///
    /// # Panics
    /// As [`Trust::try_apply_with_then`].
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn try_apply_with_then<F, U, C>(self, closure: F, arguments: V, then: C)
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        U: Portable,
        C: FnOnce(Result<U, DelegateError>) + 'static,
    {
        const { check_captures::<F>() };
        let invoke = Ahead::new(self.hook, With(closure));
        self.trust.cast(invoke, arguments, Either(then, PhantomData));
    }
}

/// On the property's own thread, has `hook` ask for what a call will touch, and lets the other fibers run
/// meanwhile. Elsewhere, and where no fiber may wait, the call itself does what is due.
#[inline(always)]
#[track_caller]
pub(super) fn look<T: 'static>(trust: &Trust<T>, hook: impl Fn(&T, Step)) {
    let place = Location::caller();
    for step in [Step::First, Step::Second] {
        let node = current(trust).filter(|node| trust.is_at(node));
        let Some(node) = node.filter(|node| node.context().is_free() && fiber::in_fiber()) else {
            return;
        };
        let hook = |property: &mut T| hook(property, step);
        // The call that follows reports what is wrong.
        let _ = trust.own().run(node, Plain(hook), (), place);
        fiber::yield_now();
    }
}
