//! [`Callback`]: gets the result of a call that does not wait, or the failure.

use std::any::type_name;
use std::marker::PhantomData;

use crate::client::completion::{Completion, WaitForRoom};
use crate::client::outcome::Outcome;
use crate::codec::{self, Portable};
use crate::error::DelegateError;
use crate::node::{CallSite, on_node};

/// Gets the result of a call that does not wait.
pub(crate) trait Callback<U>: Sized + 'static {
    /// Whether a callback of the user gets failures, panics on this thread included. If not,
    /// such a panic propagates to the caller.
    const HEARS_FAILURES: bool;

    fn done(self, value: U);
    fn failed(self, error: DelegateError);

    /// Whether the caller, a fiber, waits for room for the request.
    fn waits_for_room(&self) -> WaitForRoom {
        WaitForRoom::Always
    }

    /// The name of the user's callback in messages.
    fn name() -> &'static str;

    #[cfg_attr(optimised, inline(always))]
    fn tell(self, result: Result<U, DelegateError>) {
        match result {
            Ok(value) => self.done(value),
            Err(error) => self.failed(error),
        }
    }
}

/// A callback for the result alone, and where it was given: a failure is reported with that.
pub(crate) struct Then<C, U> {
    then: C,
    place: CallSite,
    _result: PhantomData<fn(U)>,
}

impl<C, U> Then<C, U> {
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn new(then: C, place: CallSite) -> Self {
        Then { then, place, _result: PhantomData }
    }
}

/// Notes the place of a call if its callback panics: it is dropped only then.
pub(crate) struct NotesPanic(pub(crate) CallSite);

impl Drop for NotesPanic {
    #[cold]
    fn drop(&mut self) {
        on_node(|node| node.context().note_panic(self.0));
    }
}

impl<U: 'static, C: FnOnce(U) + 'static> Callback<U> for Then<C, U> {
    const HEARS_FAILURES: bool = false;

    #[cfg_attr(optimised, inline(always))]
    fn done(self, value: U) {
        let call = NotesPanic(self.place);
        (self.then)(value);
        std::mem::forget(call);
    }

    fn failed(self, error: DelegateError) {
        on_node(|node| node.report(error, Some(self.place)));
    }

    fn name() -> &'static str {
        type_name::<C>()
    }
}

/// A callback for the result or the failure.
pub(crate) struct Either<C, U>(pub(crate) C, pub(crate) PhantomData<fn(U)>);

impl<U: 'static, C: FnOnce(Result<U, DelegateError>) + 'static> Callback<U> for Either<C, U> {
    const HEARS_FAILURES: bool = true;

    #[cfg_attr(optimised, inline(always))]
    fn done(self, value: U) {
        (self.0)(Ok(value));
    }

    fn failed(self, error: DelegateError) {
        (self.0)(Err(error));
    }

    fn name() -> &'static str {
        type_name::<C>()
    }
}

/// Calls a callback when the reply comes.
pub(crate) struct Tell<C, U>(pub(crate) C, pub(crate) PhantomData<fn(U)>);

impl<U: Portable, C: Callback<U>> Completion for Tell<C, U> {
    const HEARS_PANICS: bool = C::HEARS_FAILURES;
    const IN_RUNS: bool = codec::may_be_plain::<U>();

    #[cfg_attr(optimised, inline(always))]
    fn complete(self, outcome: Outcome<'_>) {
        match outcome.at_hand() {
            Some(value) => self.0.done(value),
            None => self.complete_with(outcome),
        }
    }

    fn waits_for_room(&self) -> WaitForRoom {
        self.0.waits_for_room()
    }

    fn name() -> &'static str {
        C::name()
    }
}

impl<U: Portable, C: Callback<U>> Tell<C, U> {
    #[inline(never)]
    fn complete_with(self, outcome: Outcome<'_>) {
        let result = if const { C::HEARS_FAILURES } {
            outcome.caught::<U, _>(Outcome::result)
        } else {
            outcome.result()
        };
        self.0.tell(result);
    }
}
