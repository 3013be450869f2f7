//! Rack-wide applications by delegation.
//!
//! A value is *entrusted* to a thread, its trustee; any fiber on any machine of the rack sends it
//! work as a closure. It looks like a multi-threaded program; it runs on a rack.
//!
//! ```
//! use gossamer::Rack;
//!
//! Rack::new().run(|| {
//!     let counter = gossamer::entrust(17); //                  counter: Trust<i32>
//!     counter.apply(|c| *c += 1); //                           c: &mut i32
//!     counter.apply_then(|c| *c, |value| assert_eq!(value, 18));
//!     counter.apply_with(|c, n| *c += n, 24); //               values travel as arguments
//!     assert_eq!(counter.apply(|c| *c), 42);
//! })?;
//! # Ok::<(), gossamer::RackError>(())
//! ```
//!
//! # What blocks
//!
//! A fiber that blocks its OS thread (`std::thread::sleep`, a contended `std::sync::Mutex`, a socket)
//! stops everything that the thread serves. Calls that wait for another fiber or thread ([`apply`],
//! [`sleep`](fn@sleep), [`yield_now`], [`JoinHandle::join`], [`Latch::lock`], [`Barrier::wait`]) let
//! the thread's other fibers run instead. So does [`apply`] on a property of the same thread, after
//! about 50 microseconds of such calls; and [`apply_then`], in the same case or when its queue is full.
//!
//! Do not make such calls where code relies on having the thread for itself: in the initialisers of
//! `std`'s `thread_local!`, `LazyLock` and `OnceLock`, inside scoped thread-locals, or while a guard
//! or a borrow is alive that another fiber needs. Some of these are undefined behaviour that the
//! runtime cannot detect. The README has a table of such places and of what to use instead ("Where a
//! fiber must not wait"). The initialisers of [`ThreadLocal`], [`LazyLock`] and [`OnceLock`] of this crate may
//! wait. [`entrust`], [`Trustee::entrust_moved`] and the drop of a trust never wait.
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
//! [`apply`]: Trust::apply
//! [`apply_then`]: Trust::apply_then
//!
//! # Reading order
//!
//! Lowest module first; each uses only those before it.
//!
//! 1. `error.rs`, `policy.rs`, `topology.rs`, `arguments.rs`, `rack.rs` ([`Rack`], its settings).
//! 2. `board.rs`, `processors.rs`, `publications.rs`, `cause.rs`, `shared.rs` (what the threads of a process share),
//!    `worker.rs` (one thread).
//! 3. `placement.rs` (where fibers and properties go), `segments.rs` ([`segments`]), `publish.rs`
//!    (trusts under names), [`Sharded`], `records/` ([`ShardedRecords`]), [`Barrier`].
//! 4. `children.rs`, `unencrypted.rs`, `mixed.rs` (racks over memory and TCP), `start.rs` (how the
//!    processes of a rack find each other).
//! 5. `reporter.rs` (statistics for the daemon), `packages.rs` (jams that it brings), `end.rs` (how the rack ends), `run.rs`
//!    ([`Rack::run`]).
//!
//! The crate `trust-core` implements delegation, re-exported here; the crate `gossamer-job` defines
//! what a daemon or Slurm hands a process.

#![forbid(unsafe_code)]

mod arguments;
mod barrier;
#[cfg(feature = "tcp")]
mod board;
mod cause;
mod children;
mod end;
mod error;
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
mod records;
#[cfg(feature = "tcp")]
mod reporter;
mod run;
mod segments;
mod sharded;
mod shared;
mod start;
mod topology;
#[cfg(any(test, feature = "rdma"))]
mod unencrypted;
mod worker;

pub use fiber::{
    JoinError, JoinHandle, LazyLock, OnceLock, ThreadLocal, fiber_local, sleep, yield_now,
};
pub use gossamer_segment::{
    Access, Notification, Notifications, Notify, OpenOptions, Plain, Record, RecordMap,
    RecordWriter, RemoteMap, RemoteRecord, RemoteSegment, Rights, Segment, SegmentBuilder,
    SegmentError, Segments,
};
pub use transport_api::{HostId, LossReason, ThreadId};
#[cfg(feature = "rdma")]
pub use transport_rdma::RdmaConfig;
#[cfg(feature = "tokio")]
pub use trust_core::Applied;
#[cfg(feature = "nightly")]
pub use trust_core::NoRef;
pub use trust_core::{
    CodecError, Delegable, DelegateError, Latch, LatchGuard, LocalTrustee, PanicReport, Portable,
    Trust, Trustee, delegate, local_trustee,
};
#[doc(hidden)]
pub use trust_core::{IsOwned, Listed, uncaptured};

pub use self::barrier::Barrier;
pub use self::error::{RackError, StartError};
pub use self::placement::{
    entrust, entrust_with, local_host, spawn, spawn_on, spawn_on_with, spawn_with, threads,
    topology, trustee, trustees,
};
pub use self::policy::Placement;
pub use self::publish::{LookupError, Publication, lookup, lookup_with, publish};
pub use self::rack::{OnPeerLoss, Rack};
pub use self::records::{ReadMode, RecordsError, ShardedRecords};
pub use self::segments::segments;
pub use self::sharded::Sharded;
pub use self::topology::{Machine, Topology};

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

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
