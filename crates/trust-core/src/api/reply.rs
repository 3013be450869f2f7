//! Calls whose reply is waited for later: [`Reply`], `apply_later` and `launch_later`. (Calls with a
//! timeout are in `timed.rs`.)
//!
//! The reply goes into a cell that the fiber shares with the request's callback. So the fiber may wait
//! for it beside other things ([`select!`](fiber::select)), and may stop waiting: the callback drops a
//! result that comes later, and the cell with it.

use std::any::type_name;
use std::cell::Cell;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::Trust;
use crate::api::apply::or_raise;
use crate::api::callback::Callback;
use crate::api::latch::Latch;
use crate::client::completion::WaitForRoom;
use crate::closure::invoke::{Delegable, Plain, With, check_captures};
use crate::codec::Portable;
use crate::error::{DelegateError, RACK_ENDED};

/// How far a call has come.
enum State<U> {
    /// Under way; the waker of the fiber that waits.
    Pending(Option<Waker>),
    Ended(Result<U, DelegateError>),
    /// The result was taken, or nothing will ask for it.
    Over,
}

/// The reply of a delegated call that is under way.
///
/// It is a future, for [`select!`](fiber::select) and for code that awaits; a fiber that waits for
/// nothing else calls [`wait`](Self::wait). The call is made whether or not the reply is waited for.
/// Dropping it only drops the result, when that comes. It stays on the thread that made the call.
#[must_use = "a failure of the call is only in its reply; `apply_then` reports failures by itself"]
pub struct Reply<U>(Rc<Cell<State<U>>>);

impl<U> Reply<U> {
    /// A reply that a caller waits for, and who waits `room` for room for the request.
    pub(super) fn new(room: WaitForRoom) -> (Reply<U>, Keep<U>) {
        let state = Rc::new(Cell::new(State::Pending(None)));
        (Reply(state.clone()), Keep { state, room })
    }

    /// Whether the reply is there: [`wait`](Self::wait) will not wait.
    pub fn is_ready(&self) -> bool {
        let state = self.0.replace(State::Over);
        let is_ready = matches!(state, State::Ended(_));
        self.0.set(state);
        is_ready
    }

    /// Waits for the reply: the current fiber is suspended, and others run meanwhile.
    ///
    /// # Errors
    /// As [`Trust::try_apply_then`].
    ///
    /// # Panics
    /// Outside a fiber, and in delegated context.
    #[track_caller]
    pub fn wait(mut self) -> Result<U, DelegateError> {
        fiber::drive("the reply of a call (`Reply::wait`)", Pin::new(&mut self))
            .unwrap_or(Err(RACK_ENDED))
    }
}

impl<U> Future for Reply<U> {
    type Output = Result<U, DelegateError>;

    /// # Panics
    /// After it has returned the result.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0.replace(State::Over) {
            State::Ended(result) => Poll::Ready(result),
            State::Pending(before) => {
                let waker = context.waker().clone();
                self.0.set(State::Pending(Some(waker)));
                drop(before);
                Poll::Pending
            }
            State::Over => panic!("a reply was polled after its end"),
        }
    }
}

impl<U> Drop for Reply<U> {
    fn drop(&mut self) {
        drop(self.0.replace(State::Over));
    }
}

impl<U> fmt::Debug for Reply<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("is_ready", &self.is_ready()).finish()
    }
}

/// Puts the result of a call where its [`Reply`] finds it.
pub(super) struct Keep<U> {
    state: Rc<Cell<State<U>>>,
    room: WaitForRoom,
}

impl<U> Keep<U> {
    fn end(&self, result: Result<U, DelegateError>) {
        match self.state.replace(State::Over) {
            State::Pending(waker) => {
                self.state.set(State::Ended(result));
                waker.into_iter().for_each(Waker::wake);
            }
            // Nothing waits for it any more.
            State::Over => drop(result),
            State::Ended(_) => unreachable!("a call ends once"),
        }
    }
}

impl<U: 'static> Callback<U> for Keep<U> {
    const HEARS_FAILURES: bool = true;

    fn done(self, value: U) {
        self.end(Ok(value));
    }

    fn failed(self, error: DelegateError) {
        self.end(Err(error));
    }

    fn waits_for_room(&self) -> WaitForRoom {
        self.room
    }

    fn name() -> &'static str {
        type_name::<Reply<U>>()
    }
}

/// Without a result it is dropped only with work that the end of the rack leaves undone.
impl<U> Drop for Keep<U> {
    fn drop(&mut self) {
        match self.state.replace(State::Over) {
            State::Pending(waker) => {
                self.state.set(State::Ended(Err(RACK_ENDED)));
                waker.into_iter().for_each(Waker::wake);
            }
            other => self.state.set(other),
        }
    }
}

impl<T: 'static> Trust<T> {
    /// As [`try_apply`](Self::try_apply), but without waiting: the reply can be waited for later, beside
    /// others, or not at all. Allowed everywhere, also in delegated context.
    ///
    /// ```
    /// # use gossamer_trust_core::{DelegateError, Trust};
    /// fn both(left: &Trust<u64>, right: &Trust<u64>) -> Result<u64, DelegateError> {
    ///     let (left, right) = (left.apply_later(|n| *n), right.apply_later(|n| *n));
    ///     Ok(left.wait()? + right.wait()?)
    /// }
    /// ```
    ///
    /// A fiber waits here only when there is no room for more requests, and gives way now and then, as
    /// in [`apply_then`](Self::apply_then).
    ///
    /// # Panics
    /// Outside a thread of the rack.
    #[track_caller]
    pub fn apply_later<F, U>(&self, closure: F) -> Reply<U>
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        let (reply, keep) = Reply::new(WaitForRoom::Always);
        self.cast(Plain(closure), (), keep);
        reply
    }

    /// As [`apply_later`](Self::apply_later), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`apply_later`](Self::apply_later).
    #[track_caller]
    pub fn apply_with_later<F, V, U>(&self, closure: F, arguments: V) -> Reply<U>
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        let (reply, keep) = Reply::new(WaitForRoom::Always);
        self.cast(With(closure), arguments, keep);
        reply
    }
}

impl<T: 'static> Trust<Latch<T>> {
    /// As [`launch`](Self::launch), but without waiting, as [`apply_later`](Trust::apply_later).
    ///
    /// # Panics
    /// Outside a thread of the rack.
    #[track_caller]
    pub fn launch_later<F, U>(&self, closure: F) -> Reply<U>
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        let (reply, keep) = Reply::new(WaitForRoom::Always);
        or_raise(self.launch_cast(Plain(closure), (), keep, Location::caller()));
        reply
    }

    /// As [`launch_later`](Self::launch_later), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`launch_later`](Self::launch_later).
    #[track_caller]
    pub fn launch_with_later<F, V, U>(&self, closure: F, arguments: V) -> Reply<U>
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        let (reply, keep) = Reply::new(WaitForRoom::Always);
        or_raise(self.launch_cast(With(closure), arguments, keep, Location::caller()));
        reply
    }
}
