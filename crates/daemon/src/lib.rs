//! Starts, watches and stops rack-wide programs: `gossamerd` on every host, and the `gossamer`
//! command, which runs jobs on them.
//!
//! A daemon starts processes for members of its rack with an administrator's certificate, and for no
//! others. A job lives as long as the connections from its controller to the daemons: if either end
//! is lost, the job ends, and no process is left behind.
//!
//! Reading order, lowest first; each folder uses only those before it.
//!
//! | Folder or file | Content |
//! |---|---|
//! | `causes`, `files`, `quarantine`, `escape` | errors in one line, files that are complete or absent, files of jobs that are in the daemon's way, text for a terminal |
//! | [`security`] | members, identities, the authority, revocation, TLS, the acceptor of connections |
//! | [`connection`] | messages of the control plane ([`daemon_protocol`]) over a stream |
//! | `process` | a process of a job and its supervisor, cgroups, how processes are killed |
//! | [`host`] | the daemon: settings, state, store, jobs, sessions, server |
//! | [`controller`] | the `gossamer` command's side: calls, a job's session, verdict, tables |
//! | [`cli`] | the command lines |

#![forbid(unsafe_code)]

mod causes;
pub mod cli;
pub mod connection;
pub mod controller;
mod escape;
mod files;
pub mod host;
#[cfg(test)]
mod own_process;
mod process;
mod quarantine;
pub mod security;
