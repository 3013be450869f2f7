//! `apply` and its relatives: sending closures to properties (thesis 2.4). `call.rs` says where they go.

use std::marker::PhantomData;
use std::panic::Location;

use crate::Trust;
use crate::api::callback::{Either, Then};
use crate::closure::invoke::{Delegable, Plain, With, check_captures};
use crate::codec::Portable;
use crate::error::{CallResult, Chain, DelegateError};
use crate::node::{Node, on_node};

impl<T: 'static> Trust<T> {
    /// Runs `closure` on the property and returns its result, waiting for it: the current fiber
    /// is suspended, and others run meanwhile. On the trustee's own thread the closure runs at
    /// once; now and then (after some 50 microseconds of such calls) others run before it, so that
    /// a loop of them does not keep the thread. (Thesis 2.4.1.)
    ///
    /// The closure captures nothing; use [`apply_with`](Self::apply_with) or
    /// [`delegate!`](crate::delegate) to pass values.
    ///
    /// # Panics
    /// If the closure panics, with its message; if the trustee's host is gone; outside a fiber of
    /// the rack; and in delegated context, where waiting is not allowed (thesis 2.3.4).
    /// [`try_apply`](Self::try_apply) returns the first two as errors.
    #[doc(alias = "lock", alias = "fetch_add")]
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply<F, U>(&self, closure: F) -> U
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        or_raise(self.call::<_, _, false>(Plain(closure), ()))
    }

    /// As [`apply`](Self::apply), with `arguments` for the closure, which travel with it.
    /// (Thesis 2.4.3.2.)
    ///
    /// # Panics
    /// As [`apply`](Self::apply), and if the arguments cannot be encoded.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply_with<F, V, U>(&self, closure: F, arguments: V) -> U
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        or_raise(self.call::<_, _, false>(With(closure), arguments))
    }

    /// As [`apply`](Self::apply), but failures come back as errors.
    ///
    /// # Errors
    /// [`DelegateError`], when the closure panicked (on whatever thread it ran, this one included),
    /// when the trustee's host is gone, when a value cannot be encoded or decoded, and outside a fiber
    /// of the rack.
    ///
    /// # Panics
    /// In delegated context. If the arguments' own code panics while they are encoded, that panic
    /// propagates.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn try_apply<F, U>(&self, closure: F) -> Result<U, DelegateError>
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        self.call::<_, _, true>(Plain(closure), ()).map_err(|error| *error)
    }

    /// As [`apply_with`](Self::apply_with), but failures come back as errors.
    ///
    /// # Errors
    /// As [`try_apply`](Self::try_apply).
    ///
    /// # Panics
    /// As [`try_apply`](Self::try_apply).
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn try_apply_with<F, V, U>(&self, closure: F, arguments: V) -> Result<U, DelegateError>
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        self.call::<_, _, true>(With(closure), arguments).map_err(|error| *error)
    }

    /// Runs `closure` on the property without waiting; when its result is here, `then` is called
    /// with it, on this thread. Allowed everywhere, also in delegated context. (Thesis 2.4.2.)
    ///
    /// Requests of one thread to one trustee are served in the order they were sent. A fiber waits
    /// here only when there is no room for more requests, and gives way now and then when it calls
    /// properties of its own thread, as in [`apply`](Self::apply). If the request fails, `then` is
    /// not called, and the rack ends with an error that names the line of this call; use
    /// [`try_apply_then`](Self::try_apply_then) to handle failures.
    ///
    /// # Panics
    /// Outside a thread of the rack. If the closure runs at once, because the property is this
    /// thread's own, a panic of the closure or of `then` propagates to the caller.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply_then<F, U, C>(&self, closure: F, then: C)
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
        C: FnOnce(U) + 'static,
    {
        const { check_captures::<F>() };
        self.cast(Plain(closure), (), Then::new(then, Location::caller()));
    }

    /// As [`apply_then`](Self::apply_then), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`apply_then`](Self::apply_then), and if the arguments' own code panics while they are
    /// encoded.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply_with_then<F, V, U, C>(&self, closure: F, arguments: V, then: C)
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
        C: FnOnce(U) + 'static,
    {
        const { check_captures::<F>() };
        self.cast(With(closure), arguments, Then::new(then, Location::caller()));
    }

    /// As [`apply_then`](Self::apply_then), but `then` also gets failures.
    ///
    /// `then` is called exactly once, on this thread, with the result or with the error:
    /// the closure panicked, on any thread, this one included; a value cannot
    /// be encoded or decoded, or its own code for that panicked; the property or the trustee's host
    /// is gone; the rack ended first. In the last case it is called while the rack ends, where new
    /// requests fail too.
    ///
    /// # Panics
    /// Outside a thread of the rack; `then` is not called.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn try_apply_then<F, U, C>(&self, closure: F, then: C)
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
        C: FnOnce(Result<U, DelegateError>) + 'static,
    {
        const { check_captures::<F>() };
        self.cast(Plain(closure), (), Either(then, PhantomData));
    }

    /// As [`try_apply_then`](Self::try_apply_then), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`try_apply_then`](Self::try_apply_then).
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn try_apply_with_then<F, V, U, C>(&self, closure: F, arguments: V, then: C)
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
        C: FnOnce(Result<U, DelegateError>) + 'static,
    {
        const { check_captures::<F>() };
        self.cast(With(closure), arguments, Either(then, PhantomData));
    }

    /// Whether the property lives on the current thread, so that closures run at once.
    #[cfg_attr(optimised, inline(always))]
    pub fn is_local(&self) -> bool {
        on_node(|node| self.is_at(node)).unwrap_or(false)
    }

    /// For layers above: whether the current thread may send requests to the property; elsewhere they
    /// panic. It may not outside its rack.
    #[doc(hidden)]
    pub fn is_in_reach(&self) -> bool {
        on_node(|node| self.is_used_by(node) || self.is_at(node)).unwrap_or(false)
    }
}

/// The result of a request; its failure ends the caller. Called by functions that are themselves
/// marked `track_caller`, and never inside a closure, which forgets the mark: so the panic is one
/// of the line that delegated.
#[cfg_attr(optimised, inline(always))]
#[track_caller]
pub(crate) fn or_raise<U>(result: CallResult<U>) -> U {
    match result {
        Ok(value) => value,
        Err(error) => raise(&error),
    }
}

/// Ends the caller with the failure of its request, and says where that was delegated: the place
/// of the panic itself is lost when the fiber's joiner gets the message.
#[cold]
#[inline(never)]
#[track_caller]
pub(super) fn raise(error: &DelegateError) -> ! {
    if let DelegateError::NoRack(_) = error
        && on_node(Node::is_closed) == Some(true)
    {
        if std::thread::panicking() {
            // A destructor that panics ends the process, so the message must come first.
            panic!(
                "{} (delegated at {}, in a destructor: use `try_apply` there)",
                Chain(error),
                Location::caller()
            );
        }
        // The rack has ended under a fiber that was still waiting: nothing went wrong here.
        std::panic::resume_unwind(Box::new(error.to_string()));
    }
    panic!("{} (delegated at {})", Chain(error), Location::caller())
}
