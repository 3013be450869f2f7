//! Which fibers of a thread wait, for what, since when: a debugging aid that costs a fiber nothing
//! until it is used.
//!
//! Nothing is noted when a fiber parks. A fiber that wants to know, by [`waiting_fibers`], unparks all
//! others that are parked. Each looks again whether its wait has ended, as after any unpark, and says
//! before it parks again what it waits for ([`Wait::explain`]), on its own stack:
//!
//! ```text
//!   the asking fiber              a fiber that waits
//!     asking = true                 (parked)
//!     unpark all, yield  ------->   not ended: explain, park
//!     asking = false     <-------
//!     collect the answers
//! ```
//!
//! So the time from which a wait is known is that of the first question it was asked.

use std::fmt;
use std::panic::Location;
use std::time::Instant;

use crate::core::block::{Block, FiberId};
use crate::core::{Answer, Core, current};
use crate::ops;

/// A wait of the running fiber, kept on its stack while it lasts.
#[derive(Debug)]
pub struct Wait {
    place: Option<&'static Location<'static>>,
    /// When it was first asked.
    since: Option<Instant>,
}

impl Wait {
    /// A wait that begins at `place`.
    #[inline(always)]
    pub fn at(place: &'static Location<'static>) -> Wait {
        Wait { place: Some(place), since: None }
    }

    /// A wait whose description says where it began, if that is known.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "a wait is nothing that has a usual value")]
    pub fn new() -> Wait {
        Wait { place: None, since: None }
    }

    /// To be called before each park of the wait. If the fiber is asked what it waits for, `what`
    /// answers.
    ///
    /// The answer is asked for its text later, by the fiber that wants to know, which may wait then.
    #[inline]
    pub fn explain<W, D>(&mut self, what: W)
    where
        W: FnOnce() -> D,
        D: fmt::Display + Send + 'static,
    {
        if is_asked() {
            self.answer(Box::new(what()));
        }
    }

    #[cold]
    fn answer(&mut self, what: Box<dyn fmt::Display + Send>) {
        let since = *self.since.get_or_insert_with(Instant::now);
        let answer = Answer { what, place: self.place, since: Some(since) };
        current::with_fiber(|core, block| {
            core.answers.borrow_mut().push((block.id.get(), answer));
        });
    }
}

/// Whether the running fiber is asked what it waits for.
#[inline]
fn is_asked() -> bool {
    current::with_fiber(|core, _| core.asking.get()).unwrap_or(false)
}

/// A fiber that waits, as [`waiting_fibers`] has found it.
pub struct WaitingFiber {
    /// The fiber.
    pub id: FiberId,
    /// Its name.
    pub name: String,
    answer: Answer,
}

impl WaitingFiber {
    /// What it waits for. To be shown by a fiber of the same thread: the text may have to be fetched
    /// from another one, so that this may wait.
    pub fn what(&self) -> &(dyn fmt::Display + Send) {
        &*self.answer.what
    }

    /// Where the wait began; `None` if what it waits for says so, or if it is not known.
    pub fn place(&self) -> Option<&'static Location<'static>> {
        self.answer.place
    }

    /// When the wait was first seen; `None` if it does not say what it waits for.
    pub fn since(&self) -> Option<Instant> {
        self.answer.since
    }
}

impl fmt::Debug for WaitingFiber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingFiber").field("id", &self.id).field("name", &self.name).finish()
    }
}

/// The name of a fiber of this thread, unless it has ended.
pub fn name_of(id: FiberId) -> Option<String> {
    current::with_core(|core| core.find(id).map(Block::name)).flatten()
}

/// Asks the other fibers of this thread what they wait for. To be called by a fiber; elsewhere it
/// returns nothing.
///
/// It wakes all fibers that are parked, without need: fibers that park bare must be ready for that, as
/// [`park`](crate::park) says.
///
/// # Panics
/// In a fiber, where [`Config::may_wait`](crate::Config::may_wait) refuses: it lets the others run.
///
/// ```
/// use gossamer_fiber::{Config, Scheduler, park, sleep, spawn_local, waiting_fibers};
/// use std::time::Duration;
///
/// let scheduler = Scheduler::new(Config::default())?;
/// let report = scheduler.enter(|| {
///     spawn_local(|| sleep(Duration::from_secs(60)));
///     spawn_local(|| loop {
///         park()
///     });
///     spawn_local(waiting_fibers)
/// });
/// scheduler.run(64);
/// let report = report.join()?;
/// let what = report.iter().map(|fiber| fiber.what().to_string()).collect::<Vec<_>>();
/// assert_eq!(what[0], "the end of a sleep");
/// assert_eq!(what[1], "an unpark");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn waiting_fibers() -> Vec<WaitingFiber> {
    if ops::in_fiber() {
        ops::check_caller_may_wait("`waiting_fibers`");
    }
    let Some(asked) = current::with_fiber(|core, block| core.ask_others(block)) else {
        return Vec::new();
    };
    // Those asked are in the queue in front of this fiber.
    current::with_fiber(Core::yield_now);
    current::with_fiber(|core, _| core.take_answers(asked))
        .unwrap_or_default()
        .into_iter()
        .map(|(id, name, answer)| WaitingFiber { id, name, answer })
        .collect()
}
