//! `cargo xtask rack-deploy`: builds a program of this workspace, `gossamer` and `gossamerd`, and
//! deploys them as `gossamer deploy` does ([`gossamer_deploy`]).

use std::path::PathBuf;

use anyhow::{Result, bail};
use cargo_metadata::TargetKind;
use clap::Args;
use gossamer_deploy::Options;
use gossamer_deploy::deployment::Programs;
use gossamer_deploy::local::PREFIX;
use gossamer_deploy::mode::Mode;

use crate::step::Step;
use crate::workspace::Workspace;

/// What to deploy, and where.
#[derive(Args)]
pub(crate) struct RackDeploy {
    #[command(flatten)]
    options: Options,
    /// The program: a binary of this workspace
    #[arg(long, value_name = "PROGRAM")]
    bin: String,
    /// Arguments of the program
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// `cargo xtask rack-deploy`; returns the exit status of the program.
pub(crate) fn run(workspace: &Workspace, deploy: &RackDeploy) -> Result<u8> {
    let RackDeploy { options, bin, arguments } = deploy;
    options.check()?;
    build(workspace, bin, options.mode())?;
    let programs = programs(workspace);
    let program = workspace.target().join("release").join(bin);
    gossamer_deploy::deploy(options, &programs, &local_folder(workspace), &program, arguments)
}

/// The `gossamer` and `gossamerd` that [`build`] builds.
pub(crate) fn programs(workspace: &Workspace) -> Programs {
    Programs::to_be_built(&workspace.target().join("release"))
}

/// The folder for the files of local hosts.
pub(crate) fn local_folder(workspace: &Workspace) -> PathBuf {
    workspace.target().join("netns").join(PREFIX)
}

/// Builds the program, `gossamer` and `gossamerd`.
pub(crate) fn build(workspace: &Workspace, bin: &str, mode: Mode) -> Result<()> {
    check_program(workspace, bin)?;
    // Without packages, as all builds of programs: see `Workspace::build_programs`.
    let arguments = format!("build --release --bin gossamer --bin gossamerd --bin {bin}");
    match mode {
        Mode::DryRun => println!("cargo {arguments}"),
        Mode::Run => Step::cargo(&workspace.root, &arguments).run()?,
    }
    Ok(())
}

/// Checks that a package of this workspace has a binary of this name.
fn check_program(workspace: &Workspace, bin: &str) -> Result<()> {
    let mut found = Vec::new();
    for package in &workspace.metadata.packages {
        for target in package.targets.iter().filter(|t| t.kind.contains(&TargetKind::Bin)) {
            if target.name == bin {
                return Ok(());
            }
            found.push(target.name.as_str());
        }
    }
    found.sort_unstable();
    bail!("no program {bin:?} in this workspace (found: {})", found.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_their_names() {
        let workspace = Workspace::find().unwrap();
        assert!(check_program(&workspace, "kv").is_ok());
        let error = check_program(&workspace, "vk").unwrap_err().to_string();
        assert!(error.contains("no program \"vk\"") && error.contains("kv"), "{error}");
    }
}
