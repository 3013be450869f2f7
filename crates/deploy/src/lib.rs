//! Deploys a rack over ssh: installs `gossamer` and `gossamerd` on its machines, gives each a
//! certificate, starts the daemons and runs a program as a job. `gossamer deploy` deploys programs
//! that exist; `cargo xtask rack-deploy` builds them first.
//!
//! Each step checks first and does only what is missing, so a deployment can be repeated:
//!
//! 1. Make the rack's authority, unless the state directory has it.
//! 2. Probe every host; nothing is changed anywhere if one of them fails a requirement.
//! 3. On each host: send the programs, let it make its key and join the rack, start its daemon.
//! 4. `gossamer run`, which sends the program to the daemons that do not have it.
//!
//! Reading order: [`rack_file`] (which machines), [`action`] (one command), [`mode`] (run or print
//! it), `probe` and `scripts` (what runs on a host), [`deployment`] (the steps), [`local`] (hosts that
//! are [`namespaces`] of this machine), [`interrupt`] (Ctrl-C).

#![forbid(unsafe_code)]

pub mod action;
pub mod deployment;
pub mod interrupt;
pub mod local;
pub mod mode;
pub mod namespaces;
mod probe;
pub mod rack_file;
mod scripts;

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{self, Path, PathBuf};

/// Why a deployment failed; its alternate form (`{:#}`) has all causes.
pub use anyhow::Error;
use anyhow::{Context, Result, bail};
use clap::Args;

use crate::deployment::{Deployment, Programs};
use crate::interrupt::Interrupt;
use crate::mode::Mode;
use crate::rack_file::RackFile;

/// Where to deploy, and how.
#[derive(Debug, Args)]
pub struct Options {
    /// The machines of the rack (dist/rack.toml is an example)
    #[arg(long, value_name = "FILE", required_unless_present = "local")]
    pub hosts: Option<PathBuf>,
    /// Deploy to N network namespaces of this machine instead, each with its own sshd and daemon,
    /// removed at the end (needs root)
    #[arg(long, value_name = "N", conflicts_with_all = ["hosts", "state"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=26))]
    pub local: Option<u32>,
    /// Threads of the program on each host
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: u32,
    /// Directory of the rack's authority and the administrator's identity
    /// [default: ~/.config/gossamer/racks/NAME]
    #[arg(long, value_name = "FOLDER")]
    pub state: Option<PathBuf>,
    /// Print each command, run none
    #[arg(long)]
    pub dry_run: bool,
}

impl Options {
    /// Whether commands are run or printed.
    pub fn mode(&self) -> Mode {
        if self.dry_run { Mode::DryRun } else { Mode::Run }
    }

    /// Checks what can be checked before programs are built: that the rack file can be used.
    ///
    /// # Errors
    /// If it cannot be read or is invalid.
    pub fn check(&self) -> Result<()> {
        self.hosts.as_deref().map(RackFile::load).transpose().map(drop)
    }
}

/// Deploys `programs` to the hosts of `options` and runs `program` there; returns its exit status.
/// `local` is a directory for the files of local hosts, which is removed at the end.
///
/// # Errors
/// If a host cannot be reached or fails a requirement, if a step fails, or after a signal.
pub fn deploy(
    options: &Options,
    programs: &Programs,
    local: &Path,
    program: &Path,
    arguments: &[String],
) -> Result<u8> {
    let interrupt = Interrupt::new()?;
    let deploy_and_run = |deployment: &Deployment<'_>| {
        deployment.deploy()?;
        deployment.run(program, options.threads, arguments)
    };
    match (&options.hosts, options.local) {
        (Some(file), _) => {
            let rack = RackFile::load(file)?;
            let state = match &options.state {
                Some(state) => state.clone(),
                None => home()?.join(".config/gossamer/racks").join(&rack.name),
            };
            deploy_and_run(&Deployment::new(programs, &rack, state, options.mode(), &interrupt))
        }
        (None, Some(hosts)) => {
            local::with(programs, local, hosts, options.mode(), &interrupt, deploy_and_run)
        }
        (None, None) => bail!("no hosts: use --hosts FILE or --local N"),
    }
}

/// `gossamer deploy`: as [`deploy`], with the `gossamer` that runs and the `gossamerd` beside it, or
/// those in the directory `programs`; returns the exit status of `command`, a program and its
/// arguments.
///
/// # Errors
/// As [`deploy`], and if a program is missing.
pub fn deploy_installed(
    options: &Options,
    programs: Option<&Path>,
    command: &[String],
) -> Result<u8> {
    let programs = match programs {
        Some(folder) => folder.to_owned(),
        None => env::current_exe()?.parent().context("a program is in a directory")?.to_owned(),
    };
    let programs = Programs::in_folder(&programs)?;
    let (program, arguments) = command.split_first().context("no program to run")?;
    let program = program_in(&env::current_dir()?, program)?;
    let local = match options.local {
        Some(_) => home()?.join(".cache/gossamer/deploy"),
        None => PathBuf::new(),
    };
    deploy(options, &programs, &local, &program, arguments)
}

/// The absolute path of `program`, which is relative to `directory`: `gossamer run` looks in `PATH` for a
/// name without a slash.
fn program_in(directory: &Path, program: &str) -> Result<PathBuf> {
    let path = path::absolute(directory.join(program))?;
    let file = path.metadata().with_context(|| {
        format!("no program {program} on this machine: name a file that exists")
    })?;
    if !file.is_file() || file.permissions().mode() & 0o111 == 0 {
        bail!("{program} is not an executable file");
    }
    Ok(path)
}

fn home() -> Result<PathBuf> {
    env::home_dir().context("no home directory: use --state FOLDER, or set HOME")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn parse(line: &str) -> Result<Options, clap::Error> {
        Cli::try_parse_from(line.split(' ')).map(|cli| cli.options)
    }

    #[test]
    fn hosts_are_named_or_local() {
        assert_eq!(parse("deploy --local 3").unwrap().local, Some(3));
        let options = parse("deploy --hosts rack.toml --state s --threads 2 --dry-run").unwrap();
        assert_eq!((options.threads, options.mode()), (2, Mode::DryRun));
        for wrong in [
            "deploy",
            "deploy --local 0",
            "deploy --local 27",
            "deploy --local 3 --hosts rack.toml",
            "deploy --local 3 --state s",
            "deploy --hosts rack.toml --threads 0",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn missing_programs_are_named() {
        let options = parse("deploy --local 2 --dry-run").unwrap();
        let folder = env::temp_dir().join(format!("deploy-programs-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let failed = |command: &str| {
            let error = deploy_installed(&options, Some(&folder), &[command.to_owned()]);
            error.unwrap_err().to_string()
        };
        let expected = format!("no gossamer in {}", folder.display());
        assert!(failed("/bin/sh").starts_with(&expected), "{}", failed("/bin/sh"));
        for name in ["gossamer", "gossamerd"] {
            fs::write(folder.join(name), "").unwrap();
        }
        assert!(failed("no/such/program").starts_with("no program no/such/program"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_program_is_a_file_of_the_current_directory_and_not_of_path() {
        let folder = env::temp_dir().join(format!("deploy-program-{}", std::process::id()));
        fs::create_dir_all(folder.join("bin")).unwrap();
        let kv = folder.join("kv");
        fs::write(&kv, "").unwrap();
        let failed = |program| format!("{:#}", program_in(&folder, program).unwrap_err());
        assert_eq!(failed("kv"), "kv is not an executable file");
        assert_eq!(failed("bin"), "bin is not an executable file");
        assert!(failed("sh").starts_with("no program sh on this machine"), "{}", failed("sh"));
        fs::set_permissions(&kv, fs::Permissions::from_mode(0o755)).unwrap();
        for program in ["kv", "./kv", kv.to_str().unwrap()] {
            assert_eq!(program_in(&folder, program).unwrap(), kv);
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
