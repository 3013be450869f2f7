//! [`SessionError`]: why a process was not run.

use crate::{
    process::supervised::SuperviseError,
    protocol::{EndedBy, connection::ConnectionError},
};
use gossamer_job::JobError;
use std::io;
use thiserror::Error;

/// Why a process was not run.
#[derive(Debug, Error)]
pub(crate) enum SessionError {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error("the controller said what it should not now")]
    OutOfTurn,
    #[error(transparent)]
    Admission(#[from] crate::host::jobs::NotAdmitted),
    #[error(transparent)]
    Store(#[from] crate::host::store::StoreError),
    #[error("cannot listen at {0}: {1}")]
    Listen(std::net::IpAddr, io::Error),
    #[error(transparent)]
    Description(#[from] JobError),
    #[error("the job description is of another job or host")]
    OtherDescription,
    #[error(
        "--memory and --pids need a cgroup for each process, and this daemon has none: {0} (its \
         systemd unit needs Delegate=yes)"
    )]
    NoLimits(String),
    #[error("the stored program was changed after it was found; run it again")]
    Changed,
    #[error("cannot read the stored program: {0}")]
    Find(io::Error),
    #[error("cannot start the program: {0}")]
    Start(io::Error),
    #[error("{0} ended the job before it had started")]
    Killed(EndedBy),
    #[error(transparent)]
    Supervised(#[from] SuperviseError),
}
