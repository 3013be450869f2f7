//! The rendezvous of the tasks of a step: every task connects to task 0, sends the address at which
//! it listens, and gets the addresses of all. Both sides authenticate by certificate before either
//! looks at a message of the other. What a stranger can occupy is bounded: a limited number of
//! connections may be unauthenticated at a time, each for a limited time, and the oldest makes room
//! for the next.

pub(in crate::slurm) mod channel;
mod follower;
mod leader;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::description::JobHost;
use crate::tls::Tls;

/// The environment variable with the address of task 0, as `HOST` or `HOST:PORT`, if that is not
/// the step's first node and a port that follows from the secret.
pub const RENDEZVOUS: &str = "GOSSAMER_RENDEZVOUS";

/// How long the tasks of a step may take to be started and to connect to task 0.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long one connection may take to authenticate and send its introduction.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two checks for new connections, and between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(20);

/// The tasks of a step did not find each other.
#[derive(Debug, Error)]
pub enum RendezvousError {
    /// Task 0 cannot listen.
    #[error(
        "task 0 cannot listen at any of the ports {ports:?}: set another address with \
         `export {RENDEZVOUS}=HOST:PORT` before `srun`"
    )]
    Listen {
        /// The ports.
        ports: Vec<u16>,
        /// The error for the last port.
        #[source]
        error: io::Error,
    },
    /// Task 0 was not found.
    #[error(
        "task {rank} found no task 0 at {}, ports {ports:?}, within {TIMEOUT:?}{}: if it listens \
         elsewhere, set its address with `export {RENDEZVOUS}=HOST:PORT` before `srun`",
        hosts.join(" or "), last_failure(last)
    )]
    NotFound {
        /// The task that was looking.
        rank: u32,
        /// The hosts that it tried.
        hosts: Vec<String>,
        /// The ports that it tried.
        ports: Vec<u16>,
        /// How the last attempt failed.
        last: Option<String>,
    },
    /// Some tasks did not connect.
    #[error("tasks {missing:?} did not connect to task 0 within {TIMEOUT:?}{}", last_failure(last))]
    Missing {
        /// The tasks.
        missing: Vec<u32>,
        /// Why the last connection that was refused was.
        last: Option<String>,
    },
    /// Task 0 does not accept this task.
    #[error("task 0 refused task {rank}: {reason}")]
    Refused {
        /// The task.
        rank: u32,
        /// The reason.
        reason: String,
    },
    /// A system call failed.
    #[error("a system call failed during the rendezvous")]
    System(#[from] io::Error),
}

fn last_failure(last: &Option<String>) -> String {
    last.as_ref().map_or(String::new(), |last| format!(" (last failure: {last})"))
}

/// Where task 0 may listen: every host with every port is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoints {
    pub(crate) hosts: Vec<String>,
    pub(crate) ports: Vec<u16>,
}

/// What a task sends to task 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) rank: u32,
    /// Tasks of the step, as Slurm reports to this one.
    pub(crate) tasks: u32,
    /// The name of its node.
    pub(crate) node: String,
    /// How many runtime threads it asks for.
    pub(crate) threads: u32,
    /// The port at which it listens for the other hosts.
    pub(crate) port: u16,
}

/// What task 0 answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Hosts(Vec<JobHost>),
    Refused(String),
}

/// Listens at every address of this machine.
pub(crate) fn listen(port: u16) -> io::Result<TcpListener> {
    // A machine without IPv6 has only IPv4 addresses.
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

/// Finds the other tasks; returns where all of them listen, and with how many threads.
pub(crate) fn join(
    tls: &Tls,
    endpoints: &Endpoints,
    me: &Introduction,
) -> Result<Vec<JobHost>, RendezvousError> {
    if me.rank == 0 {
        leader::lead(tls, endpoints, me)
    } else {
        follower::follow(tls, endpoints, me)
    }
}

#[cfg(test)]
mod tests;
