//! [`SessionError`]: why a process was not run.

use std::io;

use daemon_protocol::EndedBy;
use gossamer_job::JobError;
use thiserror::Error;

use crate::connection::ConnectionError;
use crate::process::supervised::SuperviseError;

/// Why a process was not run.
#[derive(Debug, Error)]
pub(crate) enum SessionError {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error("unexpected message of the controller")]
    OutOfTurn,
    #[error(transparent)]
    Admission(#[from] crate::host::jobs::NotAdmitted),
    #[error(transparent)]
    Store(#[from] crate::host::store::StoreError),
    #[error("cannot listen at {0}")]
    Listen(std::net::IpAddr, #[source] io::Error),
    #[error(transparent)]
    Description(#[from] JobError),
    #[error("the job description is for another job or host")]
    OtherDescription,
    #[error(
        "--memory and --pids need cgroups, which this daemon cannot use ({0}): set Delegate=yes in its \
         systemd unit"
    )]
    NoLimits(String),
    #[error("the stored program was changed before it started: run the job again")]
    Changed,
    #[error("cannot read the stored program")]
    Find(#[source] io::Error),
    #[error("cannot start the program")]
    Start(#[source] io::Error),
    #[error("{0} ended the job before it started")]
    Killed(EndedBy),
    #[error(transparent)]
    Supervised(#[from] SuperviseError),
}
