//! What can go wrong when a process joins a rack.

use crate::TlsError;
use primitive::limits::{HOSTS, THREADS_PER_HOST};
use std::{io, net::SocketAddr, time::Duration};
use thiserror::Error;
use transport_api::HostId;

/// Why a process did not become a host of its rack.
#[derive(Debug, Error)]
pub enum JoinError {
    /// More or fewer hosts or threads than a rack can have.
    #[error("a rack has 1 to {HOSTS} hosts of 1 to {THREADS_PER_HOST} threads, not {0} of {1}")]
    Size(usize, u32),
    /// The host's own number is not among the addresses.
    #[error("{0} has no place among the addresses of {1} hosts")]
    NoPlace(HostId, usize),
    /// A loss bound that no network keeps.
    #[error("a loss bound of {0:?} is too short: use ten milliseconds or more")]
    LossBound(Duration),
    /// Without credentials a rack must stay on one machine.
    #[error("{0} is not a loopback address: a rack without credentials stays on one machine")]
    NotLoopback(SocketAddr),
    /// The credentials are of no use.
    #[error("the credentials of this host cannot be used: {0}")]
    Credentials(#[from] TlsError),
    /// A peer did not take this host, and says why.
    #[error("{host} at {address} refuses this host: {reason}")]
    Refused {
        /// The peer.
        host: HostId,
        /// Where it listens.
        address: SocketAddr,
        /// Its words.
        reason: String,
    },
    /// A peer has not proved who it is, or does not accept this host's proof.
    #[error("no trust between this host and whoever listens as {host} at {address}: {reason}")]
    Untrusted {
        /// Who it should be.
        host: HostId,
        /// Where it listens.
        address: SocketAddr,
        /// What failed.
        reason: String,
    },
    /// Not all hosts were found in time.
    #[error(
        "after {waited:?} there is no complete connection with {}{}",
        list(missing),
        last.as_ref().map_or(String::new(), |last| format!("; the last that failed: {last}"))
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
    #[error("the system refused what joining needs: {0}")]
    System(#[from] io::Error),
}

fn list(hosts: &[HostId]) -> String {
    hosts.iter().map(HostId::to_string).collect::<Vec<_>>().join(", ")
}
