//! [`Completion`]: what a client does when a reply comes.

use std::any::type_name;
use std::time::{Duration, Instant};

use crate::client::outcome::Outcome;
use crate::wire::words::RunLayout;

/// A time that a caller spends on a call at most.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) timeout: Duration,
    /// When that has passed; `None`: later than the clock can express.
    pub(crate) deadline: Option<Instant>,
}

impl Limit {
    pub(crate) fn new(timeout: Duration) -> Limit {
        Limit { timeout, deadline: fiber::deadline_after(timeout) }
    }
}

/// Whether a fiber that finds no room for its request waits until there is.
#[derive(Clone, Copy)]
pub(crate) enum WaitForRoom {
    /// No: it waits for its reply anyhow, or is dropping something.
    No,
    /// For as long as it takes.
    Always,
    /// For that long; then the request is not sent.
    Within(Limit),
}

/// What to do when a request has ended. Runs on the client's thread, outside any fiber.
pub(crate) trait Completion {
    /// Whether it gets a panic of the arguments' own code while they are encoded as any other
    /// failure. If not, it is dropped, and the panic propagates to the caller.
    const HEARS_PANICS: bool = false;

    /// How requests with such completions lie in runs.
    const RUN: RunLayout = RunLayout::WORD;

    /// Whether its request may have a result in its place. If not, there is no code for that.
    const IN_PLACE: bool = true;

    /// Whether its request may be one of a run, as far as it is a constant.
    const IN_RUNS: bool = Self::IN_PLACE;

    /// Does it.
    fn complete(self, outcome: Outcome<'_>);

    /// Whether its fiber waits for room.
    fn waits_for_room(&self) -> WaitForRoom {
        WaitForRoom::No
    }

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
pub(crate) type Boxed = Box<dyn FnOnce(Outcome<'_>)>;

/// Puts a completion behind a pointer.
pub(crate) fn boxed<C: Completion + 'static>(completion: C) -> Boxed {
    Box::new(move |outcome: Outcome<'_>| completion.complete(outcome))
}

impl Completion for Boxed {
    const IN_RUNS: bool = false;

    fn complete(self, outcome: Outcome<'_>) {
        self(outcome);
    }
}
