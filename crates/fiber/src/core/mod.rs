//! The heart of a scheduler: [`Core`], the table of control blocks. How a fiber starts, runs and waits
//! is in `run.rs`, how it is woken in `waking.rs`, how it is unwound in `teardown.rs`.
//!
//! A [`Core`] is reached through shared references only, from the worker's own stack and from all
//! of its fibers' stacks, so all of its state is in cells, and no cell stays borrowed across a
//! switch or a call into user code.

mod asking;
pub(crate) mod block;
pub(crate) mod builder;
#[allow(unsafe_code)] // Thread-local pointers to what is on the stack further up.
pub(crate) mod current;
pub(crate) mod inbox;
pub(crate) mod locals;
pub(crate) mod panics;
#[allow(unsafe_code)] // The run queue is an intrusive list of raw pointers.
mod queue;
mod run;
mod teardown;
pub(crate) mod timer;
mod waking;

use std::cell::{Cell, RefCell, UnsafeCell};
use std::fmt;
use std::ops::Range;
use std::panic::Location;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) use crate::core::asking::Answer;
use crate::core::block::{Block, FiberId, State, Timer};
use crate::core::inbox::{Message, Shared};
use crate::core::queue::Queue;
pub(crate) use crate::core::run::run_to_end;
use crate::core::timer::Timers;
use crate::error::SpawnError;
use crate::limits::MAX_FIBERS;
use crate::stack::{MIN_STACK_BYTES, Stack};

/// Writes what code the thread runs: see [`Config::running`](crate::Config::running).
pub type Running = fn(&mut dyn fmt::Write) -> fmt::Result;

/// A thread's own stack, as far as its overflow needs it.
#[derive(Clone)]
pub(crate) struct ThreadStack {
    /// The addresses whose touch is an overflow.
    pub(crate) guard: Range<usize>,
    pub(crate) bytes: usize,
}

pub(crate) struct Core {
    pub(crate) queue: Rc<Queue<Block>>,
    /// The blocks at stable addresses; they are freed with the core, not before.
    blocks: UnsafeCell<Vec<NonNull<Block>>>,
    pub(crate) timers: Timers,
    pub(crate) shared: Arc<Shared>,
    /// Free blocks that have a standard stack, and those that have none.
    pooled: RefCell<Vec<u32>>,
    bare: RefCell<Vec<u32>>,
    /// Emptied message lists, kept for their capacity.
    pub(crate) spare: Cell<Vec<Message>>,
    live: Cell<usize>,
    started: Cell<u64>,
    /// Whether `run` is under way, and the fibers of this core perhaps not all suspended.
    runs: Cell<bool>,
    closing: Cell<bool>,
    stack_bytes: usize,
    pooled_stacks: usize,
    pub(crate) may_wait: Option<MayWait>,
    /// For the overflow message: what code runs, and the thread's own stack.
    pub(crate) running: Option<Running>,
    pub(crate) thread_stack: Option<ThreadStack>,
    /// Whether fibers are asked what they wait for, and what they have answered.
    pub(crate) asking: Cell<bool>,
    pub(crate) answers: RefCell<Vec<(FiberId, Answer)>>,
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
            live: Cell::new(0),
            started: Cell::new(0),
            runs: Cell::new(false),
            closing: Cell::new(false),
            stack_bytes: stack_bytes.max(MIN_STACK_BYTES),
            pooled_stacks,
            may_wait,
            running: None,
            thread_stack: None,
            asking: Cell::new(false),
            answers: RefCell::default(),
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
        let block = NonNull::from(Box::leak(Box::new(Block::new(index as u32, &*self.queue))));
        blocks.push(block);
        // SAFETY: just made; freed with the core.
        Ok(unsafe { block.as_ref() })
    }

    /// Returns the block of a fiber that has ended to the free ones.
    #[cold]
    #[inline(never)]
    pub(in crate::core) fn retire(&self, block: &Block) {
        self.recycle(block);
    }

    /// As [`retire`](Self::retire), inlined.
    #[inline(always)]
    pub(in crate::core) fn recycle(&self, block: &Block) {
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

/// Returns why the running code must not wait, if it must not. It is given the function that would wait,
/// as messages name it, and the place of the call, which then panics with this reason.
pub type MayWait = fn(&str, &'static Location<'static>) -> Result<(), Box<str>>;
