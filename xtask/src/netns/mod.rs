//! `cargo xtask netns`: a rack of several machines on this one. Every host is a network namespace
//! with an address of its own and its own `gossamerd`; cables (pairs of virtual interfaces) lead
//! from each of them to a switch (a bridge in one more namespace, which is where the `gossamer`
//! command runs). So the effects of a network on a rack can be tested: a cable can be unplugged.
//!
//! Needs root and `ip` (iproute2). Nothing outside the namespaces is touched.

mod chaos;
pub(crate) mod check;
pub(crate) mod rack;

use std::process::Stdio;

use anyhow::{Result, bail, ensure};
use clap::Subcommand;
use rack::Rack;

use crate::workspace::Workspace;

/// The commands of `cargo xtask netns`.
#[derive(Subcommand)]
pub(crate) enum Netns {
    /// Make the namespaces and a rack, and start its daemons
    Up {
        /// Number of hosts, which are named a, b, c and so on
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=26))]
        hosts: u32,
    },
    /// Run a program on all hosts of the rack, as `gossamer run` does
    Run {
        /// Arguments of `gossamer run` without `--hosts`: options, then the program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Kill all processes in the namespaces, and remove them
    Down,
    /// Run a bench on three hosts of other namespaces, kill and stop its processes, unplug a cable
    Test,
}

/// The rack that `up` makes.
const RACK: &str = "gossamer";

/// `cargo xtask netns`.
pub(crate) fn run(workspace: &Workspace, netns: &Netns) -> Result<()> {
    let rack = Rack::new(workspace, RACK);
    match netns {
        Netns::Up { hosts } => {
            ensure!(
                rack.namespaces.hosts()?.is_empty(),
                "the rack is up already: end it with `cargo xtask netns down`"
            );
            workspace.build_programs()?;
            if let Err(error) = rack.up(*hosts) {
                rack.namespaces.down()?;
                return Err(error);
            }
            let hosts = rack.namespaces.hosts()?.join(",");
            println!("netns: hosts {hosts} are up; to use them:");
            println!("  cargo xtask netns run -- {} bench", rack.program("kv").display());
            Ok(())
        }
        Netns::Run { arguments } => {
            let hosts = rack.namespaces.hosts()?;
            ensure!(!hosts.is_empty(), "no rack is up: make one with `cargo xtask netns up`");
            let mut command = rack.gossamer(&["run", "--hosts", &hosts.join(",")]);
            let status = command.args(arguments).stdin(Stdio::inherit()).status()?;
            if !status.success() {
                bail!("the job failed: {status}");
            }
            Ok(())
        }
        Netns::Down => rack.namespaces.down(),
        Netns::Test => {
            workspace.build_programs()?;
            check::run(workspace)
        }
    }
}

pub(crate) use chaos::run as chaos;
