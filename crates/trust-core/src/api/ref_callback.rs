//! [`RefCallback`]: gets the view of a call that does not wait, or the failure (as [`Callback`] does with
//! results).
//!
//! [`Callback`]: crate::api::callback::Callback

use std::marker::PhantomData;

use crate::api::callback::NotesPanic;
use crate::client::completion::{Completion, WaitForRoom};
use crate::client::outcome::Outcome;
use crate::codec::AsView;
use crate::error::DelegateError;
use crate::node::{CallSite, on_node};

/// Gets the view of a call that does not wait.
pub(super) trait RefCallback<R: AsView + ?Sized>: Sized + 'static {
    /// As `Callback::HEARS_FAILURES`.
    const HEARS_FAILURES: bool;

    fn done(self, found: Option<R::View<'_>>);
    fn failed(self, error: DelegateError);

    /// The name of the user's callback in messages.
    fn name() -> &'static str;
}

/// A callback for the view alone, and where it was given.
pub(super) struct ThenRef<C> {
    pub(super) then: C,
    pub(super) place: CallSite,
}

impl<R, C> RefCallback<R> for ThenRef<C>
where
    R: AsView + ?Sized,
    C: for<'a> FnOnce(Option<R::View<'a>>) + 'static,
{
    const HEARS_FAILURES: bool = false;

    #[cfg_attr(optimised, inline(always))]
    fn done(self, found: Option<R::View<'_>>) {
        let call = NotesPanic(self.place);
        (self.then)(found);
        std::mem::forget(call);
    }

    fn failed(self, error: DelegateError) {
        on_node(|node| node.report(error, Some(self.place)));
    }

    fn name() -> &'static str {
        std::any::type_name::<C>()
    }
}

/// A callback for the view or the failure.
pub(super) struct EitherRef<C>(pub(super) C);

impl<R, C> RefCallback<R> for EitherRef<C>
where
    R: AsView + ?Sized,
    C: for<'a> FnOnce(Result<Option<R::View<'a>>, DelegateError>) + 'static,
{
    const HEARS_FAILURES: bool = true;

    #[cfg_attr(optimised, inline(always))]
    fn done(self, found: Option<R::View<'_>>) {
        (self.0)(Ok(found));
    }

    fn failed(self, error: DelegateError) {
        (self.0)(Err(error));
    }

    fn name() -> &'static str {
        std::any::type_name::<C>()
    }
}

/// Calls a callback when the reply comes, before its place is used again.
pub(super) struct TellRef<C, R: ?Sized>(pub(super) C, pub(super) PhantomData<fn(&R)>);

impl<R: AsView + ?Sized, C: RefCallback<R>> Completion for TellRef<C, R> {
    const HEARS_PANICS: bool = C::HEARS_FAILURES;
    const IN_RUNS: bool = false;

    fn waits_for_room(&self) -> WaitForRoom {
        WaitForRoom::Always
    }

    #[inline]
    fn complete(self, outcome: Outcome<'_>) {
        outcome.view::<R, _>(|found| match found {
            Ok(found) => self.0.done(found),
            Err(error) => self.0.failed(error),
        });
    }

    fn name() -> &'static str {
        C::name()
    }
}
