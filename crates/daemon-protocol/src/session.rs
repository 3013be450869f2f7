//! The messages of a session, which follow [`Request::Run`](crate::Request::Run).

use std::net::SocketAddr;

use gossamer_job::SecretPem;
use serde::{Deserialize, Serialize};

use crate::process::{Ending, Stream};

/// Messages of a controller after [`Request::Run`](crate::Request::Run).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromController {
    /// The next bytes of the program.
    Program(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The end of the program.
    ProgramEnd,
    /// Start the process; the text is its job description as JSON.
    Start(SecretPem),
    /// Bytes for its standard input.
    Input(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The end of its standard input.
    InputEnd,
    /// A signal for it.
    Signal(i32),
    /// The number of bytes of output that were printed.
    Printed(u32),
    /// End it: with this signal first, and SIGKILL after the grace period.
    Stop {
        /// The signal.
        signal: i32,
        /// The grace period, in milliseconds.
        grace_ms: u32,
    },
    /// Shows that the controller is alive.
    Heartbeat,
}

/// Messages of a daemon after [`Request::Run`](crate::Request::Run).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromDaemon {
    /// The daemon refuses to run the process, for this reason.
    Refused(String),
    /// The daemon does not have the program.
    SendProgram,
    /// The daemon is ready to start the process.
    Prepared {
        /// The address at which the process will listen for the other processes of its job.
        address: SocketAddr,
        /// Whether no other job uses the host's cores.
        owns_cores: bool,
    },
    /// The process runs.
    Started {
        /// Its number on that host.
        pid: u32,
    },
    /// The number of bytes of input that the process has taken.
    Taken(u32),
    /// Output of the process.
    Output(Stream, #[serde(with = "serde_bytes")] Vec<u8>),
    /// The process and its descendants have ended.
    Ended(Ending),
    /// Shows that the daemon is alive.
    Heartbeat,
}
