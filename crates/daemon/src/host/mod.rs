//! The daemon of a host: its state, the jobs that it runs, and how it serves the members of its
//! rack.

pub mod config;
pub(crate) mod daemon;
pub(crate) mod delivery;
pub(crate) mod jobs;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod packages;
pub(crate) mod pipes;
pub(crate) mod quotas;
pub mod run;
pub(crate) mod samples;
pub(crate) mod server;
pub(crate) mod session;
pub mod state;
pub(crate) mod statistics;
pub mod store;
pub(crate) mod topology;
