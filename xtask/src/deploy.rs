//! `cargo xtask rack-deploy`: from the sources to a program that runs on a rack of machines, over
//! ssh. Each step looks first and does only what is not done yet, so it can be repeated.
//!
//! 1. Build the program, `gossamer` and `gossamerd`.
//! 2. Make the rack's authority, unless the state folder has it.
//! 3. Look at every host; nothing is changed anywhere if one of them will not do.
//! 4. On each host: send the programs, let it make its key and join the rack, start its daemon.
//! 5. `gossamer run`, which sends the program to the daemons that do not have it.
//!
//! Reading order: [`rack_file`], [`action`], [`host`], [`site`], [`local`], [`interrupt`], [`proof`].

pub(crate) mod action;
mod host;
pub(crate) mod interrupt;
mod local;
pub(crate) mod proof;
mod rack_file;
mod site;

use crate::step::Step;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use cargo_metadata::TargetKind;
use clap::Args;
use interrupt::Interrupt;
use rack_file::RackFile;
use site::{Mode, Site};
use std::env;
use std::path::PathBuf;

/// The packages that every rack needs.
const DAEMON: &str = "gossamer-daemon";

/// What to deploy, and where.
#[derive(Args)]
pub(crate) struct Deploy {
    /// The rack's machines (dist/rack.toml is an example)
    #[arg(long, value_name = "FILE", required_unless_present = "local")]
    hosts: Option<PathBuf>,
    /// So many network namespaces of this machine instead, each with its own sshd and daemon,
    /// removed at the end (needs root)
    #[arg(long, value_name = "N", conflicts_with_all = ["hosts", "state"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=26))]
    local: Option<u32>,
    /// The program: a binary of this workspace
    #[arg(long, value_name = "PROGRAM")]
    bin: String,
    /// Threads of the program on each host
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Where the rack's authority and the administrator's identity are kept
    /// [default: ~/.config/gossamer/racks/NAME]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// Print each command, and run none
    #[arg(long)]
    dry_run: bool,
    /// Arguments of the program
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// `cargo xtask rack-deploy`; the exit status of the program.
pub(crate) fn run(workspace: &Workspace, deploy: &Deploy) -> Result<u8> {
    let interrupt = Interrupt::new()?;
    let mode = if deploy.dry_run { Mode::Show } else { Mode::Do };
    build(workspace, &deploy.bin, mode)?;
    match (&deploy.hosts, deploy.local) {
        (Some(file), _) => {
            let rack = RackFile::load(file)?;
            let state = match &deploy.state {
                Some(state) => state.clone(),
                None => env::home_dir()
                    .context("there is no home directory; say --state FOLDER")?
                    .join(".config/gossamer/racks")
                    .join(&rack.name),
            };
            let site = Site::new(workspace, &rack, state, mode, &interrupt);
            site.deploy()?;
            site.run(&deploy.bin, deploy.threads, &deploy.arguments)
        }
        (None, Some(hosts)) => local::with(workspace, hosts, mode, &interrupt, |site| {
            site.deploy()?;
            site.run(&deploy.bin, deploy.threads, &deploy.arguments)
        }),
        (None, None) => bail!("say --hosts FILE or --local N"),
    }
}

/// Builds the program and what every rack needs.
fn build(workspace: &Workspace, bin: &str, mode: Mode) -> Result<()> {
    let package = package_of(workspace, bin)?;
    let programs = format!("--package {DAEMON} --bin gossamer --bin gossamerd");
    let arguments = format!("build --release {programs} --package {package} --bin {bin}");
    match mode {
        Mode::Show => println!("cargo {arguments}"),
        Mode::Do => Step::cargo(&workspace.root, &arguments).run()?,
    }
    Ok(())
}

/// The package of this workspace that has a binary.
fn package_of(workspace: &Workspace, bin: &str) -> Result<String> {
    let mut there = Vec::new();
    for package in &workspace.metadata.packages {
        for target in package.targets.iter().filter(|t| t.kind.contains(&TargetKind::Bin)) {
            if target.name == bin {
                return Ok(package.name.to_string());
            }
            there.push(target.name.as_str());
        }
    }
    there.sort_unstable();
    bail!("there is no program {bin:?} in this workspace; there are {}", there.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_their_names() {
        let workspace = Workspace::find().unwrap();
        assert_eq!(package_of(&workspace, "kv").unwrap(), "gossamer-kv");
        let error = package_of(&workspace, "vk").unwrap_err().to_string();
        assert!(error.contains("no program \"vk\"") && error.contains("kv"), "{error}");
    }
}
