//! Stackful fibers: many flows of control on one thread, each with a stack of its own.
//!
//! Each OS thread owns one [`Scheduler`] and calls it from its loop; the scheduler resumes ready
//! fibers in turn, and a fiber runs until it waits. Fibers never move to another thread, so between
//! two waits nothing else of the thread runs, and a fiber finds the same thread-locals after a
//! wait.
//!
//! Deliberately absent: fibers that migrate between threads, preemption, a clock (the worker hands
//! in the time), OS threads, I/O.
//!
//! # What must not wait
//!
//! While a fiber waits (parks, sleeps, yields or joins), the other fibers of its thread run. The
//! standard library and most crates expect instead that the code further up a thread's stack
//! continues before anything else happens on that thread. So a wait is undefined behaviour in the
//! initialiser of a [`std::thread_local!`] and inside some scoped thread-locals, and a hang or a
//! panic in other initialisers and under guards. Gossamer's docs/guide.md has a table of all such
//! places ("Where a fiber must not wait") and of what to use instead, such as [`ThreadLocal`],
//! [`LazyLock`], [`OnceLock`] and [`fiber_local!`].
//!
//! This crate cannot detect such a wait: `std` does not report that an initialiser runs, and the
//! fiber that blocks the thread does so inside `std`. So there is no error, and code without `unsafe`
//! that waits in a `thread_local!` or a scoped thread-local has undefined behaviour.
//!
//! # Panics and fibers
//!
//! A panic never leaves its fiber: it is caught where the fiber began and given to the one that
//! joins, with its place if [`note_panics`] was called. The standard library counts panics per thread,
//! so when a destructor waits while its fiber panics, [`std::thread::panicking`] is true for the
//! thread's other fibers too until it has gone on.
//!
//! # Modules
//!
//! Each uses only those below it:
//!
//! | Module | What it is |
//! |---|---|
//! | `scheduler.rs` | [`Scheduler`] and [`Config`]: what the thread's worker calls |
//! | `scope.rs` | [`scope()`]: fibers that borrow from the fiber that starts them |
//! | `remote.rs` | [`Remote`]: starting fibers from other threads |
//! | `spawn.rs`, `thread_local.rs` | [`spawn_local`], [`Builder`]; [`ThreadLocal`], a value per thread |
//! | `select.rs`, `time.rs`, `join_timeout.rs` | [`select!`] over futures; [`Timer`], [`after`], [`interval`]; joining for a limited time |
//! | `join.rs`, `once.rs` | the handles to join; [`LazyLock`] and [`OnceLock`], a value per process |
//! | `waiter.rs`, `drive.rs` | a fiber, a thread or a task that any thread may wake; how a fiber waits for a future |
//! | `wait.rs`, `signal.rs` | which fibers wait, for what, since when: [`waiting_fibers`]; the signal that asks for it |
//! | [`oneshot`] | one value, from any thread to a task of an async runtime |
//! | `ops.rs` | what fibers call: [`park`], [`unpark`], [`sleep`] and so on |
//! | `unparker.rs`, `local.rs`, `overflow.rs` | [`Unparker`], for other threads; [`fiber_local!`], a value per fiber; from a fault in a stack's guard to a message |
//! | `core/` | the table of control blocks (`block.rs`) and every transition between ready, parked, asleep, unwound and ended (`run.rs`, `waking.rs`, `teardown.rs`), asking fibers what they wait for (`asking.rs`), where panics were raised (`panics.rs`), over the run queue, the deadlines and what other threads send; `current.rs`: the current scheduler and fiber |
//! | `switch/` | the seam to the stack switch |
//! | `stack.rs`, `abort.rs`, `error.rs`, `panic_place.rs`, `limits.rs` | the memory it switches to; ending the process; errors; the place of a panic; limits |

#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

mod scheduler;

mod ops;

mod select;

mod time;

mod drive;

mod wait;

mod unparker;

mod waiter;

#[allow(unsafe_code)] // Borrows the entered scheduler for as long as a function runs.
mod spawn;

mod join;
mod join_timeout;
mod limits;

mod remote;

#[allow(unsafe_code)] // Starts fibers whose closures borrow.
mod scope;

#[allow(unsafe_code)] // Blocks are reached through pointers that outlive every borrow of the core.
mod core;

#[allow(unsafe_code)] // Switches stacks.
mod switch;

#[allow(unsafe_code)] // Maps memory.
mod stack;

mod local;

mod once;

pub mod oneshot;

mod thread_local;

#[allow(unsafe_code)] // Handles signals.
mod overflow;

#[allow(unsafe_code)] // Handles a signal.
mod signal;

mod error;

mod panic_place;

#[allow(unsafe_code)] // Writes and aborts by system calls.
mod abort;

pub use crate::core::block::{FiberId, Waiting};
pub use crate::core::builder::Builder;
pub use crate::core::current::{park_waiting, unpark_waiting, waiting};
pub use crate::core::inbox::WakeHook;
pub use crate::core::locals::AccessError;
pub use crate::core::panics::{note_panics, panic_place_of, resume_panic};
pub use crate::core::{MayWait, Running};
pub use crate::drive::{drive, drive_until};
pub use crate::error::{JoinError, NotStarted, SpawnError};
pub use crate::join::{JoinHandle, LocalJoinHandle, Promise};
pub use crate::join_timeout::JoinTimeout;
pub use crate::limits::MAX_FIBERS;
pub use crate::local::LocalKey;
pub use crate::once::{LazyLock, OnceLock};
pub use crate::ops::{
    check_may_wait, current, deadline_after, in_fiber, name, park, park_or_give_up, park_until,
    sleep, sleep_until, unpark, unparker, yield_now, yield_to_worker,
};
pub use crate::panic_place::PanicPlace;
pub use crate::remote::Remote;
pub use crate::scheduler::{Config, Scheduler};
pub use crate::scope::{Scope, ScopedJoinHandle, scope};
#[doc(hidden)]
pub use crate::select::{
    NoBranch as __NoBranch, Selected as __Selected, no_branch_is_enabled as __select_none,
    wait_for_first as __select_wait,
};
pub use crate::signal::UserSignals;
pub use crate::spawn::spawn_local;
pub use crate::stack::MIN_STACK_BYTES;
pub use crate::thread_local::ThreadLocal;
pub use crate::time::{Interval, Tick, Timer, after, interval};
pub use crate::unparker::Unparker;
pub use crate::wait::{Wait, WaitingFiber, name_of, waiting_fibers};
