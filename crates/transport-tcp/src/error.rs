//! What can go wrong when a process joins a rack.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use gossamer_job::TlsError;
use primitive::limits::{HOSTS, THREADS_PER_HOST};
use thiserror::Error;
use transport_api::HostId;

/// Why a process did not become a host of its rack.
#[derive(Debug, Error)]
pub enum JoinError {
    /// More or fewer hosts or threads than a rack can have.
    #[error(
        "invalid rack of {0} hosts of {1} threads: use 1 to {HOSTS} hosts of 1 to {THREADS_PER_HOST} threads"
    )]
    Size(usize, u32),
    /// The host's own number is not among the addresses.
    #[error("{0} is not among the addresses of {1} hosts")]
    NoPlace(HostId, usize),
    /// A loss bound that no network can keep.
    #[error("loss bound {0:?} is too short: use 10 ms or more")]
    LossBound(Duration),
    /// Without credentials a rack must stay on one machine.
    #[error("{0} is not a loopback address: a rack without credentials must stay on one machine")]
    NotLoopback(SocketAddr),
    /// The credentials cannot be used.
    #[error("cannot use the credentials of this host")]
    Credentials(#[from] TlsError),
    /// A peer refused this host.
    #[error("{host} at {address} refuses this host: {reason}")]
    Refused {
        /// The peer.
        host: HostId,
        /// Where it listens.
        address: SocketAddr,
        /// Why, as it says.
        reason: String,
    },
    /// A peer did not prove its identity, or does not accept this host's proof.
    #[error("TLS authentication of {host} at {address} failed: {reason}")]
    Untrusted {
        /// The host that it should be.
        host: HostId,
        /// Where it listens.
        address: SocketAddr,
        /// What failed.
        reason: String,
    },
    /// Not all hosts were found in time.
    #[error(
        "no complete connection with {} after {waited:?}{}",
        list(missing),
        last.as_ref().map_or(String::new(), |last| format!("; last failure: {last}"))
    )]
    Missing {
        /// The hosts that are missing.
        missing: Vec<HostId>,
        /// The timeout that has passed.
        waited: Duration,
        /// The last connection that failed or was refused, and why.
        last: Option<String>,
    },
    /// The system refused something.
    #[error("a system call failed while joining the rack")]
    System(#[from] io::Error),
}

fn list(hosts: &[HostId]) -> String {
    hosts.iter().map(HostId::to_string).collect::<Vec<_>>().join(", ")
}
