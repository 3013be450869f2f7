//! What a client does when the reply of a [`PlainCall`](crate::PlainCall) comes.

use std::any::type_name;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use crate::client::completion::{Completion, WaitForRoom};
use crate::client::outcome::Outcome;
use crate::client::waiter::Wake;
use crate::closure::plain_call::{PlainCall, run_layout};
use crate::error::DelegateError;
use crate::wire::words::RunLayout;

/// How a call of plain bytes ends: its result or its own error, unless delegation failed.
pub(crate) type PlainResult<R, E> = Result<Result<R, E>, DelegateError>;

/// Receives the result of a plain call: a callback, or a type of a layer above, which gets its callback back
/// if nothing was sent.
pub trait PlainEnd<R, E>: 'static {
    /// Receives it, on the thread that made the call.
    fn end(self, result: PlainResult<R, E>);
}

impl<R, E, F: FnOnce(PlainResult<R, E>) + 'static> PlainEnd<R, E> for F {
    #[inline(always)]
    fn end(self, result: PlainResult<R, E>) {
        self(result);
    }
}

/// Hands the result of a call of kind `C` on.
pub(crate) struct TellPlain<F, T, C>(F, PhantomData<fn(T, C)>);

impl<F, T, C> TellPlain<F, T, C> {
    #[inline(always)]
    pub(crate) fn new(then: F) -> Self {
        TellPlain(then, PhantomData)
    }

    /// What it was made of.
    #[inline(always)]
    pub(crate) fn then(self) -> F {
        self.0
    }
}

impl<T, C: PlainCall<T>, F: PlainEnd<C::Reply, C::Error>> Completion for TellPlain<F, T, C> {
    const HEARS_PANICS: bool = true;
    const RUN: RunLayout = layout_of::<T, C>();
    const IN_RUNS: bool = run_layout::<T, C>().is_some();

    #[inline(always)]
    fn complete(self, outcome: Outcome<'_>) {
        match outcome.plain_bytes() {
            Some(value) => self.0.end(Ok(Ok(value))),
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

impl<T, C: PlainCall<T>, F: PlainEnd<C::Reply, C::Error>> TellPlain<F, T, C> {
    #[cold]
    #[inline(never)]
    fn complete_with(self, outcome: Outcome<'_>) {
        self.0.end(outcome.caught::<C::Error, _>(Outcome::plain_failure).map(Err));
    }
}

/// Wakes the fiber that waits for the result of a call of kind `C`.
pub(crate) struct WakePlain<T, C: PlainCall<T>>(Wake<Result<C::Reply, C::Error>>);

impl<T, C: PlainCall<T>> WakePlain<T, C> {
    pub(crate) fn new(wake: Wake<Result<C::Reply, C::Error>>) -> Self {
        WakePlain(wake)
    }
}

impl<T, C: PlainCall<T>> Completion for WakePlain<T, C> {
    const RUN: RunLayout = layout_of::<T, C>();
    const IN_RUNS: bool = run_layout::<T, C>().is_some();

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

impl<T, C: PlainCall<T>> WakePlain<T, C> {
    #[cold]
    #[inline(never)]
    fn complete_with(self, outcome: Outcome<'_>) {
        let failure = outcome.caught::<C::Error, _>(Outcome::plain_failure);
        ManuallyDrop::new(self.0).end(failure.map(Err));
    }
}

/// How calls of kind `C` lie in runs; of others than those that are sent in runs, nothing asks.
const fn layout_of<T, C: PlainCall<T>>() -> RunLayout {
    match run_layout::<T, C>() {
        Some(layout) => layout,
        None => RunLayout::WORD,
    }
}
