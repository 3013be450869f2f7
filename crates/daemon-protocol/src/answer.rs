//! [`Answer`]: the answers of a daemon to all requests except
//! [`Request::Run`](crate::Request::Run).

use gossamer_job::{JobId, ThreadStatistics};
use serde::{Deserialize, Serialize};

use crate::member::Name;
use crate::process::{Ending, Process, Stream};
use crate::topology::Topology;

/// An answer of a daemon to any request except [`Request::Run`](crate::Request::Run).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// The request is refused, for this reason.
    Refused(String),
    /// To [`Request::Describe`](crate::Request::Describe).
    Host(Box<HostReport>),
    /// To [`Request::Jobs`](crate::Request::Jobs): one process of a job. One answer for each.
    Job(Box<JobSummary>),
    /// To [`Request::Kill`](crate::Request::Kill): whether there was such a job to end.
    Killed(bool),
    /// To [`Request::Logs`](crate::Request::Logs): the next output of one of the
    /// processes.
    Log(Process, Stream, #[serde(with = "serde_bytes")] Vec<u8>),
    /// To [`Request::Logs`](crate::Request::Logs): the end of the output; whether there is
    /// such a job.
    LogEnd(bool),
    /// Nothing; the daemon is alive.
    Heartbeat,
    /// To [`Request::Statistics`](crate::Request::Statistics): the threads of one running
    /// job. One answer for each.
    Statistics(Box<JobStatistics>),
    /// To [`Request::Statistics`](crate::Request::Statistics): the end of the list.
    StatisticsEnd,
    /// To [`Request::Jobs`](crate::Request::Jobs): the end of the list.
    JobsEnd,
    /// To [`Request::Package`](crate::Request::Package): send it.
    SendPackage,
    /// To [`Request::Package`](crate::Request::Package): what one of the processes did with
    /// the package. One answer for each.
    Package {
        /// The process.
        process: Process,
        /// Why it did not take the package, if it did not.
        refused: Option<String>,
    },
    /// To [`Request::Package`](crate::Request::Package): the end of the list; the signer's
    /// name, if the job has processes here that run.
    PackageEnd(Option<String>),
}

/// The activity of a job's threads on one host, from the last two reports of its process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatistics {
    /// The job.
    pub summary: JobSummary,
    /// The age of the last report, in milliseconds.
    pub age_ms: u64,
    /// Its threads in the last report; empty if there was none.
    pub now: Vec<ThreadStatistics>,
    /// Its threads in the report before; empty if there was none.
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
    /// Processors that jobs may use there: those of the daemon.
    pub processors: u32,
    /// Its hardware.
    pub topology: Topology,
    /// The processes there of jobs over RDMA, as far as they have reported their use.
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
    /// How many of them run on each host, with consecutive numbers.
    pub processes: u32,
    /// How many threads each has.
    pub threads: u32,
    /// The name of its program.
    pub program: String,
    /// The member that started it.
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
    pub fn process(&self) -> Process {
        Process::new(self.host, self.processes)
    }
}
