//! Chaos: racks whose processes are killed at random moments, and what must be true afterwards.
//!
//! ```text
//!   chaos                        the judge: starts a rack, kills one of its processes, looks
//!    +- chaos --rack SEED        the rack's leader, host 0, in a process group of its own
//!        +- host 1, host 2       started by the leader, as any rack starts its hosts
//! ```
//!
//! Reading order: [`Plan`] (what happens in a round, all of it drawn from its seed), [`rack`] (what
//! the rack does meanwhile, and how it checks itself), `procfs` (what the system knows of
//! processes), [`round`] (the judge), [`Verdict`] (what it finds).

#![forbid(unsafe_code)]

mod plan;
mod procfs;
pub mod rack;
mod report;
pub mod round;

pub use plan::{Moment, Plan};
pub use report::{Hit, Verdict};
