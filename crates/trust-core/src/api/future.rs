//! Delegated calls as futures, for tasks of an async runtime on threads of their own.
//!
//! A task's thread is no thread of the rack, so the call is posted to one that is, which makes it
//! and completes the future when the result is there.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use fiber::oneshot::{self, Receiver, Sender};

use crate::api::callback::Either;
use crate::api::entrust::Entrust;
use crate::api::latch::Latch;
use crate::api::trust::Trust;
use crate::api::trustee::Trustee;
use crate::api::visit::{Visit, VisitWith};
use crate::closure::invoke::{Delegable, Invoke, Plain, With, check_captures};
use crate::codec::Portable;
use crate::error::{DelegateError, RACK_ENDED};
use crate::node::system::Runtime;
use crate::node::{CallSite, racks};

/// The future of a delegated call. The call is under way whether or not this is polled; dropping it
/// only discards the result.
#[must_use = "a future does nothing for you unless it is awaited"]
pub struct DelegateFuture<U>(Receiver<Result<U, DelegateError>>);

impl<U> Future for DelegateFuture<U> {
    type Output = Result<U, DelegateError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = Pin::new(&mut self.get_mut().0).poll(context);
        // The call, or the thread that should have made it, is gone.
        result.map(|result| result.unwrap_or(Err(RACK_ENDED)))
    }
}

impl<U> DelegateFuture<U> {
    /// Posts `job` to rack `rack`; it gets what completes the future.
    pub(super) fn post<J>(
        rack: u32,
        job: impl FnOnce(Sender<Result<U, DelegateError>>) -> J,
    ) -> Self
    where
        U: Send + 'static,
        J: FnOnce(&crate::Node) + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        racks::post(rack, job(sender));
        DelegateFuture(receiver)
    }
}

impl<U> fmt::Debug for DelegateFuture<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DelegateFuture")
    }
}

impl<T: 'static> Trust<T> {
    /// As [`try_apply`](Self::try_apply), from any thread of the process, as a future.
    ///
    /// # Errors
    /// The future's, as of [`try_apply`](Self::try_apply); also when the rack ends first.
    pub fn apply_async<F, U>(&self, closure: F) -> DelegateFuture<U>
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable + Send,
    {
        const { check_captures::<F>() };
        let trust = self.clone();
        DelegateFuture::post(self.home.rack(), |sender| {
            move |_: &_| trust.try_apply_then(closure, move |result| sender.send(result))
        })
    }

    /// As [`try_apply_with`](Self::try_apply_with), from any thread of the process, as a future.
    ///
    /// # Errors
    /// As [`apply_async`](Self::apply_async).
    pub fn apply_with_async<F, V, U>(&self, closure: F, arguments: V) -> DelegateFuture<U>
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable + Send,
        U: Portable + Send,
    {
        const { check_captures::<F>() };
        let trust = self.clone();
        DelegateFuture::post(self.home.rack(), |sender| {
            move |_: &_| {
                trust.try_apply_with_then(closure, arguments, move |result| sender.send(result));
            }
        })
    }
}

impl<T: 'static> Trust<Latch<T>> {
    /// As [`try_launch`](Self::try_launch), from any thread of the process, as a future.
    ///
    /// # Errors
    /// The future's, as of [`try_launch`](Self::try_launch); also when the rack ends first.
    #[track_caller]
    pub fn launch_async<F, U>(&self, closure: F) -> DelegateFuture<U>
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable + Send,
    {
        const { check_captures::<F>() };
        self.launch_posted(Plain(closure), (), Location::caller())
    }

    /// As [`try_launch_with`](Self::try_launch_with), from any thread of the process, as a future.
    ///
    /// # Errors
    /// As [`launch_async`](Self::launch_async).
    #[track_caller]
    pub fn launch_with_async<F, V, U>(&self, closure: F, arguments: V) -> DelegateFuture<U>
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable + Send,
        U: Portable + Send,
    {
        const { check_captures::<F>() };
        self.launch_posted(With(closure), arguments, Location::caller())
    }

    fn launch_posted<I, V>(
        &self,
        invoke: I,
        arguments: V,
        place: CallSite,
    ) -> DelegateFuture<I::Output>
    where
        I: Invoke<T, V> + Send + 'static,
        I::Output: Portable + Send,
        V: Portable + Send,
    {
        let trust = self.clone();
        DelegateFuture::post(self.home.rack(), |sender| {
            move |_: &_| {
                let then = Either(move |result| sender.send(result), PhantomData);
                // A thread of another rack drops what completes the future.
                let _ = trust.launch_cast(invoke, arguments, then, place);
            }
        })
    }
}

impl Trustee {
    /// As [`try_visit`](Self::try_visit), from any thread of the process, as a future.
    ///
    /// # Errors
    /// The future's, as of [`try_visit`](Self::try_visit); also when the rack ends first.
    #[track_caller]
    pub fn visit_async<F, U>(&self, closure: F) -> DelegateFuture<U>
    where
        F: FnOnce() -> U + Delegable,
        U: Portable + Send,
    {
        const { check_captures::<F>() };
        self.posted(Visit(closure), (), Location::caller())
    }

    /// As [`try_visit_with`](Self::try_visit_with), from any thread of the process, as a future.
    ///
    /// # Errors
    /// As [`visit_async`](Self::visit_async).
    #[track_caller]
    pub fn visit_with_async<F, V, U>(&self, closure: F, arguments: V) -> DelegateFuture<U>
    where
        F: FnOnce(V) -> U + Delegable,
        V: Portable + Send,
        U: Portable + Send,
    {
        const { check_captures::<F>() };
        self.posted(VisitWith(closure), arguments, Location::caller())
    }

    /// As [`try_entrust`](Self::try_entrust), from any thread of the process, as a future.
    ///
    /// # Errors
    /// The future's, as of [`try_entrust`](Self::try_entrust); also when the rack ends first.
    #[track_caller]
    pub fn entrust_async<T: Portable + Send>(&self, value: T) -> DelegateFuture<Trust<T>> {
        self.posted(Entrust(|value: T| value), value, Location::caller())
    }

    /// As [`try_entrust_with`](Self::try_entrust_with), from any thread of the process, as a future.
    ///
    /// # Errors
    /// As [`entrust_async`](Self::entrust_async).
    #[track_caller]
    pub fn entrust_with_async<F, V, T>(&self, make: F, arguments: V) -> DelegateFuture<Trust<T>>
    where
        F: FnOnce(V) -> T + Delegable,
        V: Portable + Send,
        T: 'static,
    {
        const { check_captures::<F>() };
        self.posted(Entrust(make), arguments, Location::caller())
    }

    fn posted<I, V>(&self, invoke: I, arguments: V, place: CallSite) -> DelegateFuture<I::Output>
    where
        I: Invoke<Runtime, V> + Send + 'static,
        I::Output: Portable + Send,
        V: Portable + Send,
    {
        let trustee = *self;
        DelegateFuture::post(self.rack(), |sender| {
            move |_: &_| {
                let then = Either(move |result| sender.send(result), PhantomData);
                // A thread of another rack drops what completes the future.
                let _ = trustee.cast(invoke, arguments, then, place);
            }
        })
    }
}
