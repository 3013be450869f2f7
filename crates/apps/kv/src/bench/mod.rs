//! Runs a workload against a store, whatever the store is, and reports what it measured.
//!
//! Every store is driven by the same code: the same keys from the same generators, the same values,
//! the same clocks. It is a closed loop: each client waits for an answer before it asks again.
//!
//! Clients come in *groups*; a group runs on one OS thread (one thread of a rack with its fibers,
//! or a plain thread with one client) and shares nothing with the others, so that measuring adds no
//! contention of its own. Groups report once, at the end.
//!
//! In reading order: [`backend`] (what is driven), [`assignment`] (what a group is to do),
//! [`group`] (its clients), [`report`] (what it measured), [`comparison`] (several stores, several
//! rounds), [`progress`] (the bar), and what comes out: [`table`], [`json`], [`plot`].

pub mod assignment;
pub mod backend;
pub mod comparison;
pub mod group;
pub mod json;
pub mod key;
pub mod lock_based;
pub mod plot;
pub mod progress;
pub mod rack;
pub mod report;
pub mod svg;
pub mod table;
pub mod text;

pub use assignment::{Assignment, Phase};
pub use backend::Backend;
pub use comparison::{Candidate, Outcome, Score, Spread};
pub use group::Group;
pub use report::{Operation, Report};

#[cfg(test)]
mod tests;
