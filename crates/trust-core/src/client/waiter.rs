//! A fiber that waits for the reply to its request, and what wakes it.
//!
//! The result is written straight onto the stack of the fiber that waits: [`Wake`], which is the
//! request's completion, points to the [`Waiter`] there. That is sound because the fiber does not
//! leave the frame before the completion has run.

use std::cell::{Cell, UnsafeCell};
use std::fmt::Display;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};

use fiber::Waiting;

use crate::client::completion::Completion;
use crate::client::outcome::Outcome;
use crate::codec::{self, Portable};
use crate::error::{CallResult, DelegateError, NOT_SENT, outside};

/// Parks the current fiber until the completion that `send` is given has run. The wait began at
/// `place`, and `what` says what is waited for.
///
/// # Panics
/// If `send` does: it may run code of users, such as the destructor of an argument.
pub(crate) fn wait<U: Portable, D: Display + Send + 'static>(
    send: impl FnOnce(Wake<U>),
    place: &'static Location<'static>,
    what: impl Fn() -> D,
) -> CallResult<U> {
    let Some(waiter) = Waiter::new() else { return Err(outside()) };
    // A panic must not leave this frame before the completion has run, which refers to it.
    let sent = catch_unwind(AssertUnwindSafe(|| send(waiter.wake())));
    // The code of users may also have waited, and used up the token.
    let result = waiter.taken().unwrap_or_else(|| waiter.wait(place, |_| what()));
    if let Err(panic) = sent {
        // Not while that panic unwinds: the result's destructor may panic as well.
        drop(result);
        resume_unwind(panic);
    }
    result
}

/// Failures of calls of a thread between two at which the fiber that made the call gives way.
const FAILURES: u32 = 64;

thread_local! {
    static FAILED: Cell<u32> = const { Cell::new(0) };
}

/// Counts the failure of a call of the current fiber, which may wait. A call of a host that is lost, or
/// after the end of the rack, fails at once: a fiber that makes such calls in a loop would keep its
/// thread, and with it the end of the rack, unless it gave way now and then.
#[cold]
#[inline(never)]
pub(crate) fn count_failure() {
    let failed = FAILED.get() + 1;
    FAILED.set(failed % FAILURES);
    if failed == FAILURES && fiber::in_fiber() {
        fiber::yield_to_worker();
    }
}

/// How far a wait has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Pending,
    /// There is a value.
    Done,
    /// There is an error.
    Failed,
    /// The fiber has taken what there was.
    Over,
}

/// A fiber that waits for a result, on its own stack. This is not a `Result`, because that would be
/// moved in pieces, and the processor waits for pieces that do not match.
pub(crate) struct Waiter<U> {
    fiber: Waiting,
    state: Cell<Wait>,
    end: UnsafeCell<End<U>>,
}

/// The outcome of a wait; the waiter's state says which field is valid.
union End<U> {
    pending: (),
    value: ManuallyDrop<U>,
    error: ManuallyDrop<Box<DelegateError>>,
}

impl<U> Waiter<U> {
    /// A waiter for the running fiber, which stays on its stack; `None` outside fibers.
    #[inline(always)]
    pub(crate) fn new() -> Option<Self> {
        let end = UnsafeCell::new(End { pending: () });
        Some(Waiter { fiber: fiber::waiting()?, state: Cell::new(Wait::Pending), end })
    }

    /// What ends the wait. Called once; the waiter must not be dropped before it has run.
    #[inline(always)]
    pub(crate) fn wake(&self) -> Wake<U> {
        Wake(self)
    }

    /// Parks the fiber until the wait has ended. Called once.
    ///
    /// It parks before it looks: what has ended already has left the token that lets the fiber go
    /// on, unless code that could park has run between the sending and this.
    ///
    /// The wait began at `place`, and `what` says what is waited for, given the address of this waiter,
    /// if the fiber is [asked](fiber::waiting_fibers). That wakes it without a result: nothing is noted
    /// before, and `what` should capture nothing, which would be kept on the stack all the time.
    #[inline(always)]
    pub(crate) fn wait<D: Display + Send + 'static>(
        &self,
        place: &'static Location<'static>,
        what: impl Fn(*const ()) -> D,
    ) -> CallResult<U> {
        // SAFETY: `new` took the handle of the running fiber, and a waiter stays on that fiber's stack.
        unsafe { fiber::park_waiting(self.fiber) };
        if self.state.get() != Wait::Done {
            return self.wait_further(place, what);
        }
        Ok(self.value())
    }

    /// Goes on where the fiber was woken without a value.
    #[cold]
    #[inline(never)]
    fn wait_further<D: Display + Send + 'static>(
        &self,
        place: &'static Location<'static>,
        what: impl Fn(*const ()) -> D,
    ) -> CallResult<U> {
        let mut wait = fiber::Wait::at(place);
        while self.state.get() != Wait::Done {
            if let Some(error) = self.failure() {
                return Err(error);
            }
            wait.explain(|| what(std::ptr::from_ref(self).cast()));
            fiber::park();
        }
        Ok(self.value())
    }

    /// The outcome of the wait, if it has ended and the outcome was not taken. The states are
    /// compared one by one, since a jump table would cost every wait an indirect jump.
    #[inline(always)]
    fn taken(&self) -> Option<CallResult<U>> {
        if self.state.get() == Wait::Done {
            return Some(Ok(self.value()));
        }
        self.failure().map(Err)
    }

    /// The value that the wait has ended with.
    #[inline(always)]
    fn value(&self) -> U {
        debug_assert!(self.state.get() == Wait::Done);
        self.state.set(Wait::Over);
        // SAFETY: the state said that the completion has written the value, and says now that it is
        // taken.
        unsafe { ManuallyDrop::take(&mut (*self.end.get()).value) }
    }

    /// The error that the wait has ended with, if it has. It is [counted](count_failure).
    #[cold]
    #[inline(never)]
    fn failure(&self) -> Option<Box<DelegateError>> {
        match self.state.get() {
            Wait::Pending => None,
            Wait::Failed => {
                self.state.set(Wait::Over);
                // SAFETY: the state said that the completion has written the error, and says now
                // that it is taken.
                let error = unsafe { ManuallyDrop::take(&mut (*self.end.get()).error) };
                count_failure();
                Some(error)
            }
            Wait::Done | Wait::Over => unreachable!("a wait ends once"),
        }
    }
}

impl<U> Waiter<U> {
    /// Drops the outcome that a cancelled fiber did not take: it came while the fiber was ready to go on,
    /// but had not done so.
    #[cold]
    #[inline(never)]
    fn drop_unwound(&mut self) {
        let end = self.end.get_mut();
        match self.state.replace(Wait::Over) {
            Wait::Pending => {
                // The completion holds a pointer to this frame, so going on would corrupt memory. No
                // program that uses `gossamer` gets here: nothing but a cancellation unwinds a fiber
                // that waits, and before its worker drops the scheduler, it closes the node. That ends
                // every request under way, and every later one at once.
                eprintln!("gossamer: a fiber was unwound while its request is under way; aborting");
                std::process::abort();
            }
            // SAFETY: the state said that the completion has written the value, and says now that it is
            // gone.
            Wait::Done => unsafe { ManuallyDrop::drop(&mut end.value) },
            // SAFETY: as for the value.
            Wait::Failed => unsafe { ManuallyDrop::drop(&mut end.error) },
            Wait::Over => {}
        }
    }
}

impl<U> Drop for Waiter<U> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.state.get() != Wait::Over {
            self.drop_unwound();
        }
    }
}

/// Wakes the fiber that waits for a result.
pub(crate) struct Wake<U>(*const Waiter<U>);

impl<U: Portable> Completion for Wake<U> {
    const IN_RUNS: bool = codec::may_be_plain::<U>();

    fn waiter(&self) -> *const () {
        self.address()
    }

    #[inline(always)]
    fn complete(self, outcome: Outcome<'_>) {
        match outcome.at_hand() {
            Some(value) => ManuallyDrop::new(self).end(Ok(value)),
            None => self.end_with(outcome),
        }
    }
}

impl<U: Portable> Wake<U> {
    #[inline(never)]
    fn end_with(self, outcome: Outcome<'_>) {
        ManuallyDrop::new(self).end(outcome.caught::<U, _>(Outcome::result));
    }
}

impl<U> Wake<U> {
    /// Names the waiter.
    pub(super) fn address(&self) -> *const () {
        self.0.cast()
    }

    /// Ends the wait. Called once.
    #[inline(always)]
    pub(super) fn end(&self, result: Result<U, DelegateError>) {
        // SAFETY: the waiter is on the stack of a fiber that does not leave its frame before the
        // state says that the wait has ended, which only happens here, once; the fiber is of this
        // thread and is not looking at the waiter now, so nothing else refers to it.
        let waiter = unsafe { &*self.0 };
        match result {
            Ok(value) => {
                // SAFETY: as above; the value is not read before the state is set.
                unsafe { (*waiter.end.get()).value = ManuallyDrop::new(value) };
                waiter.state.set(Wait::Done);
            }
            Err(error) => {
                // SAFETY: as for the value.
                unsafe { (*waiter.end.get()).error = ManuallyDrop::new(Box::new(error)) };
                waiter.state.set(Wait::Failed);
            }
        }
        // SAFETY: as above; the fiber has not left the frame, so its scheduler, which unwinds every
        // fiber before it goes, is there.
        unsafe { fiber::unpark_waiting(waiter.fiber) };
    }
}

/// Only a panic of an argument that is encoded drops it, which ends the caller before it sees this.
impl<U> Drop for Wake<U> {
    fn drop(&mut self) {
        self.end(Err(NOT_SENT));
    }
}
