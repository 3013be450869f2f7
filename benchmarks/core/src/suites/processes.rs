//! Requests of 8 bytes between two processes.

use super::{iceoryx, ucx};
use crate::harness::{Placement, Suite};

/// The suites `process-latency` and `process-rate`.
pub fn suites() -> Vec<Suite> {
    let about = "two processes; an operation is half a round trip of an 8-byte request";
    let mut latency = Suite::new("process-latency", about, Placement::Pair);
    latency.push(ucx::latency());
    latency.push(iceoryx::latency());
    let about = "two processes; an operation is an 8-byte message, with many under way";
    let mut rate = Suite::new("process-rate", about, Placement::Pair);
    rate.push(ucx::rate());
    rate.push(iceoryx::rate());
    vec![latency, rate]
}
