//! What a host is made of: cores, NUMA nodes, caches, memory and RDMA devices, as `/proc` and
//! `/sys` tell. What a system does not tell is left out; it never makes a report fail.

mod answer;
pub mod connection;
pub mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod process;
mod request;
mod session;
pub mod topology;

pub(crate) use crate::protocol::process::SIGKILL;
pub use crate::protocol::{
    answer::{Answer, HostReport, JobStatistics, JobSummary, OverRdma},
    process::{EndedBy, Ending, How, Process, Stream},
    request::{Limits, Program, Request, RunRequest},
    session::{FromController, FromDaemon},
};
use std::time::Duration;

/// How often one says that one is alive.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// After how long a silence a peer on the control plane counts as lost.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of a program or of output that travel in one message.
pub const CHUNK: usize = 256 << 10;
/// Bytes of output that a daemon sends before the controller has printed them, and of input that a
/// controller sends before the process has taken them.
pub const OUTPUT_WINDOW: usize = 1 << 20;
