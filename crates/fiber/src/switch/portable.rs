//! The switch on other processors: corosensei's.
//!
//! Both `resume` and `suspend` must inline into their callers: corosensei ends `suspend` with a
//! `ret` that the processor predicts from the `call` in `resume`, so that every real call and
//! return between the two costs a misprediction.

use std::cell::{Cell, UnsafeCell};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use corosensei::{Coroutine, CoroutineResult, Yielder};
use primitive::drop_payload;

use crate::stack::Stack;
use crate::switch::{MAX_INLINE_CLOSURE_BYTES, Resumed};

/// A stack as corosensei sees it. It does not own the memory: the fiber's control block does.
#[derive(Clone, Copy)]
struct View {
    top: NonZeroUsize,
    limit: NonZeroUsize,
}

// SAFETY: `Switch::load` makes a view of a `Stack`, which is aligned, guarded and large enough, and
// its caller promises that the stack outlives the coroutine.
unsafe impl corosensei::stack::Stack for View {
    #[inline]
    fn base(&self) -> NonZeroUsize {
        self.top
    }

    #[inline]
    fn limit(&self) -> NonZeroUsize {
        self.limit
    }
}

/// The payload of the panic that ends a suspended execution.
struct Unwind;

#[cold]
#[inline(never)]
fn unwind_from_here() {
    resume_unwind(Box::new(Unwind));
}

/// The suspended or running execution of one fiber, or nothing.
pub(crate) struct Switch {
    /// Whether the execution is to unwind as soon as it runs again.
    unwinds: Cell<bool>,
    /// The way back to the resumer: valid from the first instruction of the closure to its last.
    exit: Cell<*const Yielder<(), ()>>,
    became: Cell<Resumed>,
    coroutine: UnsafeCell<Option<Coroutine<(), (), (), View>>>,
}

impl Switch {
    /// Whether an execution can [hand over](Self::hand_over) to another.
    pub(crate) const HANDS_OVER: bool = false;

    /// Bytes at the beginning that every switch touches. None are kept together here: corosensei's part
    /// alone is longer than what the line has left.
    #[cfg(test)]
    pub(crate) const HOT_BYTES: usize = 0;

    pub(crate) fn new() -> Switch {
        Switch {
            unwinds: Cell::new(false),
            exit: Cell::new(std::ptr::null()),
            became: Cell::new(Resumed::Finished),
            coroutine: UnsafeCell::new(None),
        }
    }

    /// Puts `body`, from which nothing may unwind, at the top of `stack`, to begin with the next `resume`.
    ///
    /// # Safety
    /// Nothing runs on `stack`, it outlives the execution, this `Switch` stays where it is until
    /// the execution has ended, and the previous execution, if any, has finished.
    #[inline]
    pub(crate) unsafe fn load<F: FnOnce() + 'static>(&self, stack: &Stack, body: F) {
        if const { size_of::<F>() > MAX_INLINE_CLOSURE_BYTES || align_of::<F>() > 16 } {
            let body: Box<dyn FnOnce()> = Box::new(body);
            // SAFETY: as promised by the caller.
            unsafe { self.load_small(stack, body) };
        } else {
            // SAFETY: as promised by the caller.
            unsafe { self.load_small(stack, body) };
        }
    }

    /// # Safety
    /// As for [`Switch::load`].
    #[inline]
    unsafe fn load_small<F: FnOnce() + 'static>(&self, stack: &Stack, body: F) {
        let view = View { top: stack.top(), limit: stack.limit() };
        let this: *const Switch = self;
        let coroutine = Coroutine::with_stack(view, move |yielder: &Yielder<(), ()>, ()| {
            // SAFETY: the caller of `load` keeps the `Switch` in place while this runs.
            unsafe { (*this).exit.set(yielder) };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(body))
                && !payload.is::<Unwind>()
            {
                resume_unwind(payload);
            }
        });
        // SAFETY: no execution is in progress, so no other reference into the cell exists.
        unsafe { *self.coroutine.get() = Some(coroutine) };
    }

    /// Runs the loaded execution until it suspends or finishes; what [became](Self::became) of it,
    /// it says then.
    ///
    /// # Safety
    /// An execution is loaded and suspended, and the caller is not itself on its stack.
    #[inline(always)]
    pub(crate) unsafe fn resume(&self) {
        // SAFETY: loaded, says the caller; the execution itself reaches only the exit.
        let coroutine = unsafe { (*self.coroutine.get()).as_mut().unwrap_unchecked() };
        self.became.set(match coroutine.resume(()) {
            CoroutineResult::Yield(()) => Resumed::Suspended,
            CoroutineResult::Return(()) => Resumed::Finished,
        });
    }

    /// The state in which the execution gave the processor back.
    #[inline(always)]
    pub(crate) fn became(&self) -> Resumed {
        self.became.get()
    }

    /// As [`suspend`](Self::suspend), as there is no `next`: this one never [hands over](Self::HANDS_OVER).
    ///
    /// # Safety
    /// As for [`suspend`](Self::suspend).
    #[inline(always)]
    pub(crate) unsafe fn hand_over(&self, next: Option<&Switch>) {
        debug_assert!(next.is_none(), "a coroutine of corosensei's resumes no other");
        // SAFETY: the caller's promise.
        unsafe { self.suspend() };
    }

    /// Gives the processor back to the caller of `resume`; returns at the next `resume`.
    ///
    /// # Safety
    /// The caller runs on this execution's stack.
    #[inline(always)]
    pub(crate) unsafe fn suspend(&self) {
        // SAFETY: while the closure runs, the yielder that it was given is valid.
        unsafe { (*self.exit.get()).suspend(()) }
        // Once: the destructors that run now are not to be thrown another.
        if self.unwinds.replace(false) {
            unwind_from_here();
        }
    }

    /// Has the suspended execution unwind its stack when it runs again: see [`unwind`](Self::unwind).
    #[cold]
    pub(crate) fn cancel(&self) {
        self.unwinds.set(true);
    }

    /// Runs an execution that was [cancelled](Self::cancel), so that its destructors run, until it has
    /// ended or suspends once more. Drops the closure of one that has not begun. Panics of destructors
    /// are swallowed.
    ///
    /// # Safety
    /// As for [`Switch::resume`].
    #[cold]
    pub(crate) unsafe fn unwind(&self) -> Resumed {
        // SAFETY: as in `resume`.
        let slot = unsafe { &mut *self.coroutine.get() };
        let Some(coroutine) = slot else { return Resumed::Finished };
        let ended = catch_unwind(AssertUnwindSafe(|| {
            if coroutine.started() {
                return match coroutine.resume(()) {
                    CoroutineResult::Yield(()) => Resumed::Suspended,
                    CoroutineResult::Return(()) => Resumed::Finished,
                };
            }
            // Drops the closure.
            coroutine.force_unwind();
            Resumed::Finished
        }));
        if ended.is_err() {
            // SAFETY: the panic has left every frame of the execution, or came from the
            // destructor of a closure that never began: nothing on the stack is alive.
            unsafe { coroutine.force_reset() };
        }
        let became = ended.unwrap_or_else(|payload| {
            drop_payload(payload);
            Resumed::Finished
        });
        if became == Resumed::Finished {
            self.unwinds.set(false);
            *slot = None;
        }
        became
    }
}
