//! `apply_ref` and its relatives: access to a part of a property where it lies, without a copy that
//! anything allocates.
//!
//! Two closures: one runs at the trustee and returns a reference into the property, the other runs at
//! the caller and sees it. In between, nothing owns the data:
//!
//! ```text
//!   another thread   property -> encoded into the slot -> memory of the client's thread -> the view
//!   the own thread   property -> the view
//! ```
//!
//! The copy out of the slot is for safety: a peer may write there while the view is in use.
//!
//! There are the forms that wait and those with a callback. Not `_later`, `_timeout` and `_async`,
//! whose reply is looked at after the slot has been used again, and not `launch`, whose result comes in
//! a request of its own: in all of these the data must be copied, and `apply` does that.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use crate::Trust;
use crate::api::apply::{or_raise, raise};
use crate::api::own::{Own, panicked};
use crate::api::ref_callback::{EitherRef, RefCallback, TellRef, ThenRef};
use crate::closure::invoke::{Delegable, InvokeRef, Plain, PlainRef, WithRef, check_captures};
use crate::codec::{AsView, Portable};
use crate::error::{CallResult, DelegateError, Panic};
use crate::node::racks::outside_of;
use crate::node::{CallSite, Node, current};

impl<T: 'static> Trust<T> {
    /// Runs `closure` on the property, and `view` on what it refers to there, and waits for the result
    /// of `view`. The closure returns a reference into the property, or `None`; the view gets that as
    /// a [view](AsView): `&[u8]`, `&str`, or one of a type of yours.
    ///
    /// ```
    /// use gossamer_trust_core::Trust;
    /// use std::collections::HashMap;
    ///
    /// fn append(texts: &Trust<HashMap<u64, String>>, out: &mut String) -> bool {
    ///     texts.apply_ref(|texts| texts.get(&7), |text| match text {
    ///         Some(text) => {
    ///             out.push_str(text); // text: &str
    ///             true
    ///         }
    ///         None => false,
    ///     })
    /// }
    /// ```
    ///
    /// `closure` captures nothing, like that of [`apply`](Self::apply). `view` runs on the caller's
    /// thread and may borrow what the caller has. It must not wait, since it may run on the property's
    /// own thread while the property is borrowed; there nothing is copied. From another thread the
    /// data is copied into the reply and out of it, and nothing allocates memory for it, unless it has
    /// more than about 40 KB or is one of many long replies.
    ///
    /// # Panics
    /// As [`apply`](Self::apply); and if `view` panics, with its payload.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply_ref<F, R, C, U>(&self, closure: F, view: C) -> U
    where
        F: for<'a> FnOnce(&'a mut T) -> Option<&'a R> + Delegable,
        R: AsView + ?Sized + 'static,
        C: for<'a> FnOnce(Option<R::View<'a>>) -> U,
    {
        const { check_captures::<F>() };
        or_raise(self.call_ref::<_, _, _, _, false>(PlainRef::new(closure), (), view))
    }

    /// As [`apply_ref`](Self::apply_ref), with `arguments` for the closure.
    ///
    /// ```
    /// use gossamer_trust_core::Trust;
    /// use std::collections::HashMap;
    ///
    /// fn read(map: &Trust<HashMap<u64, Vec<u8>>>, key: u64, value: &mut Vec<u8>) -> bool {
    ///     value.clear();
    ///     map.apply_ref_with(
    ///         |map, key| map.get(&key),
    ///         key,
    ///         |found| found.inspect(|found| value.extend_from_slice(found)).is_some(),
    ///     )
    /// }
    /// ```
    ///
    /// # Panics
    /// As [`apply_ref`](Self::apply_ref), and if the arguments cannot be encoded.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply_ref_with<F, V, R, C, U>(&self, closure: F, arguments: V, view: C) -> U
    where
        F: for<'a> FnOnce(&'a mut T, V) -> Option<&'a R> + Delegable,
        V: Portable,
        R: AsView + ?Sized + 'static,
        C: for<'a> FnOnce(Option<R::View<'a>>) -> U,
    {
        const { check_captures::<F>() };
        or_raise(self.call_ref::<_, _, _, _, false>(WithRef::new(closure), arguments, view))
    }

    /// As [`apply_ref`](Self::apply_ref), but failures come back as errors.
    ///
    /// # Errors
    /// As [`try_apply`](Self::try_apply). `view` is not called then.
    ///
    /// # Panics
    /// As [`try_apply`](Self::try_apply); and if `view` panics, with its payload: that is the caller's
    /// own code.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn try_apply_ref<F, R, C, U>(&self, closure: F, view: C) -> Result<U, DelegateError>
    where
        F: for<'a> FnOnce(&'a mut T) -> Option<&'a R> + Delegable,
        R: AsView + ?Sized + 'static,
        C: for<'a> FnOnce(Option<R::View<'a>>) -> U,
    {
        const { check_captures::<F>() };
        self.call_ref::<_, _, _, _, true>(PlainRef::new(closure), (), view).map_err(|error| *error)
    }

    /// As [`try_apply_ref`](Self::try_apply_ref), with `arguments` for the closure.
    ///
    /// # Errors
    /// As [`try_apply_ref`](Self::try_apply_ref).
    ///
    /// # Panics
    /// As [`try_apply_ref`](Self::try_apply_ref).
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn try_apply_ref_with<F, V, R, C, U>(
        &self,
        closure: F,
        arguments: V,
        view: C,
    ) -> Result<U, DelegateError>
    where
        F: for<'a> FnOnce(&'a mut T, V) -> Option<&'a R> + Delegable,
        V: Portable,
        R: AsView + ?Sized + 'static,
        C: for<'a> FnOnce(Option<R::View<'a>>) -> U,
    {
        const { check_captures::<F>() };
        self.call_ref::<_, _, _, _, true>(WithRef::new(closure), arguments, view)
            .map_err(|error| *error)
    }

    /// As [`apply_then`](Self::apply_then), but `then` sees what `closure` refers to where it lies, as
    /// in [`apply_ref`](Self::apply_ref). It is called on this thread, with the view, which it cannot
    /// keep.
    ///
    /// # Panics
    /// As [`apply_then`](Self::apply_then).
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply_ref_then<F, R, C>(&self, closure: F, then: C)
    where
        F: for<'a> FnOnce(&'a mut T) -> Option<&'a R> + Delegable,
        R: AsView + ?Sized + 'static,
        C: for<'a> FnOnce(Option<R::View<'a>>) + 'static,
    {
        const { check_captures::<F>() };
        let then = ThenRef { then, place: Location::caller() };
        self.cast_ref::<_, _, _>(PlainRef::<F, R>::new(closure), (), then);
    }

    /// As [`apply_ref_then`](Self::apply_ref_then), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`apply_with_then`](Self::apply_with_then).
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply_ref_with_then<F, V, R, C>(&self, closure: F, arguments: V, then: C)
    where
        F: for<'a> FnOnce(&'a mut T, V) -> Option<&'a R> + Delegable,
        V: Portable,
        R: AsView + ?Sized + 'static,
        C: for<'a> FnOnce(Option<R::View<'a>>) + 'static,
    {
        const { check_captures::<F>() };
        let then = ThenRef { then, place: Location::caller() };
        self.cast_ref::<_, _, _>(WithRef::<F, R>::new(closure), arguments, then);
    }

    /// As [`apply_ref_then`](Self::apply_ref_then), but `then` also gets failures: it is called exactly
    /// once, as that of [`try_apply_then`](Self::try_apply_then).
    ///
    /// # Panics
    /// As [`try_apply_then`](Self::try_apply_then).
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn try_apply_ref_then<F, R, C>(&self, closure: F, then: C)
    where
        F: for<'a> FnOnce(&'a mut T) -> Option<&'a R> + Delegable,
        R: AsView + ?Sized + 'static,
        C: for<'a> FnOnce(Result<Option<R::View<'a>>, DelegateError>) + 'static,
    {
        const { check_captures::<F>() };
        self.cast_ref::<_, _, _>(PlainRef::<F, R>::new(closure), (), EitherRef(then));
    }

    /// As [`try_apply_ref_then`](Self::try_apply_ref_then), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`try_apply_then`](Self::try_apply_then).
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn try_apply_ref_with_then<F, V, R, C>(&self, closure: F, arguments: V, then: C)
    where
        F: for<'a> FnOnce(&'a mut T, V) -> Option<&'a R> + Delegable,
        V: Portable,
        R: AsView + ?Sized + 'static,
        C: for<'a> FnOnce(Result<Option<R::View<'a>>, DelegateError>) + 'static,
    {
        const { check_captures::<F>() };
        self.cast_ref::<_, _, _>(WithRef::<F, R>::new(closure), arguments, EitherRef(then));
    }

    /// A call that waits. If it `CATCHES`, a panic of the closure on this thread is an error, as it is
    /// on any other; one of the view never is.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub(super) fn call_ref<I, V, C, U, const CATCHES: bool>(
        &self,
        invoke: I,
        arguments: V,
        view: C,
    ) -> CallResult<U>
    where
        I: InvokeRef<T, V> + 'static,
        V: Portable,
        C: for<'a> FnOnce(Option<<I::Output as AsView>::View<'a>>) -> U,
    {
        let place = Location::caller();
        let Some(node) = current(self) else { return Err(outside_of(self.home)) };
        let Some(outbox) = self.begin_call(node, "`apply_ref`", place)? else {
            let result =
                self.own().run_ref::<_, _, _, CATCHES, _>(node, invoke, arguments, view, place);
            node.run_deferred();
            return result;
        };
        node.call_ref(self.target_by(outbox), invoke, arguments, view, place)
    }

    /// A call that does not wait.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    fn cast_ref<I, V, C>(&self, invoke: I, arguments: V, then: C)
    where
        I: InvokeRef<T, V> + 'static,
        V: Portable,
        C: RefCallback<I::Output>,
    {
        let place = Location::caller();
        let Some(node) = current(self) else { raise(&outside_of(self.home)) };
        match self.outbox_of(node) {
            Some(outbox) => {
                let tell = TellRef(then, PhantomData::<fn(&I::Output)>);
                node.request_ref(self.target_by(outbox), invoke, &arguments, tell);
            }
            None if self.is_at(node) => self.cast_ref_inline(node, invoke, arguments, then, place),
            None => raise(&outside_of(self.home)),
        }
    }

    /// As `cast_inline`.
    #[inline(never)]
    fn cast_ref_inline<I, V, C>(
        &self,
        node: &Node,
        invoke: I,
        arguments: V,
        then: C,
        place: CallSite,
    ) where
        I: InvokeRef<T, V> + 'static,
        V: Portable,
        C: RefCallback<I::Output>,
    {
        node.count_inline_call();
        let property = self.own();
        if !node.context().is_free() {
            // As in `cast_inline`: a panic of the closure is the failure of a request.
            return node.defer(move |node| {
                property.tell_ref::<_, _, _, true>(node, invoke, arguments, then, place);
            });
        }
        if const { C::HEARS_FAILURES } {
            property.tell_ref::<_, _, _, true>(node, invoke, arguments, then, place);
        } else {
            property.tell_ref::<_, _, _, false>(node, invoke, arguments, then, place);
        }
        node.run_deferred();
    }
}

impl<T: 'static> Own<T> {
    /// Runs a closure on a property of this thread, and `view` on what it refers to, while the property
    /// is borrowed. The caller has found the context free, as for [`run`](Own::run).
    #[cfg_attr(optimised, inline(always))]
    fn run_ref<I, V, C, const CATCHES: bool, U>(
        self,
        node: &Node,
        invoke: I,
        arguments: V,
        view: C,
        place: CallSite,
    ) -> CallResult<U>
    where
        I: InvokeRef<T, V>,
        C: for<'a> FnOnce(Option<<I::Output as AsView>::View<'a>>) -> U,
    {
        let run = |property: &mut T| -> Result<U, Panic> {
            let find = || invoke.invoke_ref(property, arguments).map(AsView::as_view);
            let found = if CATCHES { catch_unwind(AssertUnwindSafe(find))? } else { find() };
            Ok(view(found))
        };
        self.run(node, Plain(run), (), place)?.map_err(|panic| panicked(node, panic, place))
    }

    /// As [`run_ref`](Self::run_ref), for a callback that is told exactly once how it ended.
    fn tell_ref<I, V, C, const CATCHES: bool>(
        self,
        node: &Node,
        invoke: I,
        arguments: V,
        then: C,
        place: CallSite,
    ) where
        I: InvokeRef<T, V>,
        C: RefCallback<I::Output>,
    {
        let mut then = Some(then);
        let view = |found: Option<<I::Output as AsView>::View<'_>>| {
            if let Some(then) = then.take() {
                then.done(found);
            }
        };
        let result = self.run_ref::<_, _, _, CATCHES, _>(node, invoke, arguments, view, place);
        if let (Err(error), Some(then)) = (result, then) {
            then.failed(*error);
        }
    }
}
