//! [`Answer`]: what a daemon answers to every request but
//! [`Request::Run`](crate::protocol::Request::Run).

use gossamer_job::{JobId, ThreadStatistics};
use serde::{Deserialize, Serialize};

use crate::protocol::process::{Ending, Process, Stream};
use crate::protocol::topology::Topology;
use crate::security::member::Name;

/// What a daemon answers to all requests but [`Request::Run`](crate::protocol::Request::Run).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// It will not.
    Refused(String),
    /// To [`Request::Describe`](crate::protocol::Request::Describe).
    Host(Box<HostReport>),
    /// To [`Request::Jobs`](crate::protocol::Request::Jobs): one process of a job; one for each.
    Job(Box<JobSummary>),
    /// To [`Request::Kill`](crate::protocol::Request::Kill): whether there was such a job to end.
    Killed(bool),
    /// To [`Request::Logs`](crate::protocol::Request::Logs): the next output of one of the
    /// processes.
    Log(Process, Stream, #[serde(with = "serde_bytes")] Vec<u8>),
    /// To [`Request::Logs`](crate::protocol::Request::Logs): that was all; whether there is such a
    /// job.
    LogEnd(bool),
    /// Nothing; the daemon is alive.
    Heartbeat,
    /// To [`Request::Statistics`](crate::protocol::Request::Statistics): what the threads of one
    /// job that runs do; one for each.
    Statistics(Box<JobStatistics>),
    /// To [`Request::Statistics`](crate::protocol::Request::Statistics): that was all.
    StatisticsEnd,
    /// To [`Request::Jobs`](crate::protocol::Request::Jobs): that was all.
    JobsEnd,
}

/// What the threads of a job on one host have done, as of the last two reports of its process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatistics {
    /// The job.
    pub summary: JobSummary,
    /// The age of the last report, in milliseconds.
    pub age_ms: u64,
    /// Its threads in the last report; empty without one.
    pub now: Vec<ThreadStatistics>,
    /// Its threads the time before; none if there was none.
    pub before: Vec<ThreadStatistics>,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostReport {
    /// Its name.
    pub name: Name,
    /// The version of its daemon.
    pub version: String,
    /// How many jobs run there.
    pub running: u32,
    /// What it is made of.
    pub topology: Topology,
    /// The processes that run there as parts of jobs over RDMA, as far as they have reported it.
    pub over_rdma: Vec<OverRdma>,
}

/// A process of a job whose hosts reach each other by RDMA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverRdma {
    /// The job.
    pub job: JobId,
    /// The name of its program.
    pub program: String,
    /// Which of the job's processes on the host it is.
    pub process: Process,
    /// How many processes the job has.
    pub hosts: u32,
    /// How many threads each has.
    pub threads: u32,
    /// How many queue pairs the process has on RDMA devices: one for each of its threads and each
    /// of the job's other processes, and one more for each thread that changes words of its own
    /// process by its device.
    pub queue_pairs: u32,
}

/// A process of a job, as its host sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSummary {
    /// The job.
    pub job: JobId,
    /// Which process of the job this is.
    pub host: u32,
    /// How many processes it has.
    pub hosts: u32,
    /// How many of them run on each host, one behind the other.
    pub processes: u32,
    /// How many threads each has.
    pub threads: u32,
    /// The name of its program.
    pub program: String,
    /// Who started it.
    pub owner: Name,
    /// When it was requested, in seconds since 1970.
    pub since: u64,
    /// The number of its process here, once it has one.
    pub pid: Option<u32>,
    /// How its process here has ended, if it has.
    pub ended: Option<Ending>,
}

impl JobSummary {
    /// Which of the job's processes on its host it is.
    pub(crate) fn process(&self) -> Process {
        Process::new(self.host, self.processes)
    }
}
