//! The heart of a scheduler: the table of control blocks, and how a fiber starts, runs, waits and
//! ends. How it is woken is in `waking.rs`.
//!
//! A [`Core`] is reached through shared references only, from the worker's own stack and from all
//! of its fibers' stacks, so all of its state is in cells, and no cell stays borrowed across a
//! switch or a call into user code.

use std::borrow::Cow;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use primitive::drop_payload;

pub(crate) mod block;
#[allow(unsafe_code)] // Thread-local pointers to what is on the stack further up.
pub(crate) mod current;
#[allow(unsafe_code)] // The ring grows in place and is read without bounds checks.
mod queue;
mod timer;
mod waking;

use crate::core::block::{Block, FiberId, State, Timer};
use crate::core::current::{CURRENT, Entered};
use crate::core::queue::Queue;
use crate::core::timer::Timers;
use crate::error::SpawnError;
use crate::remote::{Message, Shared};
use crate::scheduler::MayWait;
use crate::stack::{MIN_STACK_BYTES, Stack};
use crate::switch::{Resumed, Switch};

/// Fibers of one thread, at most.
pub const MAX_FIBERS: usize = 1 << 20;

/// How often a cancelled fiber may catch its own unwinding and wait again before the process is
/// aborted.
const MAX_DEFIANCE: u32 = 64;
/// How many waits of destructors may return at once, in a cancelled fiber, before the process is
/// aborted: they are in a loop that waits for something that cannot happen any more.
const MAX_FUTILE_WAITS: u32 = 1 << 20;

/// What is thrown in a fiber that waits after its cancellation.
struct Cancellation;

pub(crate) struct Core {
    pub(crate) queue: Queue,
    /// The blocks at stable addresses; they are freed with the core, not before.
    blocks: UnsafeCell<Vec<NonNull<Block>>>,
    pub(crate) timers: Timers,
    pub(crate) shared: Arc<Shared>,
    /// Free blocks that have a standard stack, and those that have none.
    pooled: RefCell<Vec<u32>>,
    bare: RefCell<Vec<u32>>,
    /// Emptied message lists, kept for their capacity.
    pub(crate) spare: Cell<Vec<Message>>,
    /// Where `run` stops for now: the position behind the last fiber that it may resume.
    end: Cell<usize>,
    live: Cell<usize>,
    started: Cell<u64>,
    /// Whether `run` is under way, and the fibers of this core perhaps not all suspended.
    runs: Cell<bool>,
    closing: Cell<bool>,
    stack_bytes: usize,
    pooled_stacks: usize,
    pub(crate) may_wait: Option<MayWait>,
    /// For the overflow message: the handler cannot ask the standard library.
    pub(crate) thread_name: Box<str>,
}

impl Core {
    pub(crate) fn new(
        stack_bytes: usize,
        pooled_stacks: usize,
        may_wait: Option<MayWait>,
        shared: Arc<Shared>,
    ) -> Core {
        Core {
            queue: Queue::new(),
            blocks: UnsafeCell::new(Vec::new()),
            timers: Timers::default(),
            shared,
            pooled: RefCell::default(),
            bare: RefCell::default(),
            spare: Cell::default(),
            end: Cell::new(0),
            live: Cell::new(0),
            started: Cell::new(0),
            runs: Cell::new(false),
            closing: Cell::new(false),
            stack_bytes: stack_bytes.max(MIN_STACK_BYTES),
            pooled_stacks,
            may_wait,
            thread_name: std::thread::current().name().unwrap_or("unnamed").into(),
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.live.get()
    }

    #[inline(always)]
    pub(crate) fn at(&self, index: u32) -> Option<&Block> {
        // SAFETY: only this thread touches the table, and nothing in this expression calls out;
        // blocks are freed when the core is dropped, so one outlives this borrow of the core.
        unsafe {
            let blocks: &Vec<NonNull<Block>> = &*self.blocks.get();
            blocks.get(index as usize).map(|block| block.as_ref())
        }
    }

    /// The fiber that `id` names, unless it has ended.
    #[inline(always)]
    pub(crate) fn find(&self, id: FiberId) -> Option<&Block> {
        // A block's index never changes.
        self.at(id.index).filter(|block| block.id.get().generation == id.generation)
    }

    // ---- starting ------------------------------------------------------------------------------

    /// Takes a block with a stack for a new fiber. It has to be launched, since nothing else will
    /// ever free it.
    pub(crate) fn reserve(&self, stack_bytes: Option<usize>) -> Result<&Block, SpawnError> {
        if self.closing.get() {
            return Err(SpawnError::Closed);
        }
        let bytes = stack_bytes.unwrap_or(self.stack_bytes).max(MIN_STACK_BYTES);
        let standard = bytes == self.stack_bytes;
        let pooled = if standard { self.pooled.borrow_mut().pop() } else { None };
        let block = match pooled.and_then(|index| self.at(index)) {
            Some(block) => block,
            None => self.reserve_bare(bytes, standard)?,
        };
        self.live.set(self.live.get() + 1);
        Ok(block)
    }

    #[cold]
    fn reserve_bare(&self, stack_bytes: usize, standard: bool) -> Result<&Block, SpawnError> {
        let bare = self.bare.borrow_mut().pop();
        let block = match bare.and_then(|index| self.at(index)) {
            Some(block) => block,
            None => self.grow()?,
        };
        let index = block.id.get().index;
        match Stack::map(stack_bytes, index as usize) {
            Ok(stack) => block.stack.set(Some(stack)),
            Err(source) => {
                self.bare.borrow_mut().push(index);
                return Err(SpawnError::Stack { stack_bytes, live: self.live() + 1, source });
            }
        }
        block.standard.set(standard);
        Ok(block)
    }

    fn grow(&self) -> Result<&Block, SpawnError> {
        // SAFETY: only this thread touches the table, and nothing below calls out while it is
        // borrowed.
        let blocks = unsafe { &mut *self.blocks.get() };
        let index = blocks.len();
        if index >= MAX_FIBERS {
            return Err(SpawnError::TooMany);
        }
        self.queue.reserve(index + 1);
        let block = NonNull::from(Box::leak(Box::new(Block::new(index as u32, self))));
        blocks.push(block);
        // SAFETY: just made; freed with the core.
        Ok(unsafe { block.as_ref() })
    }

    /// Makes a reserved block a fiber that will run `body`.
    #[inline]
    pub(crate) fn launch<F>(
        &self,
        block: &Block,
        name: Option<Cow<'static, str>>,
        body: F,
    ) -> FiberId
    where
        F: FnOnce() + 'static,
    {
        let serial = self.started.get() + 1;
        self.started.set(serial);
        block.serial.set(serial);
        block.name.set(name);
        block.locals.borrow_mut().reopen();
        let Some(stack) = block.stack.take() else {
            unreachable!("a reserved block has a stack");
        };
        let this: *const Block = block;
        let contained = move || {
            CURRENT.with(|current| current.running.set(this));
            contain(body);
        };
        // SAFETY: a reserved block's stack is idle, and is unmapped only after the fiber has ended
        // (`retire`, `drop`); the block stays in place as long as the core lives.
        unsafe { block.switch.load(&stack, contained) };
        block.stack.set(Some(stack));
        block.state.set(State::Active);
        self.queue.push(block);
        block.id.get()
    }

    // ---- running -------------------------------------------------------------------------------

    /// Resumes up to `limit` ready fibers and returns how many. To be called on the thread's own
    /// stack, with this core entered.
    ///
    /// Only the first of them is resumed from here: fibers that wait [hand over](Self::leave) to the
    /// next one. Whoever gets the processor notes that it is the one that runs.
    #[inline]
    pub(crate) fn run(&self, limit: usize) -> usize {
        self.runs.set(true);
        let start = self.queue.position();
        self.end.set(start.wrapping_add(limit));
        while let Some(block) = self.take_next() {
            // SAFETY: a queued block is loaded and suspended; this is the thread's own stack.
            unsafe { block.switch.resume() };
            // SAFETY: whoever goes on puts its block there (`leave`, `launch`), every `Entered` on its
            // stack restores it, and nobody else gives the processor back: it is a block of this
            // core.
            let block = unsafe { &*CURRENT.with(|current| current.running.get()) };
            if block.switch.became() == Resumed::Finished {
                self.retire(block);
            }
        }
        CURRENT.with(|current| current.running.set(std::ptr::null()));
        self.runs.set(false);
        self.queue.position().wrapping_sub(start)
    }

    /// Takes the next fiber that `run` has to resume out of the queue.
    #[inline(always)]
    fn take_next(&self) -> Option<&Block> {
        let next = self.queue.first().filter(|_| self.queue.position() != self.end.get())?;
        self.queue.remove_first();
        // SAFETY: only blocks of this core are queued here, and they are freed with it.
        Some(unsafe { next.as_ref() })
    }

    /// Suspends the running fiber: gives the processor to the next one, or back to `run`.
    ///
    /// # Safety
    /// `block` is the running fiber, and not cancelled.
    #[inline(always)]
    unsafe fn leave(&self, block: &Block) {
        let next = if Switch::HANDS_OVER { self.take_next() } else { None };
        // SAFETY: the caller runs on the stack of `block`, and `run` has resumed it or whoever handed
        // over to it: a cancelled fiber does not come here. A queued block is loaded and suspended,
        // or is this one, which then stays where it is.
        unsafe {
            match next {
                Some(next) => block.switch.hand_over(&next.switch),
                None => block.switch.suspend(),
            }
        }
        CURRENT.with(|current| current.running.set(block));
    }

    /// Returns the block of a fiber that has ended to the free ones.
    #[cold]
    #[inline(never)]
    fn retire(&self, block: &Block) {
        let FiberId { index, generation } = block.id.get();
        if let Timer::Sleep(deadline) | Timer::Park(deadline) = block.timer.replace(Timer::Unset) {
            self.timers.remove(deadline, index);
        }
        block.id.set(FiberId { index, generation: generation.wrapping_add(1) });
        block.state.set(State::Free);
        block.defiance.set(0);
        block.futile_waits.set(0);
        block.name.set(None);
        self.live.set(self.live.get() - 1);
        let mut pooled = self.pooled.borrow_mut();
        if block.standard.get() && pooled.len() < self.pooled_stacks {
            pooled.push(index);
        } else {
            block.stack.set(None);
            self.bare.borrow_mut().push(index);
        }
    }

    // ---- waiting, called by the fiber itself
    // ------------------------------------------------------

    /// Suspends the running fiber until somebody unparks it.
    #[inline(always)]
    pub(crate) fn park(&self, block: &Block) {
        if block.state.get() == State::Active {
            block.state.set(State::Parked);
            // SAFETY: `block` is the running fiber, and not cancelled.
            unsafe { self.leave(block) };
        } else {
            Core::take_token(block);
        }
    }

    /// Uses up the token that makes a wait return at once. Returns whether there was one; for a
    /// cancelled fiber, there is none.
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
        self.queue.push(block);
        // SAFETY: `block` is the running fiber, and not cancelled.
        unsafe { self.leave(block) };
    }

    /// As [`yield_now`](Self::yield_now), but ends the round of [`run`](Self::run) first.
    pub(crate) fn yield_to_worker(&self, block: &Block) {
        self.end.set(self.queue.position());
        self.yield_now(block);
    }

    /// Suspends the running fiber until `deadline` has been reported to `expire`.
    pub(crate) fn sleep_until(&self, block: &Block, deadline: Instant) {
        if Core::returns_at_once(block) {
            return;
        }
        block.timer.set(Timer::Sleep(deadline));
        self.timers.insert(deadline, block.id.get().index);
        // SAFETY: `block` is the running fiber, and not cancelled.
        unsafe { self.leave(block) };
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

    /// Whether the fiber is cancelled, so that its wait must return without suspending it.
    ///
    /// A cancelled fiber never suspends again. Destructors that run while it unwinds go on without
    /// having waited, because another panic would abort the process. Elsewhere (the fiber has
    /// caught the unwinding) the wait throws it again. If the fiber does not end in spite of both,
    /// the process ends with a message instead of hanging.
    ///
    /// The count of panics is the thread's, so that it may be another fiber that panics: then the
    /// fiber goes on, and is thrown nothing.
    #[inline]
    fn returns_at_once(block: &Block) -> bool {
        block.state.get() == State::Cancelled && Core::refuse_to_wait(block)
    }

    #[cold]
    #[inline(never)]
    fn refuse_to_wait(block: &Block) -> bool {
        let unwinds = std::thread::panicking();
        let (count, limit) = if unwinds {
            (&block.futile_waits, MAX_FUTILE_WAITS)
        } else {
            (&block.defiance, MAX_DEFIANCE)
        };
        count.set(count.get() + 1);
        if count.get() > limit {
            crate::overflow::die(&[
                b"fiber '",
                block.name().as_bytes(),
                b"' does not end although its scheduler was dropped: its destructors must not wait \
                  in a loop, and a loop must not catch the unwinding\n",
            ]);
        }
        if !unwinds {
            std::panic::resume_unwind(Box::new(Cancellation));
        }
        true
    }

    // ---- the end
    // -----------------------------------------------------------------------------------

    /// Refuses new fibers, unwinds the suspended ones, and returns how many there were.
    ///
    /// While fibers run, it only sees to it that the core stays for good: the process is ending,
    /// since a fiber has called `exit`, which drops what is in thread-locals under `run`.
    pub(crate) fn close(self: &Rc<Self>) -> usize {
        if self.runs.get() {
            std::mem::forget(Rc::clone(self));
            return 0;
        }
        self.closing.set(true);
        // Before entering: dropping what others have sent runs their code, which must find this
        // thread's fiber running, if there is one, and not run another scheduler on its stack.
        drop_quietly(self.shared.close());
        let unwound = self.live();
        self.unwind_suspended();
        unwound
    }

    /// Unwinds the fibers that are suspended. May be called by a fiber that is being unwound, and
    /// then leaves out that one and those that wait in this function: they are cancelled already.
    fn unwind_suspended(&self) {
        let _entered = Entered::for_teardown(self);
        let mut index = 0;
        while let Some(block) = self.at(index) {
            index += 1;
            if matches!(block.state.get(), State::Free | State::Cancelled) {
                continue;
            }
            block.state.set(State::Cancelled);
            CURRENT.with(|current| current.running.set(block));
            // SAFETY: a block that is neither free nor cancelled holds a loaded execution; it is
            // suspended, because no `run` is under way, and the fibers whose stacks this runs on are
            // cancelled.
            unsafe { block.switch.unwind() };
            CURRENT.with(|current| current.running.set(std::ptr::null()));
            self.retire(block);
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        for block in self.blocks.get_mut().drain(..) {
            // SAFETY: made by `Box::leak` in `grow`; `close` has ended every execution, and with
            // the core go the last pointers to its blocks.
            drop(unsafe { Box::from_raw(block.as_ptr()) });
        }
    }
}

/// Runs a fiber's body. In a function of its own, so that what is too large for the stack is found
/// out when the fiber is known to be the one that runs.
#[inline(never)]
fn contain(body: impl FnOnce()) {
    // Nothing may unwind out of a fiber. `body` reports panics to its joiner; what is left are
    // destructors of results that nobody waits for.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
        drop_payload(payload);
    }
}

/// Drops values of users where a panic of a destructor must not escape.
fn drop_quietly(messages: Vec<Message>) {
    for message in messages {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(message))) {
            drop_payload(payload);
        }
    }
}
