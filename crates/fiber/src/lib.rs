//! Stackful fibers: many flows of control on one thread, each with a stack of its own.
//!
//! Each OS thread owns one [`Scheduler`] and calls it from its loop; the scheduler resumes ready
//! fibers in turn, and a fiber runs until it waits. Fibers never move to another thread, so between
//! two waits nothing else of the thread runs, and thread-local values stay valid across waits.
//!
//! Deliberately absent: fibers that migrate between threads, preemption, a clock (the worker hands
//! in the time), OS threads, I/O.
//!
//! Two things to know about panics. A panic never leaves its fiber: it is caught where the fiber
//! began and given to whoever joins. And the standard library counts panics per thread, so when a
//! destructor waits while its fiber panics, [`std::thread::panicking`] is true for the thread's
//! other fibers too until it has gone on.
//!
//! Reading order:
//! 1. [`Scheduler`] and [`Config`] (`scheduler.rs`): what the thread's worker calls.
//! 2. [`park`], [`unpark`], [`sleep`] and so on (`ops.rs`): what fibers call.
//! 3. [`spawn_local`], [`Builder`] (`spawn.rs`), the handles to join (`join.rs`), [`Remote`] and
//!    [`Unparker`] (`remote.rs`): starting fibers here and elsewhere, and waiting for them.
//! 4. `core.rs` and `waking.rs`: the table of control blocks (`block.rs`) and every transition
//!    between ready, parked, asleep and ended, over the run queue (`queue.rs`) and the deadlines
//!    (`timer.rs`).
//! 5. `here.rs`: the thread-local pointers to the current scheduler and fiber.
//! 6. `switch.rs`: the seam to the stack switch; `stack.rs`: the memory it switches to.
//! 7. [`fiber_local!`] (`local.rs`): values per fiber.
//! 8. `overflow.rs`: from a fault in a stack's guard to a message.

#![deny(unsafe_code)]

mod scheduler;

mod ops;

mod spawn;

mod join;

mod remote;

#[allow(unsafe_code)] // Blocks are reached through pointers that outlive every borrow of the core.
mod core;

mod waking;

mod block;

#[allow(unsafe_code)] // The ring grows in place and is read without bounds checks.
mod queue;

mod timer;

#[allow(unsafe_code)] // Thread-local pointers to what is on the stack further up.
mod here;

#[allow(unsafe_code)] // Switches stacks.
mod switch;

#[allow(unsafe_code)] // Maps memory.
mod stack;

mod local;

mod once;

mod thread_local;

#[allow(unsafe_code)] // Handles signals.
mod overflow;

mod error;

pub use crate::block::{FiberId, Waiting};
pub use crate::core::MAX_FIBERS;
pub use crate::error::{JoinError, SpawnError};
pub use crate::here::{unpark_waiting, waiting};
pub use crate::join::{JoinHandle, LocalJoinHandle, Promise};
pub use crate::local::{AccessError, LocalKey};
pub use crate::once::{LazyLock, OnceLock};
pub use crate::ops::{
    current, in_fiber, name, park, park_until, sleep, unpark, unparker, yield_now,
};
pub use crate::remote::{Remote, Unparker, WakeHook};
pub use crate::scheduler::{Config, MayWait, Scheduler};
pub use crate::spawn::{Builder, spawn_local};
pub use crate::stack::MIN_STACK_BYTES;
pub use crate::thread_local::ThreadLocal;
