//! How a fiber starts, runs and waits.

use std::borrow::Cow;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::ptr::NonNull;
use std::time::Instant;

use primitive::drop_payload;

use crate::core::Core;
use crate::core::block::{Block, FiberId, State, Timer};
use crate::core::current::{self, CURRENT};
use crate::core::locals::Locals;
use crate::core::panics::panic_place_of;
use crate::error::JoinError;
use crate::switch::{Resumed, Switch};

impl Core {
    /// Makes a reserved block a fiber that will run `body` when its turn comes.
    #[inline]
    pub(crate) fn launch<F>(
        &self,
        block: &Block,
        name: Option<Cow<'static, str>>,
        code: &'static str,
        body: F,
    ) -> FiberId
    where
        F: FnOnce() + 'static,
    {
        let this: *const Block = block;
        self.load(block, name, code, move || {
            current::set_running(this);
            contain(body);
        });
        // SAFETY: the block was free, and so not queued; blocks stay in place as long as their core.
        unsafe { self.queue.push(block) };
        block.id.get()
    }

    /// Makes a reserved block a fiber that will run `body`, from which nothing may unwind, and does not
    /// queue it. The code that resumes it, or `body` itself, sets `running`.
    #[inline]
    fn load<F>(&self, block: &Block, name: Option<Cow<'static, str>>, code: &'static str, body: F)
    where
        F: FnOnce() + 'static,
    {
        self.identify(block, name, code);
        // SAFETY: the cell is written in `reserve_bare` and `recycle` only, which nothing below calls.
        let Some(stack) = (unsafe { &*block.stack.as_ptr() }) else {
            unreachable!("a reserved block has a stack");
        };
        // SAFETY: a reserved block's stack is idle, and is unmapped only after the fiber has ended
        // (`recycle`, `drop`); the block stays in place as long as the core lives.
        unsafe { block.switch.load(stack, body) };
        block.state.set(State::Active);
    }

    /// Says which fiber a reserved block is from now on.
    #[inline]
    fn identify(&self, block: &Block, name: Option<Cow<'static, str>>, code: &'static str) {
        let serial = self.started.get() + 1;
        self.started.set(serial);
        block.serial.set(serial);
        block.name.set(name);
        block.code.set(code);
        block.locals.borrow_mut().reopen();
    }

    /// Whether [`launch_now`](Self::launch_now) may be called: on the thread's own stack, outside
    /// [`run`](Self::run).
    #[inline(always)]
    pub(crate) fn can_launch_now(&self) -> bool {
        !self.runs.get() && CURRENT.with(|current| current.running.get().is_null())
    }

    /// Makes a reserved block a fiber that runs `body`, and runs it up to its first wait or its end.
    /// Returns `body`'s result if it ends before its first wait; otherwise `later` gets it, on the fiber.
    #[inline]
    pub(crate) fn launch_now<T, F, L>(
        &self,
        block: &Block,
        name: Option<Cow<'static, str>>,
        code: &'static str,
        body: F,
        later: L,
    ) -> Option<T>
    where
        T: 'static,
        F: FnOnce() -> T + 'static,
        L: FnOnce(T) + 'static,
    {
        debug_assert!(self.can_launch_now());
        let given: Cell<Option<T>> = Cell::new(None);
        // The fiber reads its closures out of this frame: each copy on their way to its stack would stall
        // on the stores of the one before.
        let closures = ManuallyDrop::new((body, later));
        let (this, taken): (*const Block, *const (F, L)) = (block, &raw const *closures);
        self.load(block, name, code, move || {
            // SAFETY: the frame of the `launch_now` that has loaded this is there, since it waits for
            // the fiber's first wait; it forgets what is taken here, once.
            let (body, later) = unsafe { taken.read() };
            // SAFETY: the block of this fiber, which stays in place as long as the core lives.
            let block = unsafe { &*this };
            let ended = run_to_end(|| {
                let value = body();
                let Some(given) = NonNull::new(block.starter.take().cast_mut()) else {
                    return later(value);
                };
                // SAFETY: the pointer is to the cell of the `launch_now` that has loaded this, which
                // takes it away before the cell goes.
                let given = unsafe { given.cast::<Cell<Option<T>>>().as_ref() };
                // Nothing has been there that would be dropped.
                std::mem::forget(given.replace(Some(value)));
            });
            if let Err(error) = ended {
                contain(|| drop(error));
            }
        });
        block.starter.set(std::ptr::from_ref(&given).cast());
        self.runs.set(true);
        // It hands over to no other fiber.
        self.queue.end_round();
        current::set_running(block);
        // SAFETY: the block is loaded and not queued; this is the thread's own stack, and no other
        // fiber is being resumed (`can_launch_now`).
        unsafe { block.switch.resume() };
        current::set_running(std::ptr::null());
        block.starter.set(std::ptr::null());
        if block.switch.became() == Resumed::Finished {
            self.recycle(block);
        }
        self.runs.set(false);
        given.take()
    }

    /// Resumes up to `limit` ready fibers and returns how many. To be called on the thread's own
    /// stack, with this core entered.
    ///
    /// Only the first of them is resumed from here: fibers that wait [hand over](Self::leave) to
    /// the next one. The fiber that gets the processor notes that it is running.
    #[inline]
    pub(crate) fn run(&self, limit: usize) -> usize {
        self.runs.set(true);
        self.queue.begin_round(limit);
        while let Some(block) = self.queue.take() {
            // SAFETY: a queued block is one of this core's, which frees it when it goes itself, and is
            // loaded and suspended; this is the thread's own stack.
            unsafe { block.as_ref().switch.resume() };
            // SAFETY: the fiber that continues puts its block there (`leave`, `launch`), every
            // `Entered` on its stack restores it, and only that fiber gives the processor back: it
            // is a block of this core.
            let block = unsafe { &*CURRENT.with(|current| current.running.get()) };
            if block.switch.became() == Resumed::Finished {
                self.retire(block);
            }
        }
        current::set_running(std::ptr::null());
        self.runs.set(false);
        self.queue.taken()
    }

    /// Suspends the running fiber: gives the processor to the next one, or back to `run`.
    ///
    /// # Safety
    /// `block` is the running fiber, and not cancelled.
    #[inline(always)]
    unsafe fn leave(block: &Block) {
        // SAFETY: the queue goes with the core, which is there while its fibers run.
        let queue = unsafe { &*block.queue };
        let next = if Switch::HANDS_OVER { queue.take() } else { None };
        // SAFETY: the caller runs on the stack of `block`, and `run` has resumed it or the fiber
        // that handed over to it: a cancelled fiber does not come here. A queued block is one of the same
        // core, which frees it when it goes itself; it is loaded and suspended, or is this one, which then
        // stays where it is.
        unsafe { block.switch.hand_over(next.map(|next| &next.as_ref().switch)) };
        current::set_running(block);
    }

    /// Suspends the running fiber until it is unparked.
    #[inline(always)]
    pub(crate) fn park(&self, block: &Block) {
        // SAFETY: `block` is the running fiber.
        unsafe { Core::park_running(block) };
    }

    /// As [`park`](Self::park).
    ///
    /// # Safety
    /// `block` is the running fiber.
    #[inline(always)]
    pub(crate) unsafe fn park_running(block: &Block) {
        if block.state.get() == State::Active {
            block.state.set(State::Parked);
            // SAFETY: `block` is the running fiber, and not cancelled.
            unsafe { Core::leave(block) };
        } else {
            Core::take_token(block);
        }
    }

    /// Uses up the token that makes a wait return at once. Returns whether there was one; a
    /// cancelled fiber has none.
    #[cold]
    #[inline(never)]
    fn take_token(block: &Block) -> bool {
        !Core::returns_at_once(block) && block.state.replace(State::Active) == State::Notified
    }

    /// As [`park`](Self::park). In a destructor of a cancelled fiber it unwinds the other fibers
    /// instead, which may be what the caller waits for, and returns false.
    pub(crate) fn park_or_unwind_others(&self, block: &Block) -> bool {
        if Core::returns_at_once(block) {
            self.unwind_suspended();
            return false;
        }
        self.park(block);
        true
    }

    /// Lets the other ready fibers run first.
    #[inline(always)]
    pub(crate) fn yield_now(&self, block: &Block) {
        if block.state.get() == State::Cancelled && Core::returns_at_once(block) {
            return;
        }
        // With no other ready, only what the worker does between two rounds brings what it waits for.
        if self.queue.is_empty() {
            self.queue.end_round();
        }
        // SAFETY: `block` is the running fiber, which is not queued, and not cancelled; blocks stay in place
        // as long as their core.
        unsafe {
            self.queue.push(block);
            Core::leave(block);
        }
    }

    /// As [`yield_now`](Self::yield_now), but ends the round of [`run`](Self::run) first.
    pub(crate) fn yield_to_worker(&self, block: &Block) {
        self.queue.end_round();
        self.yield_now(block);
    }

    /// Suspends the running fiber until `deadline` has been reported to `expire`.
    pub(crate) fn sleep_until(
        &self,
        block: &Block,
        deadline: Instant,
        place: &'static Location<'static>,
    ) {
        if Core::returns_at_once(block) {
            return;
        }
        block.sleep_place.set(Some(place));
        block.sleep_seen.set(None);
        block.timer.set(Timer::Sleep(deadline));
        self.timers.insert(deadline, block.id.get().index);
        // SAFETY: `block` is the running fiber, and not cancelled.
        unsafe { Core::leave(block) };
        block.timer.set(Timer::Unset);
    }

    /// Suspends the running fiber until it is cancelled.
    pub(crate) fn sleep_for_ever(&self, block: &Block) {
        while !Core::returns_at_once(block) {
            self.park(block);
        }
    }

    /// Parks until `deadline` at most; returns whether it was an unpark that ended the wait.
    pub(crate) fn park_until(&self, block: &Block, deadline: Instant) -> bool {
        if Core::returns_at_once(block) {
            return false;
        }
        if block.state.get() != State::Active && Core::take_token(block) {
            return true;
        }
        let index = block.id.get().index;
        block.timer.set(Timer::Park(deadline));
        self.timers.insert(deadline, index);
        self.park(block);
        match block.timer.replace(Timer::Unset) {
            Timer::Park(deadline) => {
                self.timers.remove(deadline, index);
                true
            }
            _ => false,
        }
    }
}

/// Runs a fiber's body, or other code of users on the worker's stack. In a function of its own, so that an
/// overflow by a fiber's first frame happens when the fiber is noted as the running one.
#[inline(never)]
pub(super) fn contain(body: impl FnOnce()) {
    // Nothing may unwind out of a fiber, or into its worker. The body of a fiber reports panics to its
    // joiner; this catches those of destructors of results whose handles were dropped.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
        drop_payload(payload);
    }
}

/// Runs a fiber's closure on its fiber, drops the fiber's local values, and says how it ended.
#[inline]
pub(crate) fn run_to_end<T>(f: impl FnOnce() -> T) -> Result<T, JoinError> {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let value = f();
        close_locals();
        value
    }));
    result.map_err(how_it_ended)
}

/// Drops the local values of a fiber that panicked or was cancelled, and returns its error.
#[cold]
fn how_it_ended(payload: Box<dyn std::any::Any + Send>) -> JoinError {
    // First, as a destructor of a local value may panic as well.
    let place = panic_place_of(&*payload);
    if let Err(second) = catch_unwind(close_locals) {
        drop_payload(second);
    }
    let fiber = current::with_fiber(|_, block| match block.state.get() {
        State::Cancelled => None,
        _ => Some(block.name()),
    });
    match fiber.flatten() {
        Some(fiber) => JoinError::Panicked { fiber, payload, place },
        None => JoinError::Cancelled,
    }
}

#[inline]
fn close_locals() {
    current::with_fiber(|_, block| Locals::close(&block.locals));
}
