//! Delegated calls as futures, for tasks of an async runtime on threads of their own.
//!
//! A task's thread is no thread of the rack, so the call is posted to one that is, which makes it
//! and settles the future when the result is there.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::Trust;
use crate::closure::invoke::{Delegable, check_captures};
use crate::codec::Portable;
use crate::error::{DelegateError, RACK_ENDED};
use crate::node::racks;

/// The future of a delegated call. The call is under way whether or not this is polled; dropping it
/// only discards the result.
#[must_use = "a future does nothing for you unless it is awaited"]
pub struct Applied<U>(Arc<Mutex<State<U>>>);

struct State<U> {
    result: Option<Result<U, DelegateError>>,
    waker: Option<Waker>,
}

impl<U> Future for Applied<U> {
    type Output = Result<U, DelegateError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Settles the future; with an error if it is dropped before there is a result.
struct Settle<U>(Arc<Mutex<State<U>>>);

impl<U> Settle<U> {
    fn settle(&self, result: Result<U, DelegateError>) {
        let waker = {
            let mut state = self.0.lock();
            state.result.get_or_insert(result);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<U> Drop for Settle<U> {
    fn drop(&mut self) {
        if Arc::strong_count(&self.0) > 1 {
            self.settle(Err(RACK_ENDED));
        }
    }
}

impl<T: 'static> Trust<T> {
    /// As [`apply`](Self::apply), from any thread of the process, as a future.
    ///
    /// # Errors
    /// The future's, as of [`try_apply`](Self::try_apply); also when the rack ends first.
    pub fn apply_async<F, U>(&self, closure: F) -> Applied<U>
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable + Send,
    {
        const { check_captures::<F>() };
        let trust = self.clone();
        self.post(|settle| {
            move |_: &_| trust.try_apply_then(closure, move |result| settle.settle(result))
        })
    }

    /// As [`apply_with`](Self::apply_with), from any thread of the process, as a future.
    ///
    /// # Errors
    /// As [`apply_async`](Self::apply_async).
    pub fn apply_with_async<F, V, U>(&self, closure: F, arguments: V) -> Applied<U>
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable + Send,
        U: Portable + Send,
    {
        const { check_captures::<F>() };
        let trust = self.clone();
        self.post(|settle| {
            move |_: &_| {
                trust.try_apply_with_then(closure, arguments, move |result| settle.settle(result));
            }
        })
    }

    fn post<U: Send + 'static, J>(&self, job: impl FnOnce(Settle<U>) -> J) -> Applied<U>
    where
        J: FnOnce(&crate::Node) + Send + 'static,
    {
        let state = Arc::new(Mutex::new(State { result: None, waker: None }));
        racks::post(self.home.rack(), job(Settle(state.clone())));
        Applied(state)
    }
}
