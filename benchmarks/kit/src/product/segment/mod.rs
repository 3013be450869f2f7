//! Segments as a candidate: two processes, of which host 1, on the second core, exports a segment,
//! and host 0, on the first, uses it.
//!
//! Neither process has fibers: each attaches one thread, which polls where something has to be
//! waited for. So the same measurement runs over every transport; a program of benchmarks says how
//! its two processes join ([`Pair`]).
//!
//! ```text
//!   program of benchmarks         host 0, first core          host 1, second core
//!   Pair::figure(request) ------> role: join                  role: join
//!                                 importer::measure           exporter::serve
//!   Figure <-- first line ------- prints it, sets STOP -----> ends
//! ```
//!
//! In reading order:
//! - [`Plan`], [`Request`], [`Figure`]: what is measured, and what comes out.
//! - `board`: the segments of both hosts, and how each knows what the other does.
//! - `importer`, `exporter`: what the hosts do.
//! - [`Pair`], [`run_host`]: how a case starts them; [`shm`]: over shared memory.
//! - [`local`]: what they are compared with in one process; [`cases`]: cases that several programs
//!   of benchmarks have, such as the paper's tables.

pub(in crate::product) mod board;
pub mod cases;
mod exporter;
pub(in crate::product) mod importer;
pub mod local;
mod pair;
pub(in crate::product) mod plan;
pub mod shm;

pub use pair::{Counted, Counters, Host, Pair, run_host};
pub use plan::{Figure, NameOp, Plan, RemoteOp, Request, Statistic, Wait};
