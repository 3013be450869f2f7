//! [`RackError`]: a rack did not start, or ended with a failure.

use std::{fmt, io};

use fiber::SpawnError;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use transport_api::{HostId, LossReason};
use trust_core::{Chain, DelegateError, WiringError};

/// A rack did not start, or ended with a failure.
///
/// `Display` prints one level, as for any error. `Debug` prints the causes too, separated by colons:
/// it is what a `main` that returns this error prints.
#[derive(Error)]
#[non_exhaustive]
pub enum RackError {
    /// A setting makes no sense.
    #[error("{0}")]
    Settings(String),
    /// The processes of the rack did not find each other on this machine.
    #[cfg(feature = "shm")]
    #[error(transparent)]
    Join(#[from] transport_shm::JoinError),
    /// The processes of the job did not find each other over TCP.
    #[cfg(feature = "tcp")]
    #[error(transparent)]
    Connect(#[from] transport_tcp::JoinError),
    /// The processes of the job did not reach each other over RDMA.
    #[cfg(feature = "rdma")]
    #[error(transparent)]
    Rdma(#[from] transport_rdma::RdmaError),
    /// A daemon has started this process, but its description of the job cannot be used.
    #[cfg(feature = "tcp")]
    #[error(transparent)]
    Job(#[from] gossamer_job::JobError),
    /// The tasks of a Slurm step did not become a rack.
    #[cfg(feature = "tcp")]
    #[error(transparent)]
    Slurm(#[from] gossamer_job::slurm::SlurmError),
    /// The program could not be started again for the other hosts.
    #[error("cannot start the process of another host")]
    Spawn(#[source] io::Error),
    /// The threads of this host could not be connected with the rack.
    #[error(transparent)]
    Wiring(#[from] WiringError),
    /// A runtime thread could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A host was lost, and the rack ended with it.
    #[error("{host} was lost and the rack ended")]
    PeerLost {
        /// The host.
        host: HostId,
        /// How it was lost.
        #[source]
        reason: LossReason,
    },
    /// Requests failed whose results the program does not wait for, such as those of `apply_then`.
    #[error("{} of {host} failed", requests(*count))]
    Unobserved {
        /// The host that sent them.
        host: HostId,
        /// How many.
        count: usize,
        /// The first of them.
        #[source]
        first: Unobserved,
    },
    /// A call failed, and `main` has returned that. [`Rack::run`](crate::Rack::run) does not return it:
    /// `?` makes it of a [`DelegateError`].
    #[error(transparent)]
    Call(#[from] DelegateError),
    /// Properties were still alive when all work had ended
    /// ([`Rack::check_leaks`](crate::Rack::check_leaks)).
    #[error("{} properties were never dropped: {}", .0.len(), .0.join(", "))]
    Leaked(Vec<String>),
    /// The program was linked so that it has two tables of closures.
    #[error(
        "this program and gossamer are in different shared objects, so closures have no common \
         table: link gossamer statically (no `-C prefer-dynamic`, no `dylib`)"
    )]
    TwoImages,
}

/// A request that failed and whose result the program does not wait for, or a callback that panicked.
#[derive(Clone, Debug, Error, Serialize, Deserialize)]
#[error("first: {}", self.what())]
pub struct Unobserved {
    /// How it failed.
    #[source]
    pub error: DelegateError,
    /// The line of the call; `None` if it is not known, as for callbacks of `try_` calls, for the drop
    /// of a property, and for requests of the runtime.
    pub place: Option<String>,
    /// Whether it is the callback of the call that panicked.
    pub is_callback: bool,
}

impl Unobserved {
    fn what(&self) -> String {
        match (&self.place, self.is_callback) {
            (Some(place), true) => format!("a callback panicked, of the call at {place}"),
            (None, true) => "a callback panicked".to_owned(),
            (Some(place), false) => format!("the request delegated at {place}"),
            (None, false) => "the drop of a property, or a request of the runtime".to_owned(),
        }
    }
}

fn requests(count: usize) -> String {
    format!("{count} fire-and-forget request{}", if count == 1 { "" } else { "s" })
}

impl fmt::Debug for RackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Chain(self), f)
    }
}

/// A runtime thread, or the fiber of `main`, could not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The thread itself.
    #[error("cannot start a runtime thread")]
    Thread(#[source] io::Error),
    /// The thread's fibers.
    #[error("cannot start a fiber scheduler")]
    Scheduler(#[from] io::Error),
    /// The thread's slots and lanes.
    #[error(transparent)]
    Wiring(#[from] WiringError),
    /// The fiber that runs `main`.
    #[error("cannot start a fiber for `main`")]
    Main(#[from] SpawnError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_prints_the_causes() {
        let error = RackError::Start(StartError::Thread(io::Error::other("no memory")));
        assert_eq!(error.to_string(), "cannot start a runtime thread");
        assert_eq!(format!("{error:?}"), "cannot start a runtime thread: no memory");
    }

    #[test]
    fn an_error_of_a_call_keeps_its_text_and_its_cause() {
        let reason = LossReason::Connection("cut".into());
        let error = RackError::from(DelegateError::PeerLost { host: HostId(3), reason });
        assert_eq!(error.to_string(), "host 3 is gone");
        let printed = format!("{error:?}");
        assert!(printed.starts_with("host 3 is gone: ") && printed.ends_with("cut"), "{printed}");
    }
}
