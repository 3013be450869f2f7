//! How a fiber waits for a future: it polls, and parks until the future's waker has been woken.
//!
//! The fiber's token alone does not tell: a future may wait while it is polled, which uses up the token
//! of a wake that came before. So the waker has a flag of its own, which is asked before each park.

use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::ops;
use crate::wait::Wait;

/// Polls `future` until it is ready, and parks the running fiber in between. `what` names the wait in
/// messages, and describes it in [reports](crate::waiting_fibers). `None` if the fiber is unwound
/// because its scheduler was dropped, and the future is not ready when all other fibers have been.
///
/// # Panics
/// Outside fibers, and where [`Config::may_wait`](crate::Config::may_wait) refuses, even if the future
/// is ready.
#[track_caller]
pub fn drive<F: Future>(what: &'static str, future: Pin<&mut F>) -> Option<F::Output> {
    drive_until(what, future, None, Location::caller())
}

/// As [`drive`], called at `place`, until `deadline` at most: `None` also if that has passed. `what`
/// describes the wait.
///
/// # Panics
/// As [`drive`].
#[track_caller]
pub fn drive_until<F: Future>(
    what: &'static str,
    mut future: Pin<&mut F>,
    deadline: Option<Instant>,
    place: &'static Location<'static>,
) -> Option<F::Output> {
    ops::check_may_wait(what, place);
    let Some(unparker) = ops::unparker() else {
        panic!("{what} at {place} is outside a fiber; spawn a fiber that calls it");
    };
    let waker = unparker.waker();
    let mut context = Context::from_waker(&waker);
    let mut wait = Wait::at(place);
    let mut goes_on = true;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        if !goes_on {
            return None;
        }
        while goes_on && !unparker.take_woken() {
            wait.explain(|| what.to_owned());
            goes_on = match deadline {
                Some(deadline) => ops::park_until_then(deadline),
                None => ops::park_or_give_up(),
            };
        }
    }
}
