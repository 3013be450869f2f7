//! Operations of the running fiber: identify itself, wait, and wake other fibers of its thread.

use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::core::block::FiberId;
use crate::core::{Core, current};
use crate::unparker::Unparker;

/// The running fiber's id; `None` outside fibers.
#[inline]
pub fn current() -> Option<FiberId> {
    current::with_fiber(|_, block| block.id.get())
}

/// Whether the caller runs on a fiber.
#[inline]
pub fn in_fiber() -> bool {
    current::with_fiber(|_, _| ()).is_some()
}

/// The running fiber's name: the one given at spawn, or "fiber N"; `None` outside fibers.
pub fn name() -> Option<String> {
    current::with_fiber(|_, block| block.name())
}

/// Waits for the token that [`unpark`] hands out, and uses it up. When the token is there already,
/// returns at once. Several unparks before one park are one token.
///
/// A token may be left over from an earlier wait, so park in a loop:
/// `while !done.get() { park() }`.
///
/// Other waits are built on it, so it does not ask
/// [`Config::may_wait`](crate::Config::may_wait); those waits ask first.
///
/// # Panics
/// Panics outside fibers, where nothing could ever resume the caller.
#[inline(always)]
#[track_caller]
pub fn park() {
    if current::with_fiber(Core::park).is_none() {
        outside("park");
    }
}

/// As [`park`], for waits that can be given up. Returns false, without having parked, in a
/// destructor of a fiber that is unwound because its scheduler was dropped. All other fibers of the
/// scheduler have been unwound then, so what one of them would have done has happened, or never
/// will: look once more, and give up.
///
/// # Panics
/// Panics outside fibers.
#[track_caller]
pub fn park_or_give_up() -> bool {
    match current::with_fiber(Core::park_or_unwind_others) {
        Some(parked) => parked,
        None => outside("park_or_give_up"),
    }
}

/// Like [`park`], until `deadline` at most. Returns whether the token came (before the deadline was
/// reported to [`Scheduler::expire`](crate::Scheduler::expire)).
///
/// # Panics
/// Panics outside fibers, and where [`Config::may_wait`](crate::Config::may_wait) refuses.
#[track_caller]
pub fn park_until(deadline: Instant) -> bool {
    check_caller_may_wait("`park_until`");
    park_until_then(deadline)
}

/// As [`park_until`], for waits that have asked [`Config::may_wait`](crate::Config::may_wait).
#[track_caller]
pub(crate) fn park_until_then(deadline: Instant) -> bool {
    match current::with_fiber(|core, block| core.park_until(block, deadline)) {
        Some(unparked) => unparked,
        None => outside("park_until"),
    }
}

/// Hands a fiber of this thread its token and makes it ready when it is parked. Without effect when
/// the fiber has ended or no scheduler is entered. Costs a few loads and stores; other threads use
/// an [`Unparker`].
#[inline(always)]
pub fn unpark(id: FiberId) {
    current::with_core(|core| core.unpark(id));
}

/// A handle with which any thread can unpark the running fiber; `None` outside fibers.
pub fn unparker() -> Option<Unparker> {
    current::with_fiber(|core, block| Unparker::new(Arc::clone(&core.shared), block.id.get()))
}

/// Lets every other ready fiber of the thread run once. If none is ready, the round of
/// [`Scheduler::run`](crate::Scheduler::run) ends, so that the thread's worker polls.
///
/// # Panics
/// Panics outside fibers, and where [`Config::may_wait`](crate::Config::may_wait) refuses.
#[inline(always)]
#[track_caller]
pub fn yield_now() {
    check_caller_may_wait("`yield_now`");
    if current::with_fiber(|core, block| core.yield_now(block)).is_none() {
        outside("yield_now");
    }
}

/// Lets every other ready fiber of the thread run once, and before that the thread's worker: the
/// round of [`Scheduler::run`](crate::Scheduler::run) ends here, even if the running fiber is the
/// only one. For code that would otherwise keep the worker from polling.
///
/// # Panics
/// Panics outside fibers. It does not ask [`Config::may_wait`](crate::Config::may_wait).
#[cold]
#[track_caller]
pub fn yield_to_worker() {
    if current::with_fiber(Core::yield_to_worker).is_none() {
        outside("yield_to_worker");
    }
}

/// Suspends the running fiber for at least `duration`. Unparks do not end it; their token is there
/// afterwards.
///
/// # Panics
/// Panics outside fibers, and where [`Config::may_wait`](crate::Config::may_wait) refuses.
#[track_caller]
pub fn sleep(duration: Duration) {
    check_caller_may_wait("`sleep`");
    // A duration that the clock cannot express means for ever.
    let deadline = Instant::now().checked_add(duration);
    let place = Location::caller();
    let slept = current::with_fiber(|core, block| match deadline {
        Some(deadline) => core.sleep_until(block, deadline, place),
        None => core.sleep_for_ever(block),
    });
    if slept.is_none() {
        outside("sleep");
    }
}

/// The time after `timeout`; `None` if that is later than the clock can express. For waits with a limit
/// of layers that have no clock.
pub fn deadline_after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

/// Suspends the running fiber until `deadline` or a little later; not at all if that has passed.
///
/// ```
/// # use gossamer_fiber::{Config, Scheduler, sleep_until, spawn_local};
/// # use std::time::{Duration, Instant};
/// # let scheduler = Scheduler::new(Config::default())?;
/// # scheduler.enter(|| spawn_local(|| {
/// let start = Instant::now();
/// for step in 1..=3 {
///     sleep_until(start + step * Duration::from_millis(5)); // does not drift
/// }
/// assert!(start.elapsed() >= Duration::from_millis(15));
/// # }));
/// # while scheduler.live() > 0 {
/// #     scheduler.run(64);
/// #     scheduler.expire(Instant::now());
/// # }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Panics
/// As [`sleep`].
#[track_caller]
pub fn sleep_until(deadline: Instant) {
    check_caller_may_wait("`sleep_until`");
    let place = Location::caller();
    let slept = current::with_fiber(|core, block| {
        if deadline > Instant::now() {
            core.sleep_until(block, deadline, place);
        }
    });
    if slept.is_none() {
        outside("sleep_until");
    }
}

/// Asks the scheduler's owner whether the running code may wait in `operation`.
#[inline(always)]
#[track_caller]
pub(crate) fn check_caller_may_wait(operation: &str) {
    check_may_wait(operation, Location::caller());
}

/// Asks [`Config::may_wait`](crate::Config::may_wait) whether code at `place` may wait in
/// `operation`: for waits that are built on [`park`] and begin in other crates.
///
/// # Panics
/// Where that refuses, at the caller's line, which should be `place`.
#[inline(always)]
#[track_caller]
pub fn check_may_wait(operation: &str, place: &'static Location<'static>) {
    if let Some(Some(may_wait)) = current::with_core(|core| core.may_wait)
        && let Err(reason) = may_wait(operation, place)
    {
        refused(&reason);
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn refused(reason: &str) -> ! {
    panic!("{reason}");
}

#[cold]
#[inline(never)]
#[track_caller]
fn outside(operation: &str) -> ! {
    panic!("fiber::{operation} was called outside a fiber; spawn a fiber that calls it");
}
