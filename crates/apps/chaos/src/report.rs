//! [`RoundReport`]: the outcome of a round, and its summary line.

use std::fmt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::Plan;

/// Waits for a processor that a summary line mentions.
const REMARKABLE: Duration = Duration::from_millis(100);

/// The outcome of a round.
#[derive(Debug)]
pub struct RoundReport {
    /// The plan of the round.
    pub plan: Plan,
    /// The killed process, unless the rack ended before the kill.
    pub kill: Option<Kill>,
    /// Time from the kill to the end of the rack's last process.
    pub end: Duration,
    /// How long the thread that waited longest for a processor waited in that time.
    pub starved: Duration,
    /// Time from the kill until each working process reported the loss.
    pub detected: Vec<Duration>,
    /// The leader's exit status.
    pub leader: Option<ExitStatus>,
    /// Completed requests, if the rack reported them.
    pub operations: u64,
    /// Violated expectations; empty if the round passed.
    pub violations: Vec<String>,
    /// The output of the rack, for debugging.
    pub transcript: Vec<String>,
}

/// A killed process.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    /// The process id.
    pub pid: u32,
    /// Its host, if it had reported its process id.
    pub host: Option<u32>,
    /// Whether it was the leader.
    pub leader: bool,
    /// The time of the kill.
    pub at: Instant,
}

impl fmt::Display for RoundReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { seed, moment, workload, .. } = self.plan;
        let policy = if self.plan.continues() { "return" } else { "end-rack" };
        write!(f, "seed {seed} {workload} {policy} kill at {moment}: ")?;
        match self.kill {
            Some(Kill { leader: true, .. }) => write!(f, "the leader")?,
            Some(Kill { host: Some(host), .. }) => write!(f, "host {host}")?,
            Some(Kill { pid, .. }) => write!(f, "process {pid}")?,
            None => write!(f, "none, too late")?,
        }
        match self.leader {
            Some(status) => write!(f, "; leader {status}")?,
            None => write!(f, "; leader did not exit")?,
        }
        write!(f, "; ended in {} ms", self.end.as_millis())?;
        if self.starved >= REMARKABLE {
            let starved = self.starved.as_millis();
            write!(f, ", of which a thread waited {starved} ms for a processor")?;
        }
        write!(f, "; {} operations; ", self.operations)?;
        f.write_str(if self.violations.is_empty() { "ok" } else { "FAILED" })
    }
}
