//! The scheduler as its thread's worker sees it.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use std::{fmt, io};

use crate::core::block::FiberId;
use crate::core::current::{self, Entered};
use crate::core::inbox::{Shared, WakeHook};
use crate::core::{Core, MayWait, Running};
use crate::overflow::OverflowGuard;
use crate::remote::Remote;

/// Settings of a [`Scheduler`].
#[derive(Clone)]
pub struct Config {
    /// Usable bytes of a stack; raised to [`MIN_STACK_BYTES`](crate::MIN_STACK_BYTES) and rounded
    /// up to whole pages. Memory is used only as far as it is touched. Default: 128 KiB.
    pub stack_bytes: usize,
    /// How many idle stacks are kept for later fibers. Default: 1024.
    pub pooled_stacks: usize,
    /// Called by other threads after they have sent a fiber or an unpark: wakes the parker of the
    /// scheduler's thread. It is called on the sender's thread. Default: does nothing.
    pub wake: WakeHook,
    /// Called before code of the scheduler's thread waits in a public function other than
    /// [`park`](crate::park), with the name of the function and the place of the call: it returns the
    /// reason where waiting is not allowed. Default: waiting is allowed everywhere.
    pub may_wait: Option<MayWait>,
    /// Writes what code the thread runs, if that is not just a fiber, for the message that reports the
    /// overflow of a stack. It is called in a signal handler, on the thread itself: it may only read
    /// memory of the thread and format it, without allocating or locking. Default: nothing to add.
    pub running: Option<Running>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            stack_bytes: 128 * 1024,
            pooled_stacks: 1024,
            wake: Arc::new(|| {}),
            may_wait: None,
            running: None,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("stack_bytes", &self.stack_bytes)
            .field("pooled_stacks", &self.pooled_stacks)
            .finish_non_exhaustive()
    }
}

/// Runs the fibers of one thread, in turn, on that thread.
///
/// It has no thread and no clock of its own: the thread's worker calls [`run`](Scheduler::run) and
/// [`expire`](Scheduler::expire) in its loop, between polling whatever else it polls. A fiber runs
/// until it waits; it is never preempted.
///
/// Dropping the scheduler unwinds the fibers that have not ended: their destructors run, and
/// their joiners get [`JoinError::Cancelled`](crate::JoinError::Cancelled). A fiber that is
/// being unwound is never suspended again. What its destructors call returns at once: `sleep`,
/// `yield_now`, `park` and `park_until` without having waited, `join` with `Cancelled` if the fiber
/// that it waits for still has not ended after all others were unwound. A fiber that has caught the
/// unwinding and waits is unwound again. If it does not end in spite of that, because a destructor
/// waits in a loop or a loop catches the unwinding, the process ends with a message. A scheduler in
/// a thread-local that goes because one of its fibers has called [`exit`](std::process::exit)
/// unwinds none: the process ends as it is.
///
/// ```
/// use gossamer_fiber::{Config, Scheduler, spawn_local, yield_now};
///
/// let scheduler = Scheduler::new(Config::default())?;
/// let answer = scheduler.enter(|| {
///     spawn_local(|| {
///         let half = spawn_local(|| {
///             yield_now();
///             21
///         });
///         half.join().map(|half| 2 * half)
///     })
/// });
/// while !answer.is_finished() {
///     scheduler.run(64);
/// }
/// assert_eq!(answer.join()??, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Scheduler {
    /// In one place: thread-locals and the signal handler hold its address, and frames of suspended
    /// fibers borrow it. It has this one owner; a box would claim to be the only way to it.
    core: Rc<Core>,
    _overflow: OverflowGuard,
    /// A scheduler stays on its thread.
    _not_send: PhantomData<*mut ()>,
}

impl Scheduler {
    /// Makes a scheduler for the calling thread, and sees to it that a stack overflow in one of its
    /// fibers, or on the thread's own stack while it is entered, ends in a message: a handler for SIGSEGV
    /// and SIGBUS is installed once per process and passes on every fault that is no such overflow.
    ///
    /// # Errors
    /// When the signal handler or its stack cannot be installed.
    pub fn new(config: Config) -> io::Result<Scheduler> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let overflow = OverflowGuard::install()?;
        let shared = Arc::new(Shared::new(NEXT.fetch_add(1, Ordering::Relaxed), config.wake));
        let (stack_bytes, pooled_stacks) = (config.stack_bytes, config.pooled_stacks);
        let mut core = Core::new(stack_bytes, pooled_stacks, config.may_wait, shared);
        core.running = config.running;
        core.thread_stack = overflow.thread_stack();
        let core = Rc::new(core);
        Ok(Scheduler { core, _overflow: overflow, _not_send: PhantomData })
    }

    /// Runs `f` with this as the thread's current scheduler: `f` may spawn, and unpark by id.
    ///
    /// # Panics
    /// Panics on a fiber of another scheduler.
    #[track_caller]
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        let _entered = Entered::new(&self.core);
        f()
    }

    /// Takes in what other threads have sent, then resumes up to `limit` ready fibers, each until
    /// it waits or ends. Returns how many were resumed. With a `limit` above 0, 0 means that none was
    /// ready. Less than `limit` does not mean that: a fiber that calls
    /// [`yield_to_worker`](crate::yield_to_worker), or yields while no other is ready, ends the round.
    ///
    /// Called on one of its own fibers, it does nothing and returns 0.
    ///
    /// # Panics
    /// Panics on a fiber of another scheduler.
    #[inline]
    #[track_caller]
    pub fn run(&self, limit: usize) -> usize {
        // What most rounds of an idle thread find.
        if self.core.is_idle() && current::is_core(&self.core) { 0 } else { self.run_ready(limit) }
    }

    #[inline(never)]
    #[track_caller]
    fn run_ready(&self, limit: usize) -> usize {
        if !current::is_core(&self.core) {
            return self.enter(|| self.run_ready(limit));
        }
        self.core.drain_inbox();
        if current::with_fiber(|_, _| ()).is_some() {
            return 0;
        }
        self.core.run(limit)
    }

    /// Takes in the fibers and unparks that other threads have sent. Returns whether there were
    /// any. An empty inbox costs one load.
    #[inline]
    pub fn drain_inbox(&self) -> bool {
        self.core.drain_inbox()
    }

    /// Makes the fibers ready whose sleep or timed park ends at `now` or before, and returns the
    /// next deadline, up to which the thread may sleep.
    pub fn expire(&self, now: Instant) -> Option<Instant> {
        self.core.expire(now)
    }

    /// The next deadline, if any fiber has one.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.core.timers.next()
    }

    /// Whether a fiber is ready to be resumed. The inbox does not count.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.core.queue.is_empty()
    }

    /// Fibers that have been started and have not ended.
    pub fn live(&self) -> usize {
        self.core.live()
    }

    /// Same as [`unpark`](crate::unpark), for the worker that has its scheduler at hand.
    #[inline(always)]
    pub fn unpark(&self, id: FiberId) {
        self.core.unpark(id);
    }

    /// A handle with which other threads start fibers here.
    pub fn remote(&self) -> Remote {
        Remote { shared: Arc::clone(&self.core.shared) }
    }

    /// Drops the scheduler and returns how many fibers had not ended and were unwound.
    pub fn abandon(self) -> usize {
        self.core.close()
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.core.close();
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("live", &self.live())
            .field("ready", &self.has_ready())
            .finish_non_exhaustive()
    }
}
