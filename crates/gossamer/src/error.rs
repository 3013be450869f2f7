//! Why a rack did not come up, or did not end well.

use crate::worker::StartError;
use std::{fmt, io};
use thiserror::Error;
use transport_api::{HostId, LossReason};
use trust_core::{DelegateError, WiringError};

/// Why a rack did not come up, or did not end well.
#[derive(Error)]
pub enum RackError {
    /// A setting makes no sense.
    #[error("{0}")]
    Settings(String),
    /// The processes of the rack did not find each other.
    #[cfg(feature = "shm")]
    #[error("cannot join the hosts over shared memory: {0}")]
    Join(#[from] transport_shm::JoinError),
    /// The processes of the job did not find each other.
    #[cfg(feature = "tcp")]
    #[error("cannot join the other hosts of the job: {0}")]
    Connect(#[from] transport_tcp::JoinError),
    /// The processes of the job did not reach each other over RDMA.
    #[cfg(feature = "rdma")]
    #[error("cannot reach the other hosts of the job over RDMA: {0}")]
    Rdma(#[from] transport_rdma::RdmaError),
    /// A daemon has started this process, but what it says about the job is of no use.
    #[cfg(feature = "tcp")]
    #[error("cannot learn which host of which job this process is: {0}")]
    Job(#[from] crate::job::JobError),
    /// The tasks of a Slurm step did not become a rack.
    #[cfg(feature = "tcp")]
    #[error("cannot join the other tasks of the Slurm step: {0}")]
    Slurm(#[from] crate::slurm::SlurmError),
    /// The program could not be started again for the other hosts.
    #[error("cannot start the program for another host: {0}")]
    Spawn(io::Error),
    /// The threads of this host could not be connected with the rack.
    #[error(transparent)]
    Wiring(#[from] WiringError),
    /// A runtime thread could not start.
    #[error("cannot start a runtime thread: {0}")]
    Start(#[from] StartError),
    /// A host has ended, and the rack with it.
    #[error("{host} is gone, and the rack with it: {reason}")]
    PeerLost {
        /// The host.
        host: HostId,
        /// What became of it.
        reason: LossReason,
    },
    /// Requests that nobody waited for have failed.
    #[error("{} failed that nobody waited for; the first: {first}", requests(*count))]
    Unobserved {
        /// How many.
        count: usize,
        /// The first of them.
        first: DelegateError,
    },
    /// Requests that nobody waited for have failed, as another host says.
    #[error("{} failed on {host} that nobody waited for; the first: {first}", requests(*count))]
    UnobservedAt {
        /// The host that knows of them.
        host: HostId,
        /// How many.
        count: usize,
        /// What became of the first of them.
        first: String,
    },
    /// Properties were still alive when all work had ended
    /// ([`Rack::check_leaks`](crate::Rack::check_leaks)).
    #[error("{} properties were never dropped: {}", .0.len(), .0.join(", "))]
    Leaked(Vec<String>),
    /// The program was linked so that it has two tables of closures.
    #[error(
        "this program and gossamer are in different shared objects, so closures cannot be named; \
         link it statically (no `-C prefer-dynamic`, no `dylib`)"
    )]
    TwoImages,
}

fn requests(count: usize) -> String {
    format!("{count} request{}", if count == 1 { "" } else { "s" })
}

/// As `Display`: a `main` that returns this error prints it with `Debug`, and should say what is
/// wrong in words.
impl fmt::Debug for RackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
