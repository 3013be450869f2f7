//! `cargo xtask netns`: a rack of several machines on this one. Every host is a network namespace
//! with an address of its own and its own `gossamerd`; cables (pairs of virtual interfaces) lead
//! from each of them to a switch (a bridge in one more namespace, which is where the `gossamer`
//! command runs). So what a network does to a rack can be tried and tested: a cable can be pulled.
//!
//! Needs root and `ip` (iproute2). Nothing outside the namespaces is touched.

mod chaos;
pub(crate) mod check;
pub(crate) mod rack;

use crate::step::Step;
use crate::workspace::Workspace;
use anyhow::{Result, bail, ensure};
use clap::Subcommand;
use rack::Rack;
use std::process::Stdio;

/// What `cargo xtask netns` can do.
#[derive(Subcommand)]
pub(crate) enum Netns {
    /// Make the namespaces and a rack, and start its daemons
    Up {
        /// How many hosts, named a, b, c and so on
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=26))]
        hosts: u32,
    },
    /// Run a program on all hosts of the rack, as `gossamer run` does
    Run {
        /// Arguments of `gossamer run` but for `--hosts`: flags, then the program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// End everything that runs in the namespaces, and remove them
    Down,
    /// Run a bench on three hosts, kill and stop its processes and pull a cable, in namespaces of
    /// its own
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
                "it is up already; `cargo xtask netns down` ends it"
            );
            build(workspace)?;
            if let Err(error) = rack.up(*hosts) {
                rack.namespaces.down()?;
                return Err(error);
            }
            let hosts = rack.namespaces.hosts()?.join(",");
            println!("netns: hosts {hosts} are up, and ready for");
            println!("  cargo xtask netns run -- {} bench", rack.program("kv").display());
            Ok(())
        }
        Netns::Run { arguments } => {
            let hosts = rack.namespaces.hosts()?;
            ensure!(!hosts.is_empty(), "there is no rack; `cargo xtask netns up` makes one");
            let mut command = rack.gossamer(&["run", "--hosts", &hosts.join(",")]);
            let status = command.args(arguments).stdin(Stdio::inherit()).status()?;
            if !status.success() {
                bail!("the job has failed: {status}");
            }
            Ok(())
        }
        Netns::Down => rack.namespaces.down(),
        Netns::Test => {
            build(workspace)?;
            check::run(workspace)
        }
    }
}

pub(crate) use chaos::run as chaos;

/// Builds the programs of a rack and the bench.
fn build(workspace: &Workspace) -> Result<()> {
    let programs = "--package gossamer-daemon --package gossamer-apps --bins";
    Step::cargo(&workspace.root, &format!("build --release {programs}")).run()
}
