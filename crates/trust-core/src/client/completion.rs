//! [`Completion`]: what a client does when a reply comes.

use std::any::type_name;

use crate::client::outcome::Outcome;

/// What to do when a request has ended. Runs on the client's thread, outside any fiber.
pub(crate) trait Completion {
    /// Whether a fiber that finds no room for its request waits until there is: those that wait for
    /// their reply anyhow, and those that are dropping something, do not.
    const WAITS_FOR_ROOM: bool = false;

    /// Whether it gets a panic of the arguments' own code while they are encoded as any other
    /// failure. If not, it is dropped, and the panic propagates to the caller.
    const HEARS_PANICS: bool = false;

    /// Does it.
    fn complete(self, outcome: Outcome<'_>);

    /// The waiter that it ends, which nothing else does; null if it ends none.
    fn waiter(&self) -> *const () {
        std::ptr::null()
    }

    /// Its name in messages.
    fn name() -> &'static str
    where
        Self: Sized,
    {
        type_name::<Self>()
    }
}

/// A completion behind a pointer.
pub(crate) fn boxed<C: Completion + 'static>(completion: C) -> Box<dyn FnOnce(Outcome<'_>)> {
    Box::new(move |outcome: Outcome<'_>| completion.complete(outcome))
}

impl Completion for Box<dyn FnOnce(Outcome<'_>)> {
    fn complete(self, outcome: Outcome<'_>) {
        self(outcome);
    }
}
