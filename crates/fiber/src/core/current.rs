//! What this thread is doing: the scheduler it has entered and the fiber it is running.
//!
//! Two thread-local words. They are plain cells without destructors, so an access is one load
//! relative to the thread pointer, and the signal handler may read them. Fibers never move to
//! another thread, so an address taken before a switch is right after it.
//!
//! One invariant keeps stacks from being mixed up: `running` is the fiber whose stack the thread is
//! on, or null on the thread's own stack, and while it is set, `core` is that fiber's scheduler.
//! (Except for the few instructions between a switch and the update of `running`, on either side of
//! it, and in `Core::run` between two fibers, where no user code runs.) A fiber can therefore not enter the
//! scheduler of other fibers; see [`Entered::new`].

use std::cell::Cell;
use std::ptr::{self, NonNull};

use crate::core::Core;
use crate::core::block::{Block, Waiting};

pub(crate) struct Current {
    pub(crate) core: Cell<*const Core>,
    pub(crate) running: Cell<*const Block>,
}

thread_local! {
    pub(crate) static CURRENT: Current =
        const { Current { core: Cell::new(ptr::null()), running: Cell::new(ptr::null()) } };
}

/// Notes the fiber whose stack the thread is on. Not generic, as its callers are, so that `with` is
/// instantiated once.
#[inline(always)]
pub(crate) fn set_running(block: *const Block) {
    CURRENT.with(|current| current.running.set(block));
}

/// Whether this is the scheduler that the thread has entered.
#[inline(always)]
pub(crate) fn is_core(core: &Core) -> bool {
    CURRENT.with(|current| ptr::eq(current.core.get(), core))
}

/// Gives `f` the scheduler that the thread has entered.
#[inline(always)]
pub(crate) fn with_core<R>(f: impl FnOnce(&Core) -> R) -> Option<R> {
    let core = CURRENT.with(|current| current.core.get());
    // SAFETY: null, or set by an `Entered` that is alive further up the stack, or whose root
    // called into the fiber that runs now; it borrows the core all that time.
    unsafe { core.as_ref() }.map(f)
}

/// The scheduler that the thread has entered. Unlike [`with_core`], sure to be inlined. `_asking` bounds the
/// lifetime, so that the reference does not leave the caller's frame.
///
/// # Safety
/// `_asking` is a local of the caller.
#[inline(always)]
pub(crate) unsafe fn core(_asking: &impl Sized) -> Option<&Core> {
    let core = CURRENT.with(|current| current.core.get());
    // SAFETY: as in `with_core`, since the reference does not leave the frame of the caller, as promised.
    unsafe { core.as_ref() }
}

/// Gives `f` the running fiber and its scheduler.
#[inline(always)]
pub(crate) fn with_fiber<R>(f: impl FnOnce(&Core, &Block) -> R) -> Option<R> {
    // Not all of it inside `with`, which is too large then to become part of its caller.
    let (core, running) = CURRENT.with(|current| (current.core.get(), current.running.get()));
    // SAFETY: null, or the block of the fiber that makes this call; blocks live as long as their
    // core, and the core as in `with_core`.
    let block = unsafe { running.as_ref() }?;
    // SAFETY: while `running` is set, `core` is that fiber's scheduler.
    Some(f(unsafe { &*core }, block))
}

/// A handle to wake the running fiber; `None` outside fibers.
#[inline(always)]
pub fn waiting() -> Option<Waiting> {
    with_fiber(|_, block| Waiting(NonNull::from(block)))
}

/// As [`park`](crate::park), for the running fiber that has its handle.
///
/// # Safety
/// `fiber` is the running fiber.
#[inline(always)]
pub unsafe fn park_waiting(fiber: Waiting) {
    debug_assert!(CURRENT.with(|current| ptr::eq(current.running.get(), fiber.0.as_ptr())));
    // SAFETY: the fiber is running, so its block exists.
    unsafe { Core::park_running(fiber.0.as_ref()) };
}

/// As [`unpark`](crate::unpark), of a fiber whose scheduler is known to be there, entered or not.
/// For a fiber that has ended it has no effect, or wakes another one spuriously.
///
/// # Safety
/// The fiber is one of this thread, and its scheduler is there.
#[inline(always)]
pub unsafe fn unpark_waiting(fiber: Waiting) {
    // SAFETY: the caller promises that the scheduler is there, and with it are the block and the
    // queue that it names; and that this is their thread.
    unsafe {
        let block = fiber.0.as_ref();
        block.wake(&*block.queue);
    }
}

/// Makes a scheduler the current one until dropped.
pub(crate) struct Entered<'a> {
    core: *const Core,
    running: *const Block,
    _borrow: std::marker::PhantomData<&'a Core>,
}

impl<'a> Entered<'a> {
    /// # Panics
    /// Panics on a fiber of another scheduler: the two sets of stacks would be interleaved.
    #[track_caller]
    pub(crate) fn new(core: &'a Core) -> Entered<'a> {
        CURRENT.with(|current| {
            let foreign = !current.running.get().is_null() && !ptr::eq(current.core.get(), core);
            assert!(!foreign, "a fiber cannot enter or run a scheduler other than its own");
        });
        let running = CURRENT.with(|current| current.running.get());
        Entered::replace(core, running)
    }

    /// Enters to take the scheduler apart, wherever the thread is: its fibers are resumed from the
    /// present stack, and only to be unwound.
    pub(crate) fn for_teardown(core: &'a Core) -> Entered<'a> {
        Entered::replace(core, ptr::null())
    }

    fn replace(core: &'a Core, running: *const Block) -> Entered<'a> {
        CURRENT.with(|current| Entered {
            core: current.core.replace(core),
            running: current.running.replace(running),
            _borrow: std::marker::PhantomData,
        })
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.with(|current| {
            current.core.set(self.core);
            current.running.set(self.running);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::{Config, Scheduler, park, spawn_local};

    #[test]
    fn a_fiber_that_waits_is_woken_on_its_own_scheduler() {
        let [one, two] = [(); 2].map(|()| Scheduler::new(Config::default()).unwrap());
        let (waits, woken) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(0)));
        one.enter(|| {
            let (waits, woken) = (waits.clone(), woken.clone());
            spawn_local(move || {
                for _ in 0..2 {
                    waits.set(waiting());
                    park();
                    woken.set(woken.get() + 1);
                }
            });
        });
        one.run(1);
        // SAFETY: the fiber is one of this thread, and its scheduler is there.
        let wake = || unsafe { unpark_waiting(waits.get().unwrap()) };
        two.enter(wake);
        assert!(!two.has_ready());
        assert_eq!((one.run(1), woken.get()), (1, 1));
        wake();
        assert_eq!((one.run(1), woken.get(), one.live()), (1, 2, 0));
    }
}
