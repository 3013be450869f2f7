//! The control plane: messages between callers and daemons, and their framing.
//!
//! A caller opens a connection and sends one [`Request`]. The daemon answers all but [`Request::Run`]
//! with [`Answer`]s and closes the connection. `Run` opens a session that lasts as long as the job
//! does on that host:
//!
//! ```text
//!   controller                              daemon
//!   Run(RunRequest)           -->
//!                             <--           SendProgram          only if it does not have it
//!   Program.. ProgramEnd      -->
//!                             <--           Prepared             the address of its data socket
//!   Start                     -->                                when all hosts are prepared
//!                             <--           Started
//!   Input, Signal, Printed    -->
//!                             <--           Output.., Taken
//!   Stop                      -->                                when another host has ended badly
//!                             <--           Ended                how its process ended
//!                             <--           Output.. , close
//! ```
//!
//! Both sides send `Heartbeat` when they have nothing else to send. A side that receives nothing for
//! [`SILENCE_TIMEOUT`] declares the other lost and ends the job.
//!
//! Reading order, lowest first:
//!
//! | File | Content |
//! |---|---|
//! | [`frame`] | messages in a stream of bytes |
//! | `member`, [`topology`] | names and roles of members; the hardware of a host |
//! | `process`, `request` | a process of a job and its end; what a caller may send first |
//! | `answer`, `session` | what a daemon answers; the messages of a job's session |

#![forbid(unsafe_code)]

mod answer;
pub mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod member;
mod process;
mod request;
mod session;
pub mod topology;

use std::time::Duration;

pub use crate::answer::{Answer, HostReport, JobStatistics, JobSummary, OverRdma};
pub use crate::member::{Name, NameError, Role};
pub use crate::process::{EndedBy, Ending, How, Process, SIGKILL, Stream};
pub use crate::request::{Limits, PackagePart, Program, Request, RunRequest};
pub use crate::session::{FromController, FromDaemon};

/// How often a side with nothing else to send sends a heartbeat.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// A peer on the control plane that sends nothing for this long counts as lost.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of a program or of output that travel in one message.
pub const CHUNK: usize = 256 << 10;
/// Bytes of output that a daemon sends before the controller has printed them, and of input that a
/// controller sends before the process has taken them.
pub const OUTPUT_WINDOW: usize = 1 << 20;
