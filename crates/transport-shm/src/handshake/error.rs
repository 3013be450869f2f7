//! [`JoinError`]: what can go wrong while processes become a rack; [`Party`]: with whom.

use std::time::Duration;
use std::{fmt, io};

use primitive::limits::{HOSTS, THREADS_PER_HOST};
use thiserror::Error;
use transport_api::HostId;

use crate::wire::packet::VERSION;

/// How long a process may take from one packet of the handshake to the next, its start included.
pub const HANDSHAKE: Duration = Duration::from_secs(20);

/// A process on the other side of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The process that started this one.
    Leader(u32),
    /// A host, by its number and process id.
    Host(HostId, u32),
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::Leader(pid) => write!(f, "the leader (pid {pid})"),
            Party::Host(host, pid) => write!(f, "{host} (pid {pid})"),
        }
    }
}

/// Why processes did not become a rack.
#[derive(Debug, Error)]
pub enum JoinError {
    /// More or fewer hosts or threads than a rack can have.
    #[error(
        "invalid rack of {0} hosts of {1} threads: use 1 to {HOSTS} hosts of 1 to {THREADS_PER_HOST} threads"
    )]
    Size(u32, u32),
    /// More or fewer processes were started than the rack has hosts.
    #[error(
        "{started} processes were started for a rack of {hosts} hosts, expected {}",
        hosts - 1
    )]
    Started {
        /// Hosts of the rack, the leader included.
        hosts: u32,
        /// Processes that were started.
        started: u32,
    },
    /// The hosts of this machine are not among those of the rack, or this host not among them.
    #[error("invalid hosts of the machine of {0}: list {0} itself, and hosts below {1} only")]
    Members(HostId, u32),
    /// Other hosts of this machine did not join in time.
    #[error("these other hosts of this machine did not join within {HANDSHAKE:?}: {}", list(.0))]
    Absent(Vec<HostId>),
    /// The other side is another build.
    #[error(
        "{party} runs build {theirs} with protocol {their_version}, this process build {ours} with \
         protocol {VERSION}: start all hosts of a rack from one executable"
    )]
    Build {
        /// The other side.
        party: Party,
        /// Its build identity, in hexadecimal.
        theirs: String,
        /// Its protocol version.
        their_version: u32,
        /// The build identity of this process, in hexadecimal.
        ours: String,
    },
    /// Another process holds the other end of the socket.
    #[error("process {pid} of user {uid} sent as {party}, which runs as user {expected_uid}")]
    Stranger {
        /// The process that should have sent.
        party: Party,
        /// The user that both sides should run as.
        expected_uid: u32,
        /// The process that sent.
        pid: u32,
        /// Its user.
        uid: u32,
    },
    /// The other side ended.
    #[error("{party} ended before the rack was complete: {how}")]
    Ended {
        /// The other side.
        party: Party,
        /// Exit status or signal, in words, as far as known.
        how: String,
    },
    /// The other side closed its socket.
    #[error("{0} closed the connection; its own output says why")]
    HungUp(Party),
    /// The other side sent nothing for too long.
    #[error("{0} sent nothing for {HANDSHAKE:?}")]
    Silent(Party),
    /// The other side broke the protocol.
    #[error("{0} broke the protocol: it sent {1}")]
    Protocol(Party, String),
    /// No leader has started this process.
    #[error("the standard input of this process is not a socket to a leader")]
    NoLeader(#[source] io::Error),
    /// The system refused something.
    #[error("cannot join the rack")]
    System(#[from] io::Error),
}

fn list(hosts: &[HostId]) -> String {
    hosts.iter().map(HostId::to_string).collect::<Vec<_>>().join(", ")
}

impl From<rustix::io::Errno> for JoinError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::System(error.into())
    }
}

/// Whether a rack can have this number of hosts and of threads on each.
///
/// # Errors
/// [`JoinError::Size`], if it cannot.
pub(crate) fn check_size(hosts: u32, threads: u32) -> Result<(), JoinError> {
    let fits = |n: u32, most: usize| (1..=most).contains(&(n as usize));
    let is_valid = fits(hosts, HOSTS) && fits(threads, THREADS_PER_HOST);
    if is_valid { Ok(()) } else { Err(JoinError::Size(hosts, threads)) }
}
