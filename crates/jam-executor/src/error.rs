//! What can go wrong when an executor starts, and when it runs a jam.
//!
//! An error prints its own level; `source()` is the next one.

use std::fmt;
use std::io;
use std::time::Duration;

use jam::{JamError, Panicked, Refusal};
use thiserror::Error;

/// Why an executor did not start, or a call has no result.
///
/// After each error the executor can be used again. The jam's process itself reports the addresses of a
/// fault, so a malicious jam can forge them.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExecutorError {
    /// A size of the builder is too large.
    #[error("{what} of {bytes} bytes, expected at most {limit}")]
    Size {
        /// What has the size.
        what: &'static str,
        /// Its size in bytes.
        bytes: usize,
        /// The largest one.
        limit: usize,
    },
    /// The system did not start the process, or the process did not finish its setup.
    #[error("executor process failed to {step}")]
    Start {
        /// What failed.
        step: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The connection to the process failed.
    #[error("connection to the executor process failed")]
    Connection {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The jam has no code for this machine, or its blob is not one.
    #[error("cannot run a jam in an executor")]
    Jam {
        /// Why.
        #[source]
        source: JamError,
    },
    /// The jam was refused before any of it ran: its code is for another machine, or it imports what
    /// an executor does not have, or it works on a property other than the scratch.
    #[error("jam {jam} was refused by the executor")]
    Refused {
        /// The jam's name.
        jam: String,
        /// Why.
        #[source]
        source: Refusal,
    },
    /// The payload is longer than the executor's part for it.
    #[error(
        "payload of {bytes} bytes for jam {jam}, expected at most {limit}: raise `Builder::payload`"
    )]
    Payload {
        /// The jam's name.
        jam: String,
        /// Bytes of the payload.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The jam panicked.
    #[error("jam {jam} panicked in its executor")]
    Panicked {
        /// The jam's name.
        jam: String,
        /// Where, and with what message.
        #[source]
        source: Panicked,
    },
    /// The jam's process crashed.
    #[error("jam {jam} crashed its executor: {fault}")]
    Crashed {
        /// The jam's name.
        jam: String,
        /// How, and where.
        fault: Fault,
    },
    /// The jam needed more stack than there is.
    #[error("jam {jam} overflowed the stack of its executor ({stack} bytes): {fault}")]
    StackOverflow {
        /// The jam's name.
        jam: String,
        /// Bytes of the stack.
        stack: usize,
        /// Where.
        fault: Fault,
    },
    /// The system had no memory for a page that the jam touched, or ended the process to get some.
    #[error("jam {jam} found no memory in its executor: {fault}")]
    Memory {
        /// The jam's name.
        jam: String,
        /// Where.
        fault: Fault,
    },
    /// The jam made a system call.
    #[error("jam {jam} made system call {call}, which executors deny: {fault}")]
    Denied {
        /// The jam's name.
        jam: String,
        /// The number of the system call.
        call: i64,
        /// Where.
        fault: Fault,
    },
    /// The jam had not ended at the deadline.
    #[error("jam {jam} ran longer than {limit:?}: {fault}")]
    Deadline {
        /// The jam's name.
        jam: String,
        /// The executor's deadline.
        limit: Duration,
        /// Where it was then.
        fault: Fault,
    },
    /// What came back is not what a jam's entry can return.
    #[error("jam {jam} returned {found}, expected {expected}")]
    Reply {
        /// The jam's name.
        jam: String,
        /// What came back.
        found: String,
        /// What can.
        expected: String,
    },
}

/// How a jam's process ended, and where the jam was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The signal; `None` if it is not known, since the program itself waits for its children.
    pub signal: Option<i32>,
    /// The address that could not be accessed, if it was an access.
    pub address: Option<u64>,
    /// The instruction's offset in the text of the jam, as `gossamer jam inspect --disassemble` prints
    /// it; `None` if it was outside.
    pub offset: Option<u64>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.signal {
            Some(signal) => f.write_str(name_of(signal).unwrap_or("signal "))?,
            None => f.write_str("ended")?,
        }
        if let Some(signal) = self.signal.filter(|signal| name_of(*signal).is_none()) {
            write!(f, "{signal}")?;
        }
        if let Some(address) = self.address {
            write!(f, " at address {address:#x}")?;
        }
        match self.offset {
            Some(offset) => write!(f, ", offset {offset:#x} of its text"),
            None => f.write_str(", outside of its text"),
        }
    }
}

fn name_of(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGBUS => "SIGBUS",
        libc::SIGILL => "SIGILL",
        libc::SIGFPE => "SIGFPE",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGSYS => "SIGSYS",
        libc::SIGKILL => "SIGKILL",
        libc::SIGALRM => "SIGALRM",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_says_where() {
        let mut fault =
            Fault { signal: Some(libc::SIGSEGV), address: Some(0x1000), offset: Some(0x24) };
        assert_eq!(fault.to_string(), "SIGSEGV at address 0x1000, offset 0x24 of its text");
        fault = Fault { signal: Some(99), ..Fault::default() };
        assert_eq!(fault.to_string(), "signal 99, outside of its text");
    }
}
