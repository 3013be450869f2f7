//! Visits: closures that run on the thread of a [`Trustee`], on no property.
//!
//! They run in delegated context, where waiting is refused, on the caller's own thread as well.

use std::any::type_name;
use std::marker::PhantomData;
use std::panic::Location;

use crate::api::apply::or_raise;
use crate::api::callback::{Either, Then};
use crate::api::may_wait::check_may_wait;
use crate::api::trustee::Trustee;
use crate::closure::context::Context;
use crate::closure::invoke::{Delegable, Invoke, check_captures};
use crate::codec::Portable;
use crate::error::{CallResult, DelegateError};
use crate::node::system::Runtime;
use crate::node::{CallSite, Node, on_node};

/// Runs a closure.
#[derive(Clone, Copy)]
pub(super) struct Visit<F>(pub(super) F);

impl<U, F: FnOnce() -> U> Invoke<Runtime, ()> for Visit<F> {
    type Output = U;
    fn invoke(self, _: &mut Runtime, (): ()) -> U {
        (self.0)()
    }
    fn name() -> &'static str {
        type_name::<F>()
    }
}

/// Runs a closure with arguments.
#[derive(Clone, Copy)]
pub(super) struct VisitWith<F>(pub(super) F);

impl<A, U, F: FnOnce(A) -> U> Invoke<Runtime, A> for VisitWith<F> {
    type Output = U;
    fn invoke(self, _: &mut Runtime, arguments: A) -> U {
        (self.0)(arguments)
    }
    fn name() -> &'static str {
        type_name::<F>()
    }
}

/// Runs a closure on the thread's node.
#[derive(Clone, Copy)]
struct VisitNode<F>(F);

impl<A, U, F: FnOnce(&Node, A) -> U> Invoke<Runtime, A> for VisitNode<F> {
    type Output = U;
    fn invoke(self, _: &mut Runtime, arguments: A) -> U {
        on_node(|node| (self.0)(node, arguments)).expect("requests are served by nodes")
    }
    fn name() -> &'static str {
        type_name::<F>()
    }
}

/// A visit that enters delegated context on the caller's own thread; other threads are in it when they
/// serve a request.
#[derive(Clone, Copy)]
struct Here<I>(I, CallSite);

impl<A, I: Invoke<Runtime, A>> Invoke<Runtime, A> for Here<I> {
    type Output = I::Output;
    fn invoke(self, runtime: &mut Runtime, arguments: A) -> I::Output {
        let run = |node: &Node| {
            let _context = node.context().enter(Context::Inline(self.1));
            self.0.invoke(runtime, arguments)
        };
        on_node(run).expect("visits of the own thread are made by nodes")
    }
    fn name() -> &'static str {
        I::name()
    }
}

impl Trustee {
    /// Runs `closure` on the trustee's thread, on no property, and waits for its result: as
    /// [`Trust::apply`](crate::Trust::apply), for what belongs to a thread or its host.
    ///
    /// The closure captures nothing; [`visit_with`](Self::visit_with) passes values.
    ///
    /// # Panics
    /// As [`Trust::apply`](crate::Trust::apply). [`try_visit`](Self::try_visit) returns errors instead.
    #[track_caller]
    pub fn visit<F, U>(&self, closure: F) -> U
    where
        F: FnOnce() -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        or_raise(self.visit_call::<_, _, false>("`visit`", Visit(closure), (), Location::caller()))
    }

    /// As [`visit`](Self::visit), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`Trust::apply_with`](crate::Trust::apply_with).
    #[track_caller]
    pub fn visit_with<F, A, U>(&self, closure: F, arguments: A) -> U
    where
        F: FnOnce(A) -> U + Delegable,
        A: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        let (visit, place) = (VisitWith(closure), Location::caller());
        or_raise(self.visit_call::<_, _, false>("`visit_with`", visit, arguments, place))
    }

    /// As [`visit`](Self::visit), but failures come back as errors.
    ///
    /// # Errors
    /// As [`Trust::try_apply`](crate::Trust::try_apply).
    ///
    /// # Panics
    /// As [`Trust::try_apply`](crate::Trust::try_apply).
    #[track_caller]
    pub fn try_visit<F, U>(&self, closure: F) -> Result<U, DelegateError>
    where
        F: FnOnce() -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        self.visit_call::<_, _, true>("`try_visit`", Visit(closure), (), Location::caller())
            .map_err(|error| *error)
    }

    /// As [`try_visit`](Self::try_visit), with `arguments` for the closure.
    ///
    /// # Errors
    /// As [`try_visit`](Self::try_visit).
    ///
    /// # Panics
    /// As [`Trust::try_apply_with`](crate::Trust::try_apply_with).
    #[track_caller]
    pub fn try_visit_with<F, A, U>(&self, closure: F, arguments: A) -> Result<U, DelegateError>
    where
        F: FnOnce(A) -> U + Delegable,
        A: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        let (visit, place) = (VisitWith(closure), Location::caller());
        self.visit_call::<_, _, true>("`try_visit_with`", visit, arguments, place)
            .map_err(|error| *error)
    }

    /// As [`visit`](Self::visit), without waiting: `then` is called with the result, on this thread.
    ///
    /// # Panics
    /// As [`Trust::apply_then`](crate::Trust::apply_then).
    #[track_caller]
    pub fn visit_then<F, U, C>(&self, closure: F, then: C)
    where
        F: FnOnce() -> U + Delegable,
        U: Portable,
        C: FnOnce(U) + 'static,
    {
        const { check_captures::<F>() };
        let place = Location::caller();
        or_raise(self.cast(Visit(closure), (), Then::new(then, place), place));
    }

    /// As [`visit_then`](Self::visit_then), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`Trust::apply_with_then`](crate::Trust::apply_with_then).
    #[track_caller]
    pub fn visit_with_then<F, A, U, C>(&self, closure: F, arguments: A, then: C)
    where
        F: FnOnce(A) -> U + Delegable,
        A: Portable,
        U: Portable,
        C: FnOnce(U) + 'static,
    {
        const { check_captures::<F>() };
        let place = Location::caller();
        or_raise(self.cast(VisitWith(closure), arguments, Then::new(then, place), place));
    }

    /// As [`visit_then`](Self::visit_then), but `then` also gets failures: it is called exactly once.
    ///
    /// # Panics
    /// As [`Trust::try_apply_then`](crate::Trust::try_apply_then).
    #[track_caller]
    pub fn try_visit_then<F, U, C>(&self, closure: F, then: C)
    where
        F: FnOnce() -> U + Delegable,
        U: Portable,
        C: FnOnce(Result<U, DelegateError>) + 'static,
    {
        const { check_captures::<F>() };
        let place = Location::caller();
        or_raise(self.cast(Visit(closure), (), Either(then, PhantomData), place));
    }

    /// As [`try_visit_then`](Self::try_visit_then), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`Trust::try_apply_then`](crate::Trust::try_apply_then).
    #[track_caller]
    pub fn try_visit_with_then<F, A, U, C>(&self, closure: F, arguments: A, then: C)
    where
        F: FnOnce(A) -> U + Delegable,
        A: Portable,
        U: Portable,
        C: FnOnce(Result<U, DelegateError>) + 'static,
    {
        const { check_captures::<F>() };
        let place = Location::caller();
        or_raise(self.cast(VisitWith(closure), arguments, Either(then, PhantomData), place));
    }

    /// For layers above: as [`visit_with`](Self::visit_with), with the thread's node. On the own thread
    /// it is not in delegated context.
    #[doc(hidden)]
    #[track_caller]
    pub fn visit_node<A, U, F>(&self, closure: F, arguments: A) -> U
    where
        A: Portable,
        U: Portable,
        F: FnOnce(&Node, A) -> U + Delegable,
    {
        const { check_captures::<F>() };
        or_raise(self.call("`visit_node`", VisitNode(closure), arguments, Location::caller()))
    }

    /// For layers above: as [`visit_node`](Self::visit_node), but failures come back as errors, except a
    /// panic on this very thread.
    #[doc(hidden)]
    #[track_caller]
    pub fn try_visit_node<A, U, F>(&self, closure: F, arguments: A) -> Result<U, DelegateError>
    where
        A: Portable,
        U: Portable,
        F: FnOnce(&Node, A) -> U + Delegable,
    {
        const { check_captures::<F>() };
        self.call("`try_visit_node`", VisitNode(closure), arguments, Location::caller())
            .map_err(|error| *error)
    }

    /// A visit that waits, by the method `what` called at `place`.
    #[track_caller]
    fn visit_call<I, A, const CATCHES: bool>(
        &self,
        what: &str,
        visit: I,
        arguments: A,
        place: CallSite,
    ) -> CallResult<I::Output>
    where
        I: Invoke<Runtime, A> + 'static,
        I::Output: Portable,
        A: Portable,
    {
        if !self.is_here() {
            return self.call(what, visit, arguments, place);
        }
        check_may_wait(what, place);
        let result = if CATCHES {
            self.try_call(what, Here(visit, place), arguments, place)
        } else {
            self.call(what, Here(visit, place), arguments, place)
        };
        on_node(Node::run_deferred);
        result
    }
}
