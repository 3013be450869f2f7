//! Gossamer runs one program on all processors of a rack. Each shared value lives on one thread, its
//! *trustee*. Instead of taking a lock, other threads, on any host, send the trustee closures to run
//! on the value. It looks like a multi-threaded program; it runs on a rack, over shared memory, TCP
//! and RDMA.
//!
//! ```
//! use gossamer::{Rack, Trust, spawn_with};
//!
//! # fn main() -> Result<(), gossamer::RackError> {
//! Rack::new().threads(2).run(|| {
//!     let counter: Trust<u64> = gossamer::entrust(0);
//!     let add = |counter: Trust<u64>| (0..1000).for_each(|_| counter.apply(|n| *n += 1));
//!     let fibers: Vec<_> = (0..4).map(|_| spawn_with(add, counter.clone())).collect();
//!     fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
//!     assert_eq!(counter.apply(|n| *n), 4000);
//! })
//! # }
//! ```
//!
//! With [`Rack::from_args`] instead of `Rack::new` the same program takes `--hosts` and `--threads`,
//! and runs on several machines under `gossamer run` or Slurm. The README shows that, and docs/guide.md
//! what to write instead of a mutex, a channel or a condition variable.
//!
//! # The rules
//!
//! ## What waits
//!
//! [`apply`], [`launch`], [`visit`], [`entrust_with`], [`JoinHandle::join`], [`sleep`](fn@sleep), [`yield_now`],
//! [`select!`], [`Barrier::wait`], [`Latch::lock`], channels, [`flush`] and [`fence`] wait: the fiber
//! stops, and the other fibers of its thread run. [`apply`] on a property of the caller's own thread
//! runs the closure at once, and gives way to others after about 50 microseconds of such calls; so does
//! [`apply_then`], which also waits when its queue is full, unless it is called in a delegated closure or a
//! callback. [`entrust`], [`LocalTrustee::entrust`],
//! [`Trustee::entrust_moved`] and the drop of a trust never wait.
//!
//! A delegated closure must not wait: it has its trustee's thread to itself, and a call that would wait
//! there fails with an error that names both places. It may call [`apply_then`], or be
//! [`launch`]ed on a [`Latch`], where it runs in a fiber of its own.
//!
//! Do not wait where code relies on having the thread for itself: in the initialisers of `std`'s
//! `thread_local!`, `LazyLock` and `OnceLock`, inside scoped thread-locals, or while a guard or a
//! borrow is alive that another fiber needs. Some of these are undefined behaviour that the runtime
//! cannot detect. docs/guide.md has a table of such places and of what to use instead ("Where a
//! fiber must not wait"). The initialisers of [`ThreadLocal`], [`LazyLock`] and [`OnceLock`] of this crate may
//! wait:
//!
//! ```
//! use gossamer::{LazyLock, Rack, Trust, entrust};
//!
//! /// Made by the first fiber that uses it, while others wait for it.
//! static TOTAL: LazyLock<Trust<u64>> = LazyLock::new(|| {
//!     let start = entrust(40u64);
//!     entrust(start.apply(|start| *start)) // waits, if `start` is on another thread
//! });
//!
//! let total = Rack::new().threads(2).run(|| {
//!     let add = || gossamer::spawn(|| TOTAL.apply(|total| *total += 1));
//!     [add(), add()].map(|fiber| fiber.join().unwrap());
//!     TOTAL.apply(|total| *total)
//! })?;
//! assert_eq!(total, 42);
//! # Ok::<(), gossamer::RackError>(())
//! ```
//!
//! A static belongs to its process: in a rack of several hosts each has its own. To share one property
//! among all of them, make its trust in `run` and pass it on. A trust in a static does not outlive its
//! rack either: its property ends with the rack, and its use in a later rack of the same process is an
//! error.
//!
//! ## What blocks
//!
//! A fiber that blocks its OS thread (`std::thread::sleep`, a contended `std::sync::Mutex`, a socket)
//! stops everything that the thread serves. [`spawn_blocking`] runs such code on a thread outside the
//! rack, and [`block_on`] waits for a future.
//!
//! A long computation blocks as well: fibers are not preempted. While one computes, its thread serves
//! no requests and fires no timers. It must call [`yield_now`] every 50 microseconds or so, or run on
//! threads that hold no values ([`Rack::dedicated_trustees`]):
//!
//! ```
//! # gossamer::Rack::new().threads(1).run(|| {
//! let mut sum = 0u64;
//! for (block, start) in (0..1_000_000u64).step_by(10_000).enumerate() {
//!     sum += (start..start + 10_000).map(|n| n ^ block as u64).sum::<u64>();
//!     gossamer::yield_now();
//! }
//! # assert!(sum > 0);
//! # })?;
//! # Ok::<(), gossamer::RackError>(())
//! ```
//!
//! A delegated closure cannot yield; it should take microseconds. Split longer work, or [`launch`] it on
//! a [`Latch`]. If a program hangs, `GOSSAMER_STALL=10s` in its environment says where: [`Rack::run`].
//!
//! ## What is done when
//!
//! - When [`apply`] returns, the closure has run. When [`apply_then`] returns, it may not have been sent;
//!   its callback runs on the caller's thread, after the closure.
//! - A trustee serves the requests of one thread in the order of their calls. Requests of different
//!   threads are unordered.
//! - [`JoinHandle::join`] returns when the fiber has ended. What it sent by [`apply_then`] may still be
//!   in flight: [`flush`] waits for all requests of the caller's thread, [`fence`] for those of all
//!   threads of the rack.
//! - A value is dropped, by its trustee, after its last [`Trust`] has been dropped and all requests for
//!   it have been served.
//! - [`Rack::run`] returns when its closure has returned and every host has ended. Fibers that still run
//!   are unwound.
//!
//! ## What may travel
//!
//! - A delegated closure captures nothing; values go to it as arguments ([`apply_with`], [`delegate!`]).
//!   The callback of a `_then` form stays on its thread and may capture; to borrow, it is made by
//!   [`Scope::callback`].
//! - Arguments and results are [`Portable`]: owned data with serde's `Serialize` and `Deserialize`. A
//!   [`Trust`] travels, too, as an argument, a result or a part of one.
//! - Values that cannot be encoded stay on their host: [`entrust`], [`spawn`], [`scope`].
//! - All processes of a rack run the same binary, which is how a closure is named to another process.
//!   Code that the other process was built without travels as a jam (feature `jam`).
//!
//! [`apply`]: Trust::apply
//! [`apply_then`]: Trust::apply_then
//!
//! # All calls
//!
//! Work is delegated to a property, to a latch (whose closures may wait) or to a thread, the trustee.
//! Each of these has the same calls, whose names are composed: the prefix `try_` returns failures as
//! errors instead of panics, `_with` sends arguments to the closure, and a last `_then` means that the
//! caller does not wait, or `_async` that a task of an async runtime awaits the call (feature `tokio`).
//! Trusts also have forms with [`_later` and `_timeout`](#waiting-with-a-limit-and-for-several-things), and
//! latches [`launch_guard`](Trust::launch_guard), whose closure can wait at a [`Condvar`]. That waits for
//! the result, so its forms are [`launch_guard_with`](Trust::launch_guard_with),
//! [`try_launch_guard`](Trust::try_launch_guard) and
//! [`try_launch_guard_with`](Trust::try_launch_guard_with).
//!
//! | | a property, `Trust<T>` | a latch, `Trust<Latch<T>>` | a thread, [`Trustee`] | a value to a thread |
//! |---|---|---|---|---|
//! | the closure gets | `&mut T` | `&mut T` | nothing | nothing, and its result is entrusted |
//! | waits | [`apply`] | [`launch`] | [`visit`] | [`entrust`][te] |
//! | with arguments | [`apply_with`] | [`launch_with`] | [`visit_with`] | [`entrust_with`] |
//! | waits, fallible | [`try_apply`] | [`try_launch`] | [`try_visit`] | [`try_entrust`][tte] |
//! | with arguments | [`try_apply_with`] | [`try_launch_with`] | [`try_visit_with`] | [`try_entrust_with`] |
//! | does not wait | [`apply_then`] | [`launch_then`] | [`visit_then`] | [`entrust_then`] |
//! | with arguments | [`apply_with_then`] | [`launch_with_then`] | [`visit_with_then`] | [`entrust_with_then`] |
//! | does not wait, fallible | [`try_apply_then`] | [`try_launch_then`] | [`try_visit_then`] | [`try_entrust_then`] |
//! | with arguments | [`try_apply_with_then`] | [`try_launch_with_then`] | [`try_visit_with_then`] | [`try_entrust_with_then`] |
#![cfg_attr(
    feature = "tokio",
    doc = "| from async code, fallible | [`apply_async`](Trust::apply_async) | [`launch_async`](Trust::launch_async) | [`visit_async`](Trustee::visit_async) | [`entrust_async`](Trustee::entrust_async) |",
    doc = "| with arguments | [`apply_with_async`](Trust::apply_with_async) | [`launch_with_async`](Trust::launch_with_async) | [`visit_with_async`](Trustee::visit_with_async) | [`entrust_with_async`](Trustee::entrust_with_async) |"
)]
#![cfg_attr(
    not(feature = "tokio"),
    doc = "| from async code, fallible | `apply_async` | `launch_async` | `visit_async` | `entrust_async` |",
    doc = "| with arguments | `apply_with_async` | `launch_with_async` | `visit_with_async` | `entrust_with_async` |"
)]
//!
//! A property has forms for results that are only looked at, where they lie: the closure returns a
//! reference into the property (`Option<&[u8]>`, `Option<&str>` or one to an [`AsView`] type), and a second
//! closure sees it on the caller's thread. They are [`apply_ref`](Trust::apply_ref),
//! [`apply_ref_with`](Trust::apply_ref_with), [`try_apply_ref`](Trust::try_apply_ref),
//! [`try_apply_ref_with`](Trust::try_apply_ref_with), [`apply_ref_then`](Trust::apply_ref_then),
//! [`apply_ref_with_then`](Trust::apply_ref_with_then), [`try_apply_ref_then`](Trust::try_apply_ref_then)
//! and [`try_apply_ref_with_then`](Trust::try_apply_ref_with_then).
//!
//! Bytes and text that the caller only lends are sent by [`lend`](Trust::lend): the closure gets references,
//! and nothing is allocated on the way for up to 8 KiB. Both go together: `trust.lend(key).apply_ref(..)`
//! ([`Lending::apply_ref`]).
//!
//! [`with_prefetch`](Trust::with_prefetch) is for properties that are larger than the processor's cache: a
//! hook asks for the memory that a call will touch, by [`prefetch`], while others are served.
//!
//! A latch has forms for closures that only read, several of which hold it at a time:
//! [`launch_shared`](Trust::launch_shared), [`launch_shared_with`](Trust::launch_shared_with) and their
//! `try_` forms. They pay where the closures wait.
//!
//! What holds for all of them, wherever the closure runs, on the caller's own thread too:
//!
//! - A call that waits panics at the caller's line if it fails; its `try_` form returns a
//!   [`DelegateError`], and so does the future of an `_async` form.
//! - `_then` calls its callback once, on the caller's thread. Without `try_` it does so only with a
//!   result; a failure ends the rack with an error that names the line of the call. The one difference: on
//!   the caller's own thread the closure of a `_then` runs at once, and its panic goes on to the caller.
//! - [`delegate!`] passes local values by name: `delegate!(trust, [key] |map| map.remove(&key))`, or with
//!   any form above of `apply`, `launch` and `visit`,
//!   `delegate!(trust => try_apply_then, [key] |map| .., |removed| ..)`.
//!
//! Fibers are started by [`spawn`] (on this host), [`spawn_on`] and [`spawn_on_with`] (on any thread),
//! and [`JoinHandle::join`] returns their results. [`Trust::id`] orders properties, for fibers that hold
//! several latches.
//!
//! ```
//! use gossamer::{DelegateError, Latch, Rack, delegate, entrust};
//!
//! Rack::new().threads(2).run(|| -> Result<(), DelegateError> {
//!     let stock = entrust(vec!["nut", "bolt"].into_iter().map(String::from).collect::<Vec<_>>());
//!     let name = String::from("screw");
//!     assert_eq!(delegate!(stock => try_apply, [name] |s| { s.push(name); s.len() })?, 3);
//!     stock.apply_then(|s| s.pop(), |last| assert_eq!(last.unwrap(), "screw"));
//!     let orders = stock.trustee().entrust_with(Latch::new, 0u32);
//!     // The closure waits for another property.
//!     let count = delegate!(orders => try_launch, [stock] |n| { *n += 1; stock.apply(|s| s.len()) })?;
//!     assert_eq!(count, 2);
//!     assert_eq!(orders.trustee().visit(|| gossamer::local_host()), gossamer::local_host());
//!     Ok(())
//! })??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`launch`]: Trust::launch
//! [`visit`]: Trustee::visit
//! [te]: Trustee::entrust
//! [`apply_with`]: Trust::apply_with
//! [`launch_with`]: Trust::launch_with
//! [`visit_with`]: Trustee::visit_with
//! [`entrust_with`]: Trustee::entrust_with
//! [`try_apply`]: Trust::try_apply
//! [`try_launch`]: Trust::try_launch
//! [`try_visit`]: Trustee::try_visit
//! [tte]: Trustee::try_entrust
//! [`try_apply_with`]: Trust::try_apply_with
//! [`try_launch_with`]: Trust::try_launch_with
//! [`try_visit_with`]: Trustee::try_visit_with
//! [`try_entrust_with`]: Trustee::try_entrust_with
//! [`launch_then`]: Trust::launch_then
//! [`visit_then`]: Trustee::visit_then
//! [`entrust_then`]: Trustee::entrust_then
//! [`apply_with_then`]: Trust::apply_with_then
//! [`launch_with_then`]: Trust::launch_with_then
//! [`visit_with_then`]: Trustee::visit_with_then
//! [`entrust_with_then`]: Trustee::entrust_with_then
//! [`try_apply_then`]: Trust::try_apply_then
//! [`try_launch_then`]: Trust::try_launch_then
//! [`try_visit_then`]: Trustee::try_visit_then
//! [`try_entrust_then`]: Trustee::try_entrust_then
//! [`try_apply_with_then`]: Trust::try_apply_with_then
//! [`try_launch_with_then`]: Trust::try_launch_with_then
//! [`try_visit_with_then`]: Trustee::try_visit_with_then
//! [`try_entrust_with_then`]: Trustee::try_entrust_with_then
//!
//! # Waiting with a limit, and for several things
//!
//! | Wait | Forms |
//! |---|---|
//! | a call, up to a timeout | [`apply_timeout`](Trust::apply_timeout), [`apply_with_timeout`](Trust::apply_with_timeout), [`launch_timeout`](Trust::launch_timeout), [`launch_with_timeout`](Trust::launch_with_timeout): [`DelegateError::TimedOut`], and the call may still run |
//! | a call, later | [`apply_later`](Trust::apply_later), [`apply_with_later`](Trust::apply_with_later), [`launch_later`](Trust::launch_later), [`launch_with_later`](Trust::launch_with_later): a [`Reply`] |
//! | a fiber, up to a timeout | [`JoinHandle::join_timeout`], which gives the handle back |
//! | a value of a channel, up to a timeout | [`Receiver::recv_timeout`] |
//! | a notification, up to a timeout | [`Notify::wait_timeout`](sync::Notify::wait_timeout) |
//! | time | [`sleep`](fn@sleep), [`sleep_until`], [`interval`] |
//! | the first of several | [`select!`] over fibers, [`after`], intervals, replies, [`Receiver::next`], [`Notify::notified`](sync::Notify::notified), [`Notifications::next`] |
//!
//! ```
//! use gossamer::{Rack, after, select};
//! use std::time::Duration;
//!
//! let first = Rack::new().threads(2).run(|| {
//!     let numbers = gossamer::trustees().last().unwrap().entrust(vec![1u64, 2, 3]);
//!     let mut sum = numbers.apply_later(|numbers| numbers.iter().sum::<u64>());
//!     let mut fiber = gossamer::spawn(|| gossamer::sleep(Duration::from_secs(3600)));
//!     loop {
//!         select! {
//!             sum = &mut sum => break sum,
//!             ended = &mut fiber => ended.unwrap(),
//!             () = after(Duration::from_secs(5)) => println!("still waiting"),
//!         }
//!     }
//! })?;
//! assert_eq!(first.unwrap(), 6);
//! # Ok::<(), gossamer::RackError>(())
//! ```
//!
//! # Beyond one property
//!
//! | For | Use |
//! |---|---|
//! | a map or a table that is spread over all threads | [`Sharded`]; with values that other hosts read by one READ, [`ShardedRecords`] |
//! | many small updates of it, gathered into few requests | [`Scatter`] |
//! | a fiber on each thread, in step, with reductions and exchanges | [`Team`] |
//! | memory that other hosts read and write | [`Segment`], [`RemoteSegment`]; for threads outside the rack [`segments()`] |
//! | a trust, by a name | [`publish()`], [`lookup()`] |
//! | values from one fiber to another, or a signal | the channels and notifications of [`sync`] |
//! | sockets, pipes and the like that a fiber waits for | [`Polled`] |

// Reading order, lowest module first; each uses only those before it:
//
// 1. `error.rs`, `policy.rs`, `topology.rs`, `arguments.rs`, `rack.rs` (`Rack`, its settings).
// 2. `board.rs`, `processors.rs`, `publications.rs`, `cause.rs`, `shared.rs` (what the threads of a process share),
//    `losses.rs` (`on_host_lost`), `files.rs`, `readiness.rs` and `watcher.rs` (`Polled`), `worker.rs` (one thread).
// 3. `hosts.rs` (hosts and threads), `placement.rs` (where fibers and properties go), `segments.rs`
//    (`segments`), `publish.rs` (trusts under names), `Sharded`, `all_shards.rs` (calls of all its shards),
//    `scatter.rs` (`Scatter`), `records/` (`ShardedRecords`), `Barrier`, `team/` (`Team`: collectives), `sync` (channels and
//    notifications), `blocking.rs` (`spawn_blocking`, `block_on`), `Handle`.
// 4. `children.rs`, `unencrypted.rs`, `mixed.rs` (racks over memory and TCP), `start.rs` (how the
//    processes of a rack find each other).
// 5. `reporter.rs` (statistics for the daemon), `stalls.rs` (fibers that wait too long), `packages.rs`
//    (jams that the daemon brings), `end.rs` (how the rack ends), `run.rs` (`Rack::run`).
//
// The crate `trust-core` implements delegation, re-exported here; the crate `gossamer-job` defines
// what a daemon or Slurm hands a process.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]
#![warn(clippy::must_use_candidate)]

mod all_shards;
mod arguments;
mod barrier;
mod blocking;
#[cfg(feature = "tcp")]
mod board;
mod cause;
mod children;
mod end;
mod error;
mod files;
mod handle;
mod hosts;
mod losses;
#[cfg(all(feature = "shm", feature = "tcp", not(feature = "rdma")))]
mod mixed;
#[cfg(all(feature = "jam", feature = "tcp"))]
mod packages;
mod placement;
mod policy;
mod processors;
mod publications;
mod publish;
mod rack;
mod readiness;
mod records;
#[cfg(feature = "tcp")]
mod reporter;
mod run;
mod scatter;
mod segments;
mod sharded;
mod shared;
mod stalls;
mod start;
pub mod sync;
mod team;
mod topology;
#[cfg(any(test, feature = "rdma"))]
mod unencrypted;
mod watcher;
mod worker;

pub use fiber::{
    Interval, JoinError, JoinHandle, JoinTimeout, LazyLock, OnceLock, PanicPlace, Scope,
    ScopedJoinHandle, SpawnError, ThreadLocal, Tick, Timer, after, fiber_local, interval, select,
    sleep, sleep_until, yield_now,
};
pub use gossamer_segment::{
    Access, Notification, Notifications, Notify, OpenOptions, Plain, Record, RecordMap,
    RecordWriter, RemoteMap, RemoteRecord, RemoteSegment, Rights, Segment, SegmentBuilder,
    SegmentError, Segments,
};
pub use primitive::prefetch;
pub use transport_api::{HostId, LossReason, ThreadId};
#[cfg(feature = "rdma")]
pub use transport_rdma::RdmaConfig;
#[cfg(feature = "tokio")]
pub use trust_core::DelegateFuture;
#[cfg(feature = "nightly")]
pub use trust_core::NoRef;
pub use trust_core::{
    AsView, Chain, CodecError, CodecStep, Condvar, Delegable, DelegateError, Latch, LatchGuard,
    LatchReadGuard, Lend, Lending, LocalTrustee, PanicReport, Portable, Prefetching, PropertyId,
    Reply, Step, Trust, Trustee, delegate, flush, local_trustee,
};
#[doc(hidden)]
pub use trust_core::{IsOwned, Listed, delegated};

pub use self::barrier::Barrier;
pub use self::blocking::{block_on, spawn_blocking};
pub use self::error::{RackError, StartError, Unobserved};
pub use self::files::{OnReadable, Readiness};
pub use self::handle::Handle;
pub use self::hosts::{
    Trustees, fence, hosts, live_hosts, local_host, threads, topology, trustee, trustees,
};
pub use self::losses::{OnHostLost, on_host_lost};
pub use self::placement::{
    entrust, entrust_with, scope, spawn, spawn_on, spawn_on_with, spawn_with, try_entrust,
    try_entrust_with,
};
pub use self::policy::Placement;
pub use self::publish::{LookupError, Publication, lookup, lookup_with, publish};
pub use self::rack::{OnPeerLoss, Rack};
pub use self::readiness::Polled;
pub use self::records::{ReadMode, RecordsError, ShardedRecords};
pub use self::scatter::Scatter;
pub use self::segments::segments;
pub use self::sharded::Sharded;
pub use self::sync::{
    Receiver, RecvError, RecvTimeoutError, SendError, Sender, TryRecvError, TrySendError, channel,
    channel_on,
};
pub use self::team::{Team, TeamError};
pub use self::topology::{Machine, Topology, TransportKind};

/// Named remote memory: the crate `gossamer-segment`. Its main names are also at the top of this
/// crate.
pub mod segment {
    pub use gossamer_segment::*;
}

/// Code that travels: the crate `gossamer-jam`; with `gossamer-jam-executor` for code that is not
/// trusted.
#[cfg(feature = "jam")]
pub mod jam {
    pub use ::jam::*;
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub use ::jam_executor::{Builder as ExecutorBuilder, Executor, ExecutorError, Fault};
}

/// The programs in the README and the guide compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/guide.md")]
struct Readme;
