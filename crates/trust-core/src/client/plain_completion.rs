//! What a client does when the reply of a [`PlainCall`](crate::PlainCall) comes.

use std::any::type_name;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use crate::client::completion::{Completion, WaitForRoom};
use crate::client::outcome::Outcome;
use crate::client::waiter::Wake;
use crate::closure::plain_bytes::PlainBytes;
use crate::codec::Portable;
use crate::error::DelegateError;

/// How a call of plain bytes ends: its result or its own error, unless delegation failed.
pub(crate) type PlainResult<R, E> = Result<Result<R, E>, DelegateError>;

/// Hands the result to a callback.
pub(crate) struct TellPlain<F, R, E>(F, PhantomData<fn(R, E)>);

impl<F, R, E> TellPlain<F, R, E> {
    pub(crate) fn new(then: F) -> Self {
        TellPlain(then, PhantomData)
    }
}

impl<F, R, E> Completion for TellPlain<F, R, E>
where
    F: FnOnce(PlainResult<R, E>) + 'static,
    R: PlainBytes,
    E: Portable,
{
    const HEARS_PANICS: bool = true;

    #[inline(always)]
    fn complete(self, outcome: Outcome<'_>) {
        match outcome.plain_bytes() {
            Some(value) => (self.0)(Ok(Ok(value))),
            None => self.complete_with(outcome),
        }
    }

    fn waits_for_room(&self) -> WaitForRoom {
        WaitForRoom::Always
    }

    fn name() -> &'static str {
        type_name::<F>()
    }
}

impl<F, R, E> TellPlain<F, R, E>
where
    F: FnOnce(PlainResult<R, E>) + 'static,
    R: PlainBytes,
    E: Portable,
{
    #[cold]
    #[inline(never)]
    fn complete_with(self, outcome: Outcome<'_>) {
        (self.0)(outcome.caught::<E, _>(Outcome::plain_failure).map(Err));
    }
}

/// Wakes the fiber that waits for the result.
pub(crate) struct WakePlain<R, E>(pub(crate) Wake<Result<R, E>>);

impl<R: PlainBytes, E: Portable> Completion for WakePlain<R, E> {
    fn waiter(&self) -> *const () {
        self.0.address()
    }

    #[inline(always)]
    fn complete(self, outcome: Outcome<'_>) {
        match outcome.plain_bytes() {
            Some(value) => ManuallyDrop::new(self.0).end(Ok(Ok(value))),
            None => self.complete_with(outcome),
        }
    }
}

impl<R: PlainBytes, E: Portable> WakePlain<R, E> {
    #[cold]
    #[inline(never)]
    fn complete_with(self, outcome: Outcome<'_>) {
        let failure = outcome.caught::<E, _>(Outcome::plain_failure);
        ManuallyDrop::new(self.0).end(failure.map(Err));
    }
}
