//! What is said on the control plane.
//!
//! A caller opens a connection and sends one [`Request`]. All but [`Request::Run`] are answered
//! with [`Answer`]s, after which the daemon closes. `Run` opens a conversation that lasts as long
//! as the job does on that host:
//!
//! ```text
//!   controller                              daemon
//!   Run(RunRequest)           -->
//!                             <--           SendProgram          only if it does not have it
//!   Program.. ProgramEnd      -->
//!                             <--           Prepared             the address of its data socket
//!   Start                     -->                                when all hosts are prepared
//!                             <--           Started
//!   Input, Signal, Printed    -->
//!                             <--           Output.., Taken
//!   Stop                      -->                                when another host has ended badly
//!                             <--           Ended                how its process ended
//!                             <--           Output.. , close
//! ```
//!
//! Both sides send `Alive` when they have nothing else to say. Whoever hears nothing for
//! [`SILENCE`] counts the other as lost, and ends the job.

pub mod connection;
pub mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;

use crate::{
    host::topology::Topology,
    security::identity::{Name, Role},
};
use gossamer_job::{JobId, SecretPem, ThreadStatistics};
use serde::{Deserialize, Serialize};
use std::{fmt, net::SocketAddr, time::Duration};

/// How often one says that one is alive.
pub const ALIVE_EVERY: Duration = Duration::from_millis(500);
/// After how long a silence a peer on the control plane counts as lost.
pub const SILENCE: Duration = Duration::from_secs(3);
/// Bytes of a program or of output that travel in one message.
pub const CHUNK: usize = 256 << 10;
/// Bytes of output that a daemon sends before the controller has printed them, and of input that a
/// controller sends before the process has taken them.
pub const OUTPUT_WINDOW: usize = 1 << 20;

/// The first message of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// What the host is made of.
    Describe,
    /// Its jobs.
    Jobs,
    /// End a job.
    Kill(JobId),
    /// What a job has said here; more as it comes, if `follow`.
    Logs {
        /// The job.
        job: JobId,
        /// Whether to go on until it ends.
        follow: bool,
    },
    /// Run a process of a job.
    Run(Box<RunRequest>),
    /// What the threads of its jobs do.
    Statistics,
}

impl Request {
    /// Whether somebody in `role` may ask this.
    pub fn is_allowed_to(&self, role: Role) -> bool {
        match self {
            Self::Describe | Self::Jobs | Self::Logs { .. } | Self::Statistics => {
                matches!(role, Role::Admin | Role::Viewer)
            }
            Self::Kill(_) | Self::Run(_) => role == Role::Admin,
        }
    }

    /// The one job that it is about.
    pub(crate) fn job(&self) -> Option<JobId> {
        match self {
            Self::Describe | Self::Jobs | Self::Statistics => None,
            Self::Kill(job) | Self::Logs { job, .. } => Some(*job),
            Self::Run(run) => Some(run.job),
        }
    }

    /// What it asks for, for messages.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Describe => "describe the host",
            Self::Jobs => "list jobs",
            Self::Kill(_) => "kill a job",
            Self::Logs { .. } => "read logs",
            Self::Run(_) => "run a job",
            Self::Statistics => "read statistics",
        }
    }
}

/// What process to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The job that it is part of.
    pub job: JobId,
    /// Which process of the job this is: `main` runs in the first.
    pub host: u32,
    /// How many processes the job has.
    pub hosts: u32,
    /// How many of them run on each host, one behind the other.
    pub processes: u32,
    /// How many threads each is to have.
    pub threads: u32,
    /// What to run.
    pub program: Program,
    /// Its arguments, without its name.
    pub arguments: Vec<String>,
    /// Variables for its environment.
    pub environment: Vec<(String, String)>,
    /// Where it is to run; in an empty directory of its own if nothing is said.
    pub directory: Option<String>,
    /// Whether its standard input comes from the controller.
    pub input: bool,
    /// What it may use.
    pub limits: Limits,
}

/// What a process of a job may use, with all that it starts. It needs a daemon that has a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
}

/// A program by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The BLAKE3 digest of its file.
    pub digest: [u8; 32],
    /// The bytes of its file.
    pub bytes: u64,
    /// What it is called.
    pub name: String,
}

/// What a controller says after [`Request::Run`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromController {
    /// The next bytes of the program.
    Program(#[serde(with = "serde_bytes")] Vec<u8>),
    /// That was the program.
    ProgramEnd,
    /// Start the process; the text is its job description as JSON.
    Start(SecretPem),
    /// Bytes for its standard input.
    Input(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The end of its standard input.
    InputEnd,
    /// A signal for it.
    Signal(i32),
    /// So many bytes of output were printed.
    Printed(u32),
    /// End it: with this signal first, and by force after so many milliseconds.
    Stop {
        /// The signal.
        signal: i32,
        /// How long it may take to end, in milliseconds.
        grace_ms: u32,
    },
    /// Nothing; the controller is alive.
    Alive,
}

/// What a daemon says after [`Request::Run`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromDaemon {
    /// It will not run it.
    Refused(String),
    /// It does not have the program.
    SendProgram,
    /// It is ready to start.
    Prepared {
        /// Where the process will listen for the others of its job.
        address: SocketAddr,
        /// Whether it will have the host's cores for itself.
        owns_cores: bool,
    },
    /// The process runs.
    Started {
        /// Its number on that host.
        pid: u32,
    },
    /// So many bytes of input were taken.
    Taken(u32),
    /// What the process has said.
    Output(Stream, #[serde(with = "serde_bytes")] Vec<u8>),
    /// The process has ended, and all that it started.
    Ended(Ending),
    /// Nothing; the daemon is alive.
    Alive,
}

/// One of the processes that a job has on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    /// Which of them, from 0.
    pub number: u32,
    /// How many there are.
    pub of: u32,
}

impl Process {
    /// The process with number `host` in its job, if every host runs `processes` of them.
    pub(crate) fn new(host: u32, processes: u32) -> Self {
        let of = processes.max(1);
        Self { number: host % of, of }
    }

    /// What it is called on a host, or as part of a program: as that, if it is the only one there.
    pub(crate) fn name(self, of: &impl fmt::Display) -> String {
        if self.of <= 1 { of.to_string() } else { format!("{of}/{}", self.number) }
    }
}

/// Where output was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// The standard output.
    Out,
    /// The standard error.
    Err,
}

/// How a process has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// By itself, or by a signal.
    pub how: How,
    /// Who had told it to end, if somebody had: then its end is no cause of anything.
    pub told_by: Option<ToldBy>,
    /// Where and with what it panicked, if that is among its last words.
    pub panic: Option<String>,
    /// The last lines of its standard error, or of its output if there are none.
    pub last_lines: Vec<String>,
}

/// Who tells a process to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToldBy {
    /// The controller of its job.
    Controller,
    /// Its daemon, for this reason.
    Daemon(String),
    /// A member of the rack.
    Member(Name, Role),
}

impl fmt::Display for ToldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controller => f.write_str("the controller"),
            Self::Daemon(why) => write!(f, "the daemon, {why}"),
            Self::Member(name, role) => write!(f, "{name} ({role})"),
        }
    }
}

/// The number of the signal that no process survives.
pub(crate) const SIGKILL: i32 = 9;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// With an exit status.
    Exited(i32),
    /// By a signal.
    Killed(i32),
    /// Nobody knows: who watched it was killed, and it with it.
    Unwatched,
}

impl How {
    /// The exit status as a shell counts it.
    pub fn status(self) -> u8 {
        match self {
            Self::Exited(code) => code as u8,
            Self::Killed(signal) => 128u8.saturating_add(signal as u8),
            Self::Unwatched => 128 + 9,
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with status {code}"),
            Self::Killed(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
            Self::Unwatched => f.write_str("was killed, with the process that watched it"),
        }
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    const NAMES: [&str; 16] = [
        "", "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE",
        "SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM",
    ];
    NAMES.get(usize::try_from(signal).ok()?).copied().filter(|name| !name.is_empty())
}

/// What a daemon answers to all requests but [`Request::Run`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// It will not.
    Refused(String),
    /// To [`Request::Describe`].
    Host(Box<HostReport>),
    /// To [`Request::Jobs`]: one process of a job; one for each.
    Job(Box<JobSummary>),
    /// To [`Request::Kill`]: whether there was such a job to end.
    Killed(bool),
    /// To [`Request::Logs`]: what one of the processes has said next.
    Log(Process, Stream, #[serde(with = "serde_bytes")] Vec<u8>),
    /// To [`Request::Logs`]: that was all; whether there is such a job.
    LogEnd(bool),
    /// Nothing; the daemon is alive.
    Alive,
    /// To [`Request::Statistics`]: what the threads of one job that runs do; one for each.
    Statistics(Box<JobStatistics>),
    /// To [`Request::Statistics`]: that was all.
    StatisticsEnd,
    /// To [`Request::Jobs`]: that was all.
    JobsEnd,
}

/// What the threads of a job on one host have done, at the last two times that its process said so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatistics {
    /// The job.
    pub summary: JobSummary,
    /// How long ago it said so, in milliseconds.
    pub age_ms: u64,
    /// Its threads then; none if it has not said anything.
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
    /// The processes that run there as parts of jobs over RDMA, as far as they have said so.
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
    /// When it was asked for, in seconds since 1970.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_the_name_of_its_host_and_a_number_if_there_are_several() {
        let host: Name = "a".parse().unwrap();
        assert_eq!(Process::new(3, 1).name(&host), "a");
        let names: Vec<_> = (0..4).map(|number| Process::new(number, 2).name(&host)).collect();
        assert_eq!(names, ["a/0", "a/1", "a/0", "a/1"]);
        assert_eq!(Process::new(3, 0).name(&host), "a", "whatever somebody says");
    }

    fn run() -> Request {
        Request::Run(Box::new(RunRequest {
            job: JobId(1),
            host: 0,
            hosts: 1,
            processes: 1,
            threads: 1,
            program: Program { digest: [0; 32], bytes: 0, name: "p".into() },
            arguments: vec![],
            environment: vec![],
            directory: None,
            input: false,
            limits: Limits::default(),
        }))
    }

    #[test]
    fn only_an_administrator_runs_and_kills() {
        for request in [run(), Request::Kill(JobId(1))] {
            assert!(request.is_allowed_to(Role::Admin));
            assert!(!request.is_allowed_to(Role::Viewer));
            assert!(!request.is_allowed_to(Role::Host));
        }
        let logs = Request::Logs { job: JobId(1), follow: false };
        for request in [Request::Describe, Request::Jobs, logs, Request::Statistics] {
            assert!(request.is_allowed_to(Role::Admin));
            assert!(request.is_allowed_to(Role::Viewer));
            assert!(!request.is_allowed_to(Role::Host));
        }
    }

    #[test]
    fn an_ending_has_the_status_of_a_shell() {
        assert_eq!(How::Exited(3).status(), 3);
        assert_eq!(How::Killed(9).status(), 137);
        assert_eq!(How::Killed(9).to_string(), "was killed by signal 9 (SIGKILL)");
        assert_eq!(How::Killed(40).to_string(), "was killed by signal 40");
    }
}
