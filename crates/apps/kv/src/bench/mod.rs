//! Runs a YCSB workload against any store and reports throughput and latencies.
//!
//! All stores run the same code: the same keys from the same generators, the same values, the same
//! clocks. The load is a closed loop: each client waits for a response before its next request.
//!
//! Clients come in *groups*. A group runs on one OS thread (one thread of a rack with its fibers,
//! or a plain thread with one client) and shares nothing with other groups, so measuring adds no
//! contention. Groups report once, at the end.
//!
//! In reading order, which is also the order of dependencies:
//! - [`table`]: a shard of records; [`backend`]: the interface of a store under test.
//! - [`assignment`]: the work of a group; [`group`]: its clients; [`report`]: its measurements;
//!   [`progress`]: the progress bar.
//! - [`comparison`]: several stores in interleaved rounds.
//! - [`lock_based`]: stores shared by locks; [`rack`]: the delegated store.
//! - [`text`], [`json`], [`plot`]: output formats.

pub mod assignment;
pub mod backend;
pub mod comparison;
pub mod group;
pub mod json;
pub mod lock_based;
pub mod plot;
pub mod progress;
pub mod rack;
pub mod report;
pub mod table;
pub mod text;

pub use assignment::{Assignment, Phase};
pub use backend::Backend;
pub use comparison::{Candidate, Outcome, Score, Spread};
pub use group::Group;
pub use report::{Operation, Report};

#[cfg(test)]
mod tests;
