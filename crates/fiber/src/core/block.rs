//! A fiber's control block: its identity, its wait, and its suspended execution.
//!
//! Only the thread that owns the scheduler touches a block, so plain cells suffice. A block stays
//! at one address as long as its scheduler lives and is used again, with its stack, by later
//! fibers.
//!
//! The run queue is an intrusive list ([`Queue`]), so a fiber must be in it at most once. That follows from
//! who may put it there:
//! 1. `launch`, for a block that was free (`launch_now` resumes one instead);
//! 2. `unpark` and an expired `park_until`, which turn `Parked` into `Active`;
//! 3. the fiber itself in `yield_now`, while it runs and therefore is not queued;
//! 4. an expired `sleep`, whose timer exists only while the fiber is suspended in that sleep.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use primitive::sync::{AtomicBool, AtomicUsize, Ordering};

use crate::core::locals::Locals;
use crate::core::queue::{Link, Linked, Queue};
use crate::stack::Stack;
use crate::switch::Switch;

/// Names one fiber of one thread: an index into the thread's table and a generation that tells it
/// from the fibers that had the same place before.
///
/// The id of a fiber that has ended names no fiber. On another thread an id means nothing; use an
/// [`Unparker`](crate::Unparker) there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FiberId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl FiberId {
    /// A small number, which no two fibers of a scheduler have at the same time.
    #[inline]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// The id as one word, for storing it in a request or an atomic.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The id that [`FiberId::to_bits`] turned into `bits`. Bits from elsewhere make an id that
    /// names no fiber or the wrong one, which then wakes spuriously; nothing worse happens.
    #[inline]
    pub const fn from_bits(bits: u64) -> FiberId {
        FiberId { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// A handle to wake a waiting fiber: unlike a [`FiberId`] it is not looked up, and must
/// not be used when the fiber's scheduler is gone.
#[derive(Clone, Copy, Debug)]
pub struct Waiting(pub(crate) NonNull<Block>);

impl std::fmt::Debug for FiberId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FiberId({}.{})", self.index, self.generation)
    }
}

/// Where a fiber stands between park and unpark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    /// Running, queued, or asleep; not parked, and holds no token.
    Active,
    /// As `Active`, and holds the token: the next park returns at once.
    Notified,
    /// Suspended until an unpark.
    Parked,
    /// Being unwound: runs, or has resumed those that run. May suspend only to linger.
    Cancelled,
    /// As `Cancelled`, but suspended until the children of its innermost scope have ended.
    Lingering,
    /// The block belongs to no fiber.
    Free,
}

/// What the thread's timers know about a fiber.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// Nothing.
    Unset,
    /// Asleep until then; unparks do not end it.
    Sleep(Instant),
    /// Parked until then at most.
    Park(Instant),
    /// The deadline came before the unpark.
    Fired,
}

/// The control block. The fields that every switch touches come first.
#[repr(C, align(64))]
pub(crate) struct Block {
    /// What is queued behind it, while it is queued itself.
    next: Link<Block>,
    /// The run queue of its scheduler.
    pub(crate) queue: *const Queue<Block>,
    pub(crate) state: Cell<State>,
    pub(crate) id: Cell<FiberId>,
    pub(crate) switch: Switch,
    /// Where its starter takes a value, until the fiber waits for the first time: a cell on the
    /// stack of `Core::launch_now`, which then sets this to null. Null if it was started otherwise.
    pub(crate) starter: Cell<*const ()>,
    pub(crate) timer: Cell<Timer>,
    /// Where the fiber's last sleep began, and when it was first asked about it.
    pub(crate) sleep_place: Cell<Option<&'static Location<'static>>>,
    pub(crate) sleep_seen: Cell<Option<Instant>>,
    /// Mapped while a fiber owns the block, and while the block waits in the pool.
    pub(crate) stack: Cell<Option<Stack>>,
    /// Whether the stack has the scheduler's standard size and may be pooled.
    pub(crate) standard: Cell<bool>,
    /// How often the fiber caught its cancellation and waited again.
    pub(crate) defiance: Cell<u32>,
    /// How many waits of its destructors returned at once, after its cancellation.
    pub(crate) futile_waits: Cell<u32>,
    /// Counts the fibers of the thread, for the default name.
    pub(crate) serial: Cell<u64>,
    pub(crate) name: Cell<Option<Cow<'static, str>>>,
    /// The name of the code that it runs, for messages.
    pub(crate) code: Cell<&'static str>,
    pub(crate) locals: RefCell<Locals>,
    /// The fibers and callbacks of each scope of the fiber, the innermost scope last: they borrow from
    /// its stack.
    pub(crate) scopes: RefCell<Vec<Arc<Children>>>,
}

/// How many fibers and callbacks of a scope have not ended.
pub(crate) struct Children {
    pub(crate) live: AtomicUsize,
    /// Those of them that are fibers or callbacks of the thread of the scope's fiber. A fiber is counted
    /// once it has started, which may be after its end: so this may pass below zero.
    pub(crate) beside: AtomicUsize,
    /// Whether the scope's closure runs. Its frames may hold callbacks, and lend nothing to children.
    pub(crate) closure_runs: AtomicBool,
}

impl Children {
    pub(crate) fn new() -> Children {
        Children {
            live: AtomicUsize::new(0),
            beside: AtomicUsize::new(0),
            closure_runs: AtomicBool::new(true),
        }
    }

    pub(crate) fn any(&self) -> bool {
        self.live.load(Ordering::Acquire) > 0
    }

    /// Whether one of them is on another thread, which ends it while this one waits. The thread is
    /// unparked when that changes. Asked on the thread of the scope's fiber.
    pub(crate) fn any_elsewhere(&self) -> bool {
        let live = self.live.load(Ordering::SeqCst).cast_signed();
        live > 0 && live > self.beside.load(Ordering::SeqCst).cast_signed()
    }

    /// Counts one that has ended, and returns how many are left, and whether all of them are on the
    /// thread of the scope's fiber.
    ///
    /// Sequentially consistent, as `any_elsewhere` and the additions to `beside`: either the thread
    /// that waits sees this end, or this sees what is on that thread.
    pub(crate) fn end_one(&self, beside: bool) -> (usize, bool) {
        if beside {
            self.beside.fetch_sub(1, Ordering::SeqCst);
        }
        let left = self.live.fetch_sub(1, Ordering::SeqCst) - 1;
        (left, left.cast_signed() <= self.beside.load(Ordering::SeqCst).cast_signed())
    }
}

impl Linked for Block {
    #[inline(always)]
    fn next(&self) -> &Link<Block> {
        &self.next
    }
}

impl Block {
    pub(crate) fn new(index: u32, queue: *const Queue<Block>) -> Block {
        Block {
            next: Cell::new(std::ptr::null()),
            queue,
            state: Cell::new(State::Free),
            id: Cell::new(FiberId { index, generation: 0 }),
            switch: Switch::new(),
            starter: Cell::new(std::ptr::null()),
            timer: Cell::new(Timer::Unset),
            sleep_place: Cell::new(None),
            sleep_seen: Cell::new(None),
            stack: Cell::new(None),
            standard: Cell::new(true),
            defiance: Cell::new(0),
            futile_waits: Cell::new(0),
            serial: Cell::new(0),
            name: Cell::new(None),
            code: Cell::new("?"),
            locals: RefCell::new(Locals::new()),
            scopes: RefCell::default(),
        }
    }

    /// Hands the fiber its token; `queue` is its scheduler's.
    #[inline(always)]
    pub(crate) fn wake(&self, queue: &Queue<Block>) {
        // Spelled out, because a jump table here would cost every wake an indirect jump.
        if self.state.get() == State::Parked {
            self.state.set(State::Active);
            // SAFETY: a parked fiber is not queued, and blocks stay in place as long as their core, whose
            // queue this is.
            unsafe { queue.push(self) };
        } else {
            self.leave_token();
        }
    }

    /// An unpark of a fiber that does not wait: its next wait returns at once.
    #[cold]
    #[inline(never)]
    fn leave_token(&self) {
        if self.state.get() == State::Active {
            self.state.set(State::Notified);
        }
    }

    /// Whether there are fibers or callbacks that may borrow from the fiber's stack.
    pub(crate) fn has_children(&self) -> bool {
        self.scopes.borrow().iter().any(|children| children.any())
    }

    /// Whether some of them are on other threads.
    pub(crate) fn has_children_elsewhere(&self) -> bool {
        self.scopes.borrow().iter().any(|children| children.any_elsewhere())
    }

    /// Whether the fiber runs the closure of each scope that has some: unwinding it may drop them.
    pub(crate) fn may_hold_children(&self) -> bool {
        let scopes = self.scopes.borrow();
        scopes
            .iter()
            .all(|children| children.closure_runs.load(Ordering::Relaxed) || !children.any())
    }

    /// The name given at spawn, or "fiber N".
    pub(crate) fn name(&self) -> String {
        let name = self.name.take();
        let text = match &name {
            Some(name) => name.to_string(),
            None => format!("fiber {}", self.serial.get()),
        };
        self.name.set(name);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_the_trip_through_a_word() {
        let id = FiberId { index: 7, generation: u32::MAX };
        assert_eq!(FiberId::from_bits(id.to_bits()), id);
    }

    #[test]
    fn a_switch_touches_one_cache_line() {
        let end = std::mem::offset_of!(Block, switch) + Switch::HOT_BYTES;
        assert!(end <= 64, "the hot part of a block has grown to {end} bytes");
    }
}
