//! What the programs of measurements have in common.
//!
//! Two kinds of proof live here. *Timing*: every suite runs its candidates in interleaved rounds,
//! measures how far apart the cores are around each sample, throws disturbed samples away and
//! counts them, and compares medians within one distance class. *Counting*: one request is stepped
//! through instruction by instruction, which noise does not move.
//!
//! In reading order:
//! - [`measure`]: how one sample is taken.
//! - [`harness`]: cases, suites and rounds; [`report`]: the table and the list of rows;
//!   [`machine`]: what it ran on; [`session`]: all of it, for a program.
//! - [`roles`]: the other processes that some cases need.
//! - [`count`]: instructions, locked instructions, system calls and allocations of one request.
//! - [`load`]: idle and oversubscribed threads.
//! - [`work`]: what a critical section does, and what a thread does between two of them.
//! - [`product`]: Gossamer as a candidate; [`ucx`]: UCX's own benchmark, with which several
//!   compare; [`eventfd`]: how the system itself wakes a process; [`memcached`]: servers of
//!   memcached's protocol, and [`memcached_load`], many clients of theirs.
//!
//! All of it reads x86-64 instructions and Linux clocks. Elsewhere this crate is empty, so that the
//! tests of the workspace can be built there.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![deny(unsafe_code)]

pub mod measure;

pub mod harness;
#[cfg(feature = "suites")]
pub mod machine;
#[cfg(feature = "suites")]
pub mod report;
#[cfg(feature = "suites")]
pub mod session;

#[cfg(feature = "suites")]
pub mod roles;

pub mod count;
#[cfg(feature = "suites")]
pub mod load;
// An empty piece of assembly that hides a value from the compiler.
#[allow(unsafe_code)]
pub mod work;

#[cfg(feature = "suites")]
pub mod eventfd;
#[cfg(feature = "suites")]
pub mod memcached;
#[cfg(feature = "suites")]
pub mod memcached_load;
pub mod product;
#[cfg(feature = "suites")]
pub mod ucx;
