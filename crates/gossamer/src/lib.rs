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
//! Reading order: [`Rack`] (`start.rs`: how the processes of a rack find each other;
//! `processes.rs`: those that a program starts itself; `rack.rs`: how one of them runs; `end.rs`:
//! how the rack ends), `mixed.rs` (racks over memory and TCP), `worker.rs` (one thread),
//! `processors.rs` (where it is pinned) and `shared.rs` (what the threads of a process share),
//! `place.rs` (where fibers and properties go), `job` (what a daemon tells a process that it
//! starts), `statistics` (what such a process tells its daemon), `slurm` (how the tasks of a
//! step of Slurm become a rack), `authority` (who signs the certificates of a job), [`Sharded`],
//! [`Barrier`]. What is delegated and how is `trust-core`, re-exported here.

#![forbid(unsafe_code)]

#[cfg(feature = "tcp")]
pub mod authority;
mod barrier;
mod end;
mod error;
#[cfg(feature = "tcp")]
pub mod job;
#[cfg(all(feature = "shm", feature = "tcp", not(feature = "rdma")))]
mod mixed;
mod place;
mod processes;
mod processors;
mod rack;
mod sharded;
mod shared;
#[cfg(feature = "tcp")]
pub mod slurm;
mod start;
#[cfg(feature = "tcp")]
pub mod statistics;
mod worker;

pub use self::{
    barrier::Barrier,
    error::RackError,
    place::{entrust, spawn, spawn_on, spawn_on_with, threads, trustee, trustees},
    rack::{OnPeerLoss, Rack},
    sharded::Sharded,
    worker::StartError,
};
pub use fiber::{
    JoinError, JoinHandle, LazyLock, OnceLock, ThreadLocal, fiber_local, sleep, yield_now,
};
pub use transport_api::{HostId, LossReason, ThreadId};
#[cfg(feature = "rdma")]
pub use transport_rdma::RdmaConfig;
#[cfg(feature = "tokio")]
pub use trust_core::Applied;
#[cfg(feature = "nightly")]
pub use trust_core::NoRef;
#[doc(hidden)]
pub use trust_core::{IsOwned, Listed, uncaptured};

pub use trust_core::{
    CodecError, Delegable, DelegateError, Latch, LatchGuard, LocalTrustee, PanicReport, Portable,
    Trust, Trustee, delegate, local_trustee,
};

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
