//! The gates that run cargo's own tools: formatting, clippy, documentation, tests, compile-fail
//! tests and loom models. They share one build folder wherever the compiler's flags are the same.

mod features;
mod hotpath;
mod levels;
mod lint;
mod models;
mod suites;

pub(crate) use crate::checks::features::rdma;
pub(crate) use crate::checks::hotpath::hotpath;
pub(crate) use crate::checks::levels::optimised;
pub(crate) use crate::checks::lint::{doc, lint};
pub(crate) use crate::checks::models::{build_loom, loom};
#[cfg(test)]
pub(crate) use crate::checks::suites::TEST_COMMAND;
pub(crate) use crate::checks::suites::{asan, build_others, test, ui};
