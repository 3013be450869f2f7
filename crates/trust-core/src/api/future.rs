//! Delegated calls as futures, for tasks of an async runtime on threads of their own.
//!
//! A task's thread is no thread of the rack, so the call is posted to one that is, which makes it
//! and completes the future when the result is there.

use std::pin::Pin;
use std::task::{Context, Poll};

use fiber::oneshot::{self, Receiver, Sender};

use crate::Trust;
use crate::closure::invoke::{Delegable, check_captures};
use crate::codec::Portable;
use crate::error::{DelegateError, RACK_ENDED};
use crate::node::racks;

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

impl<T: 'static> Trust<T> {
    /// As [`apply`](Self::apply), from any thread of the process, as a future.
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
        self.post(|sender| {
            move |_: &_| trust.try_apply_then(closure, move |result| sender.send(result))
        })
    }

    /// As [`apply_with`](Self::apply_with), from any thread of the process, as a future.
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
        self.post(|sender| {
            move |_: &_| {
                trust.try_apply_with_then(closure, arguments, move |result| sender.send(result));
            }
        })
    }

    fn post<U: Send + 'static, J>(
        &self,
        job: impl FnOnce(Sender<Result<U, DelegateError>>) -> J,
    ) -> DelegateFuture<U>
    where
        J: FnOnce(&crate::Node) + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        racks::post(self.home.rack(), job(sender));
        DelegateFuture(receiver)
    }
}
