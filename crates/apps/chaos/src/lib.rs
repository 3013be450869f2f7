//! Kills processes of racks at random moments and checks the survivors.
//!
//! ```text
//!   chaos                        starts a rack, kills one of its processes, checks the rest
//!    +- chaos --rack SEED        the rack's leader, host 0, in a process group of its own
//!        +- host 1, host 2       started by the leader, as any rack starts its hosts
//! ```
//!
//! The processes of a job, which connect over TCP, are all started by `chaos`, as daemons would.
//!
//! In reading order, which is also the order of dependencies: [`Plan`] (what happens in a round,
//! drawn from its seed), [`RoundReport`] (its outcome), `procfs` (processes, descriptors, shared
//! memory), [`rack`] (the workload of the rack, which checks itself), [`round`] (running and
//! checking a round).

#![forbid(unsafe_code)]

mod plan;
mod procfs;
pub mod rack;
mod report;
pub mod round;

pub use plan::{Moment, Plan, Workload};
pub use report::{Kill, RoundReport};
