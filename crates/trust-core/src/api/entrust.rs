//! How values are entrusted to the thread of a [`Trustee`]: those that travel there, those that are made
//! there, and those that are moved to another thread of the process.

use std::marker::PhantomData;
use std::panic::Location;

use crate::api::apply::or_raise;
use crate::api::callback::{Either, Then};
use crate::api::trust::Trust;
use crate::api::trustee::Trustee;
use crate::closure::invoke::{Delegable, Invoke, check_captures};
use crate::codec::Portable;
use crate::error::{CallResult, DelegateError, RACK_ENDED, outside};
use crate::node::system::Runtime;
use crate::node::{on_node, with_node};

/// Entrusts what a closure makes of the arguments of a request.
#[derive(Clone, Copy)]
pub(super) struct Entrust<F>(pub(super) F);

impl<A, T: 'static, F: FnOnce(A) -> T> Invoke<Runtime, A> for Entrust<F> {
    type Output = Trust<T>;
    fn invoke(self, _: &mut Runtime, arguments: A) -> Trust<T> {
        let value = (self.0)(arguments);
        on_node(|node| Trust::entrust_at(node, value)).expect("requests are served by nodes")
    }
    fn name() -> &'static str {
        std::any::type_name::<F>()
    }
}

impl Trustee {
    /// Sends `value` to the trustee and entrusts it there. The value crosses the rack encoded; to
    /// build it there instead, use [`entrust_with`](Self::entrust_with).
    ///
    /// # Panics
    /// As [`Trust::apply_with`]. [`try_entrust`](Self::try_entrust) returns an error instead.
    #[track_caller]
    pub fn entrust<T: Portable>(&self, value: T) -> Trust<T> {
        let place = Location::caller();
        or_raise(self.call("`entrust`", Entrust(|value: T| value), value, place))
    }

    /// As [`entrust`](Self::entrust), but failures come back as errors.
    ///
    /// # Errors
    /// As [`Trust::try_apply_with`].
    ///
    /// # Panics
    /// As [`Trust::try_apply_with`].
    #[track_caller]
    pub fn try_entrust<T: Portable>(&self, value: T) -> Result<Trust<T>, DelegateError> {
        let place = Location::caller();
        self.try_call("`try_entrust`", Entrust(|value: T| value), value, place)
            .map_err(|error| *error)
    }

    /// As [`entrust`](Self::entrust), without waiting: `then` is called with the trust.
    ///
    /// # Panics
    /// As [`Trust::apply_with_then`].
    #[track_caller]
    pub fn entrust_then<T, C>(&self, value: T, then: C)
    where
        T: Portable,
        C: FnOnce(Trust<T>) + 'static,
    {
        let place = Location::caller();
        or_raise(self.cast(Entrust(|value: T| value), value, Then::new(then, place), place));
    }

    /// As [`entrust_then`](Self::entrust_then), but `then` also gets failures.
    ///
    /// # Panics
    /// As [`Trust::try_apply_then`].
    #[track_caller]
    pub fn try_entrust_then<T, C>(&self, value: T, then: C)
    where
        T: Portable,
        C: FnOnce(Result<Trust<T>, DelegateError>) + 'static,
    {
        let place = Location::caller();
        or_raise(self.cast(Entrust(|value: T| value), value, Either(then, PhantomData), place));
    }

    /// Has the trustee make a value from `arguments`, and entrusts it there. The value itself
    /// never travels.
    ///
    /// # Panics
    /// As [`Trust::apply_with`]. [`try_entrust_with`](Self::try_entrust_with) returns an error instead.
    #[track_caller]
    pub fn entrust_with<A, T, F>(&self, make: F, arguments: A) -> Trust<T>
    where
        A: Portable,
        T: 'static,
        F: FnOnce(A) -> T + Delegable,
    {
        const { check_captures::<F>() };
        or_raise(self.call("`entrust_with`", Entrust(make), arguments, Location::caller()))
    }

    /// As [`entrust_with`](Self::entrust_with), but failures come back as errors: also a panic of
    /// `make`, on any thread.
    ///
    /// # Errors
    /// As [`Trust::try_apply_with`].
    ///
    /// # Panics
    /// As [`Trust::try_apply_with`].
    #[track_caller]
    pub fn try_entrust_with<A, T, F>(
        &self,
        make: F,
        arguments: A,
    ) -> Result<Trust<T>, DelegateError>
    where
        A: Portable,
        T: 'static,
        F: FnOnce(A) -> T + Delegable,
    {
        const { check_captures::<F>() };
        self.try_call("`try_entrust_with`", Entrust(make), arguments, Location::caller())
            .map_err(|error| *error)
    }

    /// As [`entrust_with`](Self::entrust_with), without waiting: `then` is called with the trust.
    ///
    /// # Panics
    /// As [`Trust::apply_with_then`].
    #[track_caller]
    pub fn entrust_with_then<A, T, F, C>(&self, make: F, arguments: A, then: C)
    where
        A: Portable,
        T: 'static,
        F: FnOnce(A) -> T + Delegable,
        C: FnOnce(Trust<T>) + 'static,
    {
        const { check_captures::<F>() };
        let place = Location::caller();
        or_raise(self.cast(Entrust(make), arguments, Then::new(then, place), place));
    }

    /// As [`entrust_with_then`](Self::entrust_with_then), but `then` also gets failures.
    ///
    /// # Panics
    /// As [`Trust::try_apply_then`].
    #[track_caller]
    pub fn try_entrust_with_then<A, T, F, C>(&self, make: F, arguments: A, then: C)
    where
        A: Portable,
        T: 'static,
        F: FnOnce(A) -> T + Delegable,
        C: FnOnce(Result<Trust<T>, DelegateError>) + 'static,
    {
        const { check_captures::<F>() };
        let place = Location::caller();
        or_raise(self.cast(Entrust(make), arguments, Either(then, PhantomData), place));
    }

    /// Moves `value` to a thread of this process and entrusts it there, without encoding it. This
    /// does not wait for the thread, so it also works in delegated closures and in initialisers.
    ///
    /// # Panics
    /// If the trustee is on another host; outside a thread of a rack; if the rack has ended.
    /// [`try_entrust_moved`](Self::try_entrust_moved) returns the last two as errors.
    #[track_caller]
    pub fn entrust_moved<T: Send + 'static>(&self, value: T) -> Trust<T> {
        self.check_is_near();
        or_raise(self.moved(value))
    }

    /// As [`entrust_moved`](Self::entrust_moved), but failures come back as errors.
    ///
    /// # Errors
    /// [`DelegateError::NoRack`] outside a thread of the rack, and if the rack has ended.
    ///
    /// # Panics
    /// If the trustee is on another host.
    #[track_caller]
    pub fn try_entrust_moved<T: Send + 'static>(
        &self,
        value: T,
    ) -> Result<Trust<T>, DelegateError> {
        self.check_is_near();
        self.moved(value).map_err(|error| *error)
    }

    #[track_caller]
    fn check_is_near(&self) {
        let is_far =
            on_node(|node| self.thread_in(node).is_some_and(|thread| thread.host != node.me.host));
        assert!(
            is_far != Some(true),
            "a value can only be moved to a thread of the same process; use `entrust_with`"
        );
    }

    fn moved<T: Send + 'static>(&self, value: T) -> CallResult<Trust<T>> {
        let thread = self.thread_or_outside()?;
        with_node(|node| match node {
            None => Err(outside()),
            Some(node) if node.is_closed() => Err(Box::new(RACK_ENDED)),
            Some(node) if node.me == thread => Ok(Trust::entrust_at(node, value)),
            Some(node) => Ok(Trust::entrust_beside(node, thread, value)),
        })
    }
}
