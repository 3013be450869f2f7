//! [`select!`](crate::select): the macro, and the list of its branches.

use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::drive::drive_until;

/// Waits for several things at once, and goes on with the first that is there.
///
/// ```text
/// select! {
///     PATTERN = FUTURE => HANDLER,
///     PATTERN = FUTURE, if CONDITION => HANDLER,
///     else => HANDLER
/// }
/// ```
///
/// The running fiber parks meanwhile. A branch waits for any [`Future`] that needs no particular
/// runtime, or an [`IntoFuture`]:
///
/// | Branch | Waits for |
/// |---|---|
/// | `ended = &mut handle` | a fiber: its [`JoinHandle`](crate::JoinHandle) |
/// | `() = after(duration)`, `() = Timer::at(instant)` | time: a [`Timer`](crate::Timer) |
/// | `due = &mut interval` | the next tick of an [`Interval`](crate::Interval) |
/// | `reply = &mut reply` | the reply of a delegated call (`apply_later` of `gossamer`) |
/// | `value = receiver.next()` | a value of a channel (`Receiver` of `gossamer`) |
/// | `notified = notify.notified()` | a notification (`sync::Notify` of `gossamer`) |
/// | `got = notifications.next()` | a notification of a segment |
///
/// - **Order.** If several are there, the one that is written first wins, each time: write the one that
///   must not starve first. (This is `biased` order of tokio's `select!`.)
/// - **Losers keep their value.** All futures are dropped before the handler runs. What is given by
///   `&mut` stays whole and can be waited for again, by `select!` or otherwise; the handler may use it.
///   The futures of this table lose nothing when they are dropped.
/// - **Conditions.** A branch whose condition is false is not waited for; its expression is evaluated
///   all the same. If none is waited for, the handler of `else` runs; without it, that is a panic.
/// - **Patterns** must match every value. Handlers run outside the wait: `?`, `break` and `return` work,
///   and all of them have the same type.
///
/// A handle must not be waited for again when it has won: in a loop, give its branch a condition.
///
/// ```
/// # use gossamer_fiber::{Config, Promise, Scheduler, after, select, spawn_local};
/// # use std::time::{Duration, Instant};
/// # let scheduler = Scheduler::new(Config::default())?;
/// # let fiber = scheduler.enter(|| spawn_local(|| {
/// let (one, mut first) = Promise::<u32>::new();
/// let (two, mut second) = Promise::<u32>::new();
/// two.settle(Ok(2));
/// let mut sum = 0;
/// let (mut first_ended, mut second_ended) = (false, false);
/// let mut one = Some(one);
/// loop {
///     select! {
///         value = &mut first, if !first_ended => {
///             first_ended = true;
///             sum += value.unwrap();
///         }
///         value = &mut second, if !second_ended => {
///             second_ended = true;
///             sum += value.unwrap();
///             one.take().unwrap().settle(Ok(1));
///         }
///         else => break,
///     }
/// }
/// assert_eq!(sum, 3);
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
/// Outside fibers; in delegated context, where waiting is not allowed; if no branch is waited for and
/// there is no `else`; in a destructor of a fiber that is unwound because the rack has ended, if
/// nothing is there (which ends the process: do not wait there). And if a future does.
#[macro_export]
macro_rules! select {
    ($($branches:tt)*) => {
        $crate::__select!(@parse [] $($branches)*)
    };
}

/// The steps of [`select!`](crate::select): the branches are brought into one form, then each future
/// gets a variable of its own, then the output is matched.
#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    // ---- to the form `{ pattern, future, condition, handler }` ----
    (@parse [$($done:tt)*] else => $handler:expr $(,)?) => {
        $crate::__select!(@outputs [$($done)*] [$handler])
    };
    (@parse [$($done:tt)*]) => {
        $crate::__select!(@outputs [$($done)*] [$crate::__select_none()])
    };
    (@parse [$($done:tt)*] $pattern:pat = $future:expr, if $condition:expr => $handler:block, $($rest:tt)*) => {
        $crate::__select!(@parse [$($done)* { $pattern, $future, $condition, $handler }] $($rest)*)
    };
    (@parse [$($done:tt)*] $pattern:pat = $future:expr, if $condition:expr => $handler:block $($rest:tt)*) => {
        $crate::__select!(@parse [$($done)* { $pattern, $future, $condition, $handler }] $($rest)*)
    };
    (@parse [$($done:tt)*] $pattern:pat = $future:expr, if $condition:expr => $handler:expr, $($rest:tt)*) => {
        $crate::__select!(@parse [$($done)* { $pattern, $future, $condition, $handler }] $($rest)*)
    };
    (@parse [$($done:tt)*] $pattern:pat = $future:expr, if $condition:expr => $handler:expr) => {
        $crate::__select!(@parse [$($done)* { $pattern, $future, $condition, $handler }])
    };
    (@parse [$($done:tt)*] $pattern:pat = $future:expr => $handler:block, $($rest:tt)*) => {
        $crate::__select!(@parse [$($done)* { $pattern, $future, true, $handler }] $($rest)*)
    };
    (@parse [$($done:tt)*] $pattern:pat = $future:expr => $handler:block $($rest:tt)*) => {
        $crate::__select!(@parse [$($done)* { $pattern, $future, true, $handler }] $($rest)*)
    };
    (@parse [$($done:tt)*] $pattern:pat = $future:expr => $handler:expr, $($rest:tt)*) => {
        $crate::__select!(@parse [$($done)* { $pattern, $future, true, $handler }] $($rest)*)
    };
    (@parse [$($done:tt)*] $pattern:pat = $future:expr => $handler:expr) => {
        $crate::__select!(@parse [$($done)* { $pattern, $future, true, $handler }])
    };

    // ---- the wait, then the handler of its output ----
    (@outputs [$({ $pattern:pat, $future:expr, $condition:expr, $handler:expr })*] [$none:expr]) => {{
        let output = $crate::__select!(@futures [] $({ $future, $condition })*);
        $crate::__select!(@match output [$none] $({ $pattern, $handler })*)
    }};

    // Each level has a variable `future` of its own.
    (@futures [$($made:ident)*] { $future:expr, $condition:expr } $($rest:tt)*) => {{
        let is_enabled: bool = $condition;
        let future = ::std::pin::pin!(::std::future::IntoFuture::into_future($future));
        let mut future = is_enabled.then_some(future);
        $crate::__select!(@futures [$($made)* future] $($rest)*)
    }};
    // By a variable: before edition 2024, temporaries of a block's last expression outlive its variables.
    (@futures [$($made:ident)*]) => {{
        let selected = $crate::__select_wait(&mut $crate::__select!(@list $($made)*));
        selected
    }};
    (@list $first:ident $($rest:ident)*) => {
        (&mut $first, $crate::__select!(@list $($rest)*))
    };
    (@list) => { () };

    (@match $output:ident [$none:expr] { $pattern:pat, $handler:expr } $($rest:tt)*) => {
        match $output {
            $crate::__Selected::This($pattern) => $handler,
            $crate::__Selected::Later(output) => {
                $crate::__select!(@match output [$none] $($rest)*)
            }
        }
    };
    (@match $output:ident [$none:expr]) => {{
        let $crate::__NoBranch = $output;
        $none
    }};
}

/// The output of a list of branches.
#[doc(hidden)]
#[derive(Debug)]
pub enum Selected<A, B> {
    /// Of its first branch.
    This(A),
    /// Of one after it.
    Later(B),
}

/// The output of a list none of whose branches is waited for.
#[doc(hidden)]
#[derive(Debug)]
pub struct NoBranch;

/// A list of branches.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a branch of `select!` does not wait for a future",
    label = "one of these expressions is neither a `Future` nor an `IntoFuture`",
    note = "a branch is `PATTERN = FUTURE => HANDLER`, where FUTURE is for example `&mut join_handle`, \
            `&mut reply`, `receiver.next()`, `notify.notified()`, `&mut interval` or `after(duration)`"
)]
pub trait Branches {
    type Output;

    /// The output of the first branch that is ready.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Self::Output>;

    /// The output if no branch is waited for.
    fn none(&self) -> Option<Self::Output>;
}

impl Branches for () {
    type Output = NoBranch;

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<NoBranch> {
        Poll::Pending
    }

    fn none(&self) -> Option<NoBranch> {
        Some(NoBranch)
    }
}

// So that the compiler speaks of the branch, not of the trait that its future lacks.
#[diagnostic::do_not_recommend]
impl<F: Future, B: Branches> Branches for (&mut Option<Pin<&mut F>>, B) {
    type Output = Selected<F::Output, B::Output>;

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(future) = self.0
            && let Poll::Ready(output) = future.as_mut().poll(context)
        {
            return Poll::Ready(Selected::This(output));
        }
        self.1.poll(context).map(Selected::Later)
    }

    fn none(&self) -> Option<Self::Output> {
        if self.0.is_some() { None } else { self.1.none().map(Selected::Later) }
    }
}

/// Waits for the first of `branches`.
#[doc(hidden)]
#[track_caller]
pub fn wait_for_first<B: Branches>(branches: &mut B) -> B::Output {
    if let Some(none) = branches.none() {
        return none;
    }
    let place = Location::caller();
    let mut first = std::pin::pin!(std::future::poll_fn(|context| branches.poll(context)));
    // Not in a closure, whose panic would name this line instead of the caller's.
    match drive_until("`select!`", first.as_mut(), None, place) {
        Some(output) => output,
        None => panic!("`select!` at {place} would wait in a destructor while the rack ends"),
    }
}

/// What happens without an `else`.
#[doc(hidden)]
#[cold]
#[track_caller]
pub fn no_branch_is_enabled() -> ! {
    panic!("the conditions of all branches of `select!` are false, and it has no `else`");
}
