//! What has come of a round, and how it is told in a line.

use crate::Plan;
use std::{
    fmt,
    process::ExitStatus,
    time::{Duration, Instant},
};

/// What has come of a round.
#[derive(Debug)]
pub struct Verdict {
    /// What was planned.
    pub plan: Plan,
    /// Whom the kill hit, if the rack had not ended before.
    pub hit: Option<Hit>,
    /// From the kill to the end of the rack's last process.
    pub end: Duration,
    /// From the kill until each process that was still working said that the host is lost.
    pub noticed: Vec<Duration>,
    /// How the leader ended.
    pub leader: Option<ExitStatus>,
    /// Requests that were answered, if the rack counted them.
    pub operations: u64,
    /// What should not be, in words; nothing if all is well.
    pub faults: Vec<String>,
    /// What the rack has said, for whoever looks for the fault.
    pub transcript: Vec<String>,
}

/// A process that was killed.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    /// Its id.
    pub pid: u32,
    /// The host it was, if it lived to tell.
    pub host: Option<u32>,
    /// Whether it led the rack.
    pub leader: bool,
    /// When.
    pub at: Instant,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { seed, moment, .. } = self.plan;
        let policy = if self.plan.goes_on() { "return" } else { "end-rack" };
        write!(f, "seed {seed} {policy} kill at {moment}: ")?;
        match self.hit {
            Some(Hit { leader: true, .. }) => write!(f, "the leader")?,
            Some(Hit { host: Some(host), .. }) => write!(f, "host {host}")?,
            Some(Hit { pid, .. }) => write!(f, "process {pid}")?,
            None => write!(f, "nobody, too late")?,
        }
        match self.leader {
            Some(status) => write!(f, "; leader {status}")?,
            None => write!(f, "; leader did not end")?,
        }
        write!(f, "; gone in {} ms; {} operations; ", self.end.as_millis(), self.operations)?;
        f.write_str(if self.faults.is_empty() { "ok" } else { "FAILED" })
    }
}
