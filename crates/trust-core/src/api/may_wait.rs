//! [`may_wait`], [`check_may_wait`]: refusing waits in delegated context, for functions that send no request.
//! [`write_running`]: which delegated code runs. [`in_delegated_context`]: entering that context, for
//! layers that run code of their own in it.

use std::fmt;
use std::panic::Location;

use crate::closure::context::Context;
use crate::node::on_node;

/// Refuses a wait in delegated context, by any function: `what`, called at `place`. For functions
/// that wait without sending a request, such as those of fibers.
///
/// # Panics
/// In delegated context, at the caller's line. The panic names both places, ends the delegated closure
/// and travels to its client.
#[inline]
#[track_caller]
pub fn check_may_wait(what: &str, place: &'static Location<'static>) {
    if let Err(refusal) = may_wait(what, place) {
        panic!("{refusal}");
    }
}

/// Whether the running code may wait in `what`, called at `place`: what the waits of fibers ask
/// (`fiber::Config::may_wait`).
///
/// # Errors
/// In delegated context. The error names both places.
#[inline]
pub fn may_wait(what: &str, place: &'static Location<'static>) -> Result<(), Box<str>> {
    let refusal = on_node(|node| {
        let context = node.context();
        (!context.is_free()).then(|| context.refusal(what, place))
    });
    match refusal {
        Some(Some(refusal)) => Err(refusal.into()),
        _ => Ok(()),
    }
}

/// Writes which delegated code the current thread runs, if it runs any, for the message that reports
/// the overflow of its stack. Allocates nothing and waits for nothing, so a signal handler may call it.
///
/// # Errors
/// Those of `to`.
pub fn write_running(to: &mut dyn fmt::Write) -> fmt::Result {
    let origin = on_node(|node| (!node.context().is_free()).then(|| node.context().origin()));
    match origin.flatten() {
        Some(origin) => write!(to, " in {origin}"),
        None => Ok(()),
    }
}

/// For layers above: runs `code` in delegated context, as if it were a closure that was delegated at
/// `place` to a property of this thread: it may not wait. On a thread that is no node of a rack, it
/// just runs.
#[doc(hidden)]
#[inline]
pub fn in_delegated_context<R>(place: &'static Location<'static>, code: impl FnOnce() -> R) -> R {
    let mut code = Some(code);
    let result = on_node(|node| {
        let code = code.take()?;
        let context = node.context().enter(Context::Inline(place));
        let result = code();
        drop(context);
        node.run_deferred();
        Some(result)
    });
    match (result.flatten(), code) {
        (Some(result), _) => result,
        (None, Some(code)) => code(),
        (None, None) => unreachable!("code that was taken has run"),
    }
}
