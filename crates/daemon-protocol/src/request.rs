//! [`Request`]: the first message of a connection, and the roles that may send it.

use gossamer_job::JobId;
use serde::{Deserialize, Serialize};

use crate::member::Role;

/// The first message of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The hardware of the host.
    Describe,
    /// Its jobs.
    Jobs,
    /// End a job.
    Kill(JobId),
    /// The recent output of a job on this host; and further output, if `follow`.
    Logs {
        /// The job.
        job: JobId,
        /// Whether to follow the output until the job ends.
        follow: bool,
    },
    /// Run a process of a job.
    Run(Box<RunRequest>),
    /// The activity of the threads of its jobs.
    Statistics,
    /// Bring a signed package of jams into the processes of a job on this host. The daemon answers
    /// [`Answer::SendPackage`](crate::Answer::SendPackage), and the caller sends the bytes of
    /// the package, as [`PackagePart`]s.
    Package {
        /// The job.
        job: JobId,
        /// The length of the package, in bytes.
        bytes: u64,
    },
}

/// The next bytes of a package, after [`Request::Package`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackagePart(#[serde(with = "serde_bytes")] pub Vec<u8>);

impl Request {
    /// Whether a member in `role` may send this request.
    pub fn is_allowed_to(&self, role: Role) -> bool {
        match self {
            Self::Describe | Self::Jobs | Self::Logs { .. } | Self::Statistics => {
                matches!(role, Role::Admin | Role::Viewer)
            }
            Self::Kill(_) | Self::Run(_) | Self::Package { .. } => role == Role::Admin,
        }
    }

    /// The job that it concerns, if it concerns one.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Describe | Self::Jobs | Self::Statistics => None,
            Self::Kill(job) | Self::Logs { job, .. } | Self::Package { job, .. } => Some(*job),
            Self::Run(run) => Some(run.job),
        }
    }

    /// Its name in messages.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Describe => "describe the host",
            Self::Jobs => "list jobs",
            Self::Kill(_) => "kill a job",
            Self::Logs { .. } => "read logs",
            Self::Run(_) => "run a job",
            Self::Statistics => "read statistics",
            Self::Package { .. } => "send a package",
        }
    }
}

/// A process to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The job that it is part of.
    pub job: JobId,
    /// Which process of the job this is: `main` runs in the first.
    pub host: u32,
    /// How many processes the job has.
    pub hosts: u32,
    /// How many of them run on each host, with consecutive numbers.
    pub processes: u32,
    /// How many threads each process has.
    pub threads: u32,
    /// The program.
    pub program: Program,
    /// Its arguments, without its name.
    pub arguments: Vec<String>,
    /// Variables for its environment.
    pub environment: Vec<(String, String)>,
    /// Its working directory; a new empty one if not set.
    pub directory: Option<String>,
    /// Whether its standard input comes from the controller.
    pub input: bool,
    /// Its limits.
    pub limits: Limits,
}

/// Limits of a process of a job together with its descendants. They need a daemon that has a cgroup.
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
    /// Its name.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn only_an_administrator_runs_and_kills_and_sends_packages() {
        let package = Request::Package { job: JobId(1), bytes: 0 };
        for request in [run(), Request::Kill(JobId(1)), package] {
            assert!(request.is_allowed_to(Role::Admin));
            assert!(!request.is_allowed_to(Role::Signer), "it signs, and calls no daemon");
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
}
