//! One process of a job: its number, its outputs, and how it ends.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::member::{Name, Role};

/// One of the processes that a job has on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    /// Which of them, from 0.
    pub number: u32,
    /// How many there are.
    pub of: u32,
}

impl Process {
    /// The process with number `host` in its job, if every host runs `processes` of them.
    pub fn new(host: u32, processes: u32) -> Self {
        let of = processes.max(1);
        Self { number: host % of, of }
    }

    /// Its name, from that of its host or program: the same, if it is the only process there.
    pub fn name(self, of: &impl fmt::Display) -> String {
        if self.of <= 1 { of.to_string() } else { format!("{of}/{}", self.number) }
    }
}

/// An output of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// The standard output.
    Out,
    /// The standard error.
    Err,
}

/// How a process has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// By itself, or by a signal.
    pub how: How,
    /// The source of the request to end it, if there was one: such an end is not the cause of another.
    pub ended_by: Option<EndedBy>,
    /// The place and message of its panic, if its last lines contain one.
    pub panic: Option<String>,
    /// The last lines of its standard error, or of its output if it is empty.
    pub last_lines: Vec<String>,
}

/// The source of a request to end a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndedBy {
    /// The controller of its job.
    Controller,
    /// The daemon, for this reason.
    Daemon(String),
    /// A member of the rack.
    Member(Name, Role),
}

impl fmt::Display for EndedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controller => f.write_str("the controller"),
            Self::Daemon(why) => write!(f, "the daemon ({why})"),
            Self::Member(name, role) => write!(f, "{name} ({role})"),
        }
    }
}

/// The number of the signal that no process survives.
pub const SIGKILL: i32 = 9;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// With an exit status.
    Exited(i32),
    /// By a signal.
    Killed(i32),
    /// Unknown: its supervisor was killed, and so was the process.
    Unsupervised,
}

impl How {
    /// The exit status as a shell counts it.
    pub fn status(self) -> u8 {
        match self {
            Self::Exited(code) => code as u8,
            Self::Killed(signal) => 128u8.saturating_add(signal as u8),
            Self::Unsupervised => 128 + 9,
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with status {code}"),
            Self::Killed(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
            Self::Unsupervised => f.write_str("was killed together with its supervisor"),
        }
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    const NAMES: [&str; 16] = [
        "", "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE",
        "SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM",
    ];
    NAMES.get(usize::try_from(signal).ok()?).copied().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_the_name_of_its_host_and_a_number_if_there_are_several() {
        let host: Name = "a".parse().unwrap();
        assert_eq!(Process::new(3, 1).name(&host), "a");
        let names: Vec<_> = (0..4).map(|number| Process::new(number, 2).name(&host)).collect();
        assert_eq!(names, ["a/0", "a/1", "a/0", "a/1"]);
        assert_eq!(
            Process::new(3, 0).name(&host),
            "a",
            "without processes per host the number does not show"
        );
    }

    #[test]
    fn an_ending_has_the_status_of_a_shell() {
        assert_eq!(How::Exited(3).status(), 3);
        assert_eq!(How::Killed(9).status(), 137);
        assert_eq!(How::Killed(9).to_string(), "was killed by signal 9 (SIGKILL)");
        assert_eq!(How::Killed(40).to_string(), "was killed by signal 40");
    }
}
