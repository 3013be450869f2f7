//! A fiber that waits for a reply which it sees where it lies: what it does with the reply runs before
//! that is gone, as the request's completion.
//!
//! The closure that looks at the reply is on the stack of the fiber, as the [`Waiter`] is, so it may
//! borrow from there. It runs on the worker's stack; a panic in it ends the fiber, not the worker.

use std::cell::Cell;
use std::fmt::Display;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, offset_of};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use fiber::PanicPlace;

use crate::client::completion::Completion;
use crate::client::outcome::Outcome;
use crate::client::waiter::Waiter;
use crate::codec::AsView;
use crate::error::{CallResult, NOT_SENT, Panic};

/// A panic that was caught on the worker's stack, and where it was raised.
struct Caught {
    panic: Panic,
    place: Option<Box<PanicPlace>>,
}

impl Caught {
    #[cold]
    #[inline(never)]
    fn new(panic: Panic) -> Box<Self> {
        // Now: views of other fibers may panic before this one goes on.
        let place = fiber::panic_place_of(&*panic);
        Box::new(Caught { panic, place })
    }
}

/// Completes the [`Viewing`] that begins with this, once.
#[derive(Clone, Copy)]
struct Run(unsafe fn(*const Run, Outcome<'_>));

/// A fiber that waits for a view of an `R`, on its own stack, and what it does with that.
#[repr(C)]
pub(crate) struct Viewing<R: ?Sized, F, U> {
    /// First, so that a pointer to it is one to the whole.
    run: Run,
    view: Cell<Option<F>>,
    waiter: Waiter<Result<U, Box<Caught>>>,
    _value: PhantomData<fn(&R)>,
}

impl<R, F, U> Viewing<R, F, U>
where
    R: AsView + ?Sized,
    F: for<'a> FnOnce(Option<R::View<'a>>) -> U,
{
    /// As [`Waiter::new`].
    #[inline(always)]
    pub(crate) fn new(view: F) -> Option<Self> {
        let (view, waiter) = (Cell::new(Some(view)), Waiter::new()?);
        Some(Viewing { run: Run(run::<R, F, U>), view, waiter, _value: PhantomData })
    }

    /// What ends the wait. Called once; this must not be dropped before it has run.
    #[inline(always)]
    pub(crate) fn end(&self) -> EndView {
        EndView(std::ptr::from_ref(self).cast())
    }

    /// Parks the fiber until the wait has ended, as [`Waiter::wait`]. Called once. `what` is given
    /// the address by which the request's completion can be found.
    ///
    /// # Panics
    /// If `view` did.
    #[inline(always)]
    pub(crate) fn wait<D: Display + Send + 'static>(
        &self,
        place: &'static Location<'static>,
        what: fn(*const ()) -> D,
    ) -> CallResult<U> {
        let of_waiter =
            |waiter: *const ()| what(waiter.wrapping_byte_sub(offset_of!(Self, waiter)));
        match self.waiter.wait(place, of_waiter)? {
            Ok(value) => Ok(value),
            Err(caught) => fiber::resume_panic(caught.panic, caught.place),
        }
    }
}

/// # Safety
/// The pointer is to the first field of a `Viewing<R, F, U>` that is alive; called once.
unsafe fn run<R, F, U>(viewing: *const Run, outcome: Outcome<'_>)
where
    R: AsView + ?Sized,
    F: for<'a> FnOnce(Option<R::View<'a>>) -> U,
{
    // SAFETY: the caller's promise; the fiber is of this thread and does not look at it now, and all
    // that is changed there is in cells.
    let viewing = unsafe { &*viewing.cast::<Viewing<R, F, U>>() };
    let view = viewing.view.take().expect("a wait ends once");
    let end = outcome.view::<R, _>(|found| {
        let found = found?;
        Ok(catch_unwind(AssertUnwindSafe(|| view(found))).map_err(Caught::new))
    });
    ManuallyDrop::new(viewing.waiter.wake()).end(end);
}

/// Ends the wait of a fiber for a view.
pub(crate) struct EndView(*const Run);

impl EndView {
    #[inline(always)]
    fn end_with(&self, outcome: Outcome<'_>) {
        // SAFETY: made of a `Viewing`, which is on the stack of a fiber that does not leave its frame
        // before the waiter in it has been ended. That only happens here: by `complete` or by
        // `drop`, never by both.
        unsafe { ((*self.0).0)(self.0, outcome) }
    }
}

impl Completion for EndView {
    const IN_RUNS: bool = false;

    fn waiter(&self) -> *const () {
        self.0.cast()
    }

    #[inline(always)]
    fn complete(self, outcome: Outcome<'_>) {
        ManuallyDrop::new(self).end_with(outcome);
    }

    fn name() -> &'static str {
        "given to `apply_ref`"
    }
}

/// Only a panic of an argument that is encoded drops it, which ends the caller before it sees this.
impl Drop for EndView {
    fn drop(&mut self) {
        self.end_with(Outcome::Failed(&NOT_SENT));
    }
}
