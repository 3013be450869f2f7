//! Starts, watches and stops rack-wide programs: `gossamerd` on every host, and the `gossamer`
//! command with which people run jobs on them.
//!
//! A daemon starts processes for whoever holds an administrator's certificate of its rack, and
//! does nothing for anybody else. The life of a job is that of the connections from the command to
//! the daemons: whichever end is lost, the job ends, and no process is left behind.
//!
//! Reading order. Who is who: [`identity`], [`authority`],
//! `revocation`, [`tls`], `gate`. What is said: [`frame`],
//! [`connection`], [`message`]. What a host has: [`topology`], [`store`], `aside`, [`state`]. A
//! process and its keeper: `processes`, `cgroup`, `keeper`, `keepers`, `kept`. The daemon:
//! [`config`], `jobs`, `log`, `metrics`, `pipes`, `statistics`, `conversation`, `quotas`, `server`,
//! [`daemon`]. The command: `visible`, [`controller`], `commands`, [`cli`]. For any bytes at all:
//! `fuzzing`.

#![forbid(unsafe_code)]

pub mod cli;
pub mod controller;
mod escape;
mod files;
pub mod host;
mod process;
pub mod protocol;
mod quarantine;
pub mod security;
