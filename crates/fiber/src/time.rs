//! Timers: [`Timer`] and [`after`], which a fiber waits for beside other things, and [`Interval`].

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::core::current;
use crate::core::timer::TimerKey;
use crate::drive::drive_until;
use crate::ops::deadline_after;

/// A future that is ready when its time has come. For [`select!`](crate::select); a fiber that waits
/// for nothing else calls [`sleep`](crate::sleep) or [`sleep_until`](crate::sleep_until).
///
/// Dropping it cancels it. It stays on its thread, where the [`Scheduler`](crate::Scheduler) that is
/// entered when it is polled keeps the time.
#[must_use = "a timer does nothing unless it is waited for"]
pub struct Timer {
    /// `None`: later than the clock can express.
    deadline: Option<Instant>,
    /// Since its first poll, at the scheduler where it was polled last.
    registered: Option<Registered>,
    /// It belongs to its thread's scheduler.
    _not_send: PhantomData<*const ()>,
}

/// Where a timer is registered.
struct Registered {
    scheduler: u64,
    key: TimerKey,
}

/// A timer that is ready after `duration`.
///
/// ```
/// # use gossamer_fiber::{Config, Promise, Scheduler, after, select, spawn_local};
/// # use std::time::{Duration, Instant};
/// # let scheduler = Scheduler::new(Config::default())?;
/// # let fiber = scheduler.enter(|| spawn_local(|| {
/// let (promise, mut handle) = Promise::<u32>::new();
/// let ended = select! {
///     ended = &mut handle => Some(ended),
///     () = after(Duration::from_millis(5)) => None,
/// };
/// assert!(ended.is_none());
/// promise.settle(Ok(7));
/// assert_eq!(handle.join().unwrap(), 7); // as if it had not been waited for
/// # }));
/// # while !fiber.is_finished() {
/// #     scheduler.run(64);
/// #     scheduler.expire(Instant::now());
/// # }
/// # fiber.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn after(duration: Duration) -> Timer {
    // A duration that the clock cannot express means never.
    Timer::new(deadline_after(duration))
}

impl Timer {
    /// A timer that is ready at `deadline`.
    pub fn at(deadline: Instant) -> Timer {
        Timer::new(Some(deadline))
    }

    fn new(deadline: Option<Instant>) -> Timer {
        Timer { deadline, registered: None, _not_send: PhantomData }
    }
}

impl Future for Timer {
    type Output = ();

    /// # Panics
    /// On a thread that has not entered a scheduler.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else { return Poll::Pending };
        let waker = context.waker().clone();
        let polled = current::with_core(|core| {
            if let Some(Registered { scheduler, key }) = self.registered
                && scheduler == core.shared.scheduler
            {
                let replaced = core.timers.replace(key, waker);
                return if replaced.is_some() { Poll::Pending } else { Poll::Ready(()) };
            }
            if deadline <= Instant::now() {
                return Poll::Ready(());
            }
            // If it was registered at another scheduler, that wakes what has polled it there, which does
            // no harm.
            let key = core.timers.add(deadline, waker);
            self.registered = Some(Registered { scheduler: core.shared.scheduler, key });
            Poll::Pending
        });
        polled.expect("a timer is polled on a thread that runs fibers")
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(Registered { scheduler, key }) = self.registered.take() {
            // Another scheduler, or none: that of the timer is gone, or is going.
            let waker = current::with_core(|core| {
                (core.shared.scheduler == scheduler).then(|| core.timers.take(key)).flatten()
            });
            drop(waker);
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// Ticks once per `period`, for the first time at once.
///
/// A tick that is missed comes as soon as it is asked for, and so do all those after it that are due:
/// on average there is one per period, however long the work between two ticks takes. This is
/// tokio's default, `MissedTickBehavior::Burst`.
///
/// ```
/// # use gossamer_fiber::{Config, Scheduler, interval, spawn_local};
/// # use std::time::{Duration, Instant};
/// # let scheduler = Scheduler::new(Config::default())?;
/// # let fiber = scheduler.enter(|| spawn_local(|| {
/// let mut interval = interval(Duration::from_millis(2));
/// let first = interval.tick(); // at once
/// let second = interval.tick();
/// assert_eq!(second, first + Duration::from_millis(2));
/// # }));
/// # while !fiber.is_finished() {
/// #     scheduler.run(64);
/// #     scheduler.expire(Instant::now());
/// # }
/// # fiber.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Panics
/// If `period` is zero.
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "the period of an interval must not be zero");
    Interval { next: Timer::at(Instant::now()), period }
}

/// Made by [`interval`]. Beside other things, wait for `&mut interval` with
/// [`select!`](crate::select): no tick is lost if something else comes first.
#[derive(Debug)]
pub struct Interval {
    next: Timer,
    period: Duration,
}

impl Interval {
    /// Waits for the next tick, and returns the time for which it was due.
    ///
    /// # Panics
    /// As [`sleep`](crate::sleep).
    #[track_caller]
    pub fn tick(&mut self) -> Instant {
        let place = Location::caller();
        let ticked = drive_until("`Interval::tick`", Pin::new(&mut Tick(self)), None, place);
        // In a destructor of a fiber that is unwound, nothing keeps the time.
        ticked.unwrap_or_else(Instant::now)
    }
}

impl<'a> IntoFuture for &'a mut Interval {
    type Output = Instant;
    type IntoFuture = Tick<'a>;

    fn into_future(self) -> Tick<'a> {
        Tick(self)
    }
}

/// The next tick of an [`Interval`], as a future.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are waited for"]
pub struct Tick<'a>(&'a mut Interval);

impl Future for Tick<'_> {
    type Output = Instant;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Instant> {
        let Interval { next, period } = &mut *self.get_mut().0;
        let due = next.deadline;
        if Pin::new(&mut *next).poll(context).is_pending() {
            return Poll::Pending;
        }
        let due = due.expect("a tick that is later than the clock can express is never due");
        *next = Timer::new(due.checked_add(*period));
        Poll::Ready(due)
    }
}
