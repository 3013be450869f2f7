//! The command lines of `gossamer` and `gossamerd`.

use crate::security::member::{Name, Role};
use clap::{Args, Parser, Subcommand};
use gossamer_job::JobId;
use std::path::PathBuf;

/// Runs programs on the hosts of a rack.
#[derive(Debug, Parser)]
#[command(name = "gossamer", version, propagate_version = true)]
pub(crate) struct Gossamer {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The daemon of a host of a rack: starts processes for whoever has an administrator's certificate.
#[derive(Debug, Parser)]
#[command(name = "gossamerd", version)]
pub(crate) struct Gossamerd {
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a rack, or join one
    #[command(subcommand)]
    Rack(RackCommand),
    /// Run a program on hosts of the rack, as one job
    Run(RunArgs),
    /// List jobs
    Ps {
        #[command(flatten)]
        who: Who,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// End jobs on all their hosts
    Kill {
        #[command(flatten)]
        who: Who,
        /// The jobs, as `ps` lists them
        #[arg(required = true)]
        jobs: Vec<JobId>,
    },
    /// Print what a job has said lately
    Logs {
        #[command(flatten)]
        who: Who,
        /// The job, as `ps` lists it
        job: JobId,
        /// Go on until it ends
        #[arg(short, long)]
        follow: bool,
    },
    /// Show what the hosts of the rack are made of
    Hosts {
        #[command(flatten)]
        who: Who,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what the threads of all jobs do, until q is pressed
    Top {
        #[command(flatten)]
        who: Who,
        /// Once, as a table
        #[arg(long)]
        once: bool,
        /// Once, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a new secret, by which the tasks of a Slurm job know each other:
    /// `export GOSSAMER_SECRET=$(gossamer secret)` before `srun`
    Secret {
        /// Write it to this file with mode 0600 instead, for GOSSAMER_SECRET_FILE; replaces the file
        #[arg(long, value_name = "PATH")]
        file: Option<PathBuf>,
    },
    /// Be the daemon of this host (the same as gossamerd)
    Daemon(DaemonArgs),
    /// Print a script that completes this command in a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of this command
    Man,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RackCommand {
    /// Make a rack: its authority, an administrator, and its first host if one is named
    Init {
        /// What the rack is called
        #[arg(long)]
        name: Name,
        /// Where its authority and these identities are kept: DIR/ca, DIR/admin, DIR/HOST
        #[arg(long)]
        dir: PathBuf,
        /// What the first host is called; without one, all hosts make their own keys and join
        #[arg(long, requires = "address")]
        host: Option<Name>,
        /// Where its daemon will listen
        #[arg(long, value_name = "ADDRESS[:PORT]", requires = "host")]
        address: Option<String>,
    },
    /// Ask to join a rack: make a key here and print the request for it to be signed; with --card,
    /// put the answer beside the key
    Join {
        /// Where the new identity is kept
        #[arg(long, env = "GOSSAMER_IDENTITY", value_name = "DIR")]
        identity: PathBuf,
        /// The signed answer to the request; - is the standard input
        #[arg(long, value_name = "FILE")]
        card: Option<PathBuf>,
    },
    /// Sign the request of a host or person that joins, and print the card for it
    Sign {
        /// Where the rack's authority is kept
        #[arg(long)]
        dir: PathBuf,
        /// What the newcomer is called
        #[arg(long)]
        name: Name,
        /// What it may do
        #[arg(long, value_enum)]
        role: Role,
        /// Where the daemon of a new host will listen
        #[arg(long, value_name = "ADDRESS[:PORT]", required_if_eq("role", "host"))]
        address: Option<String>,
        /// For how many days the certificate is good
        #[arg(long, default_value_t = 365)]
        days: u32,
        /// The request; - is the standard input
        request: PathBuf,
    },
    /// Take back the certificates of a host or person, and write the list of all that are revoked
    Revoke {
        /// Where the rack's authority is kept
        #[arg(long)]
        dir: PathBuf,
        /// Whose certificates
        name: Name,
    },
}

/// As whom to call the daemons.
#[derive(Debug, Args)]
pub(crate) struct Who {
    /// The directory of certificate, key and hosts [default: ~/.config/gossamer]
    #[arg(long, env = "GOSSAMER_IDENTITY", value_name = "DIR")]
    pub(crate) identity: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) who: Who,
    /// The hosts; the program's `main` runs on the first
    #[arg(long, required = true, value_delimiter = ',')]
    pub(crate) hosts: Vec<Name>,
    /// Processes on each host, which share its memory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) processes_per_host: u32,
    /// Threads of each process
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threads: u32,
    /// A variable for the program's environment
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Where the program runs on each host [default: an empty directory, removed afterwards]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Pin threads to cores even where the program has not got them for itself
    #[arg(long)]
    pub(crate) pin: bool,
    /// Memory of each process with all that it starts, in bytes or as 500M or 4G; needs daemons
    /// with cgroups
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) memory: Option<u64>,
    /// Processes and threads of each process with all that it starts; needs daemons with cgroups
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) pids: Option<u64>,
    /// After how many milliseconds of silence hosts count each other as lost
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    pub(crate) loss_bound: u64,
    /// The program, which is sent to the hosts that do not have it, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) program: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DaemonArgs {
    /// The settings
    #[arg(long, value_name = "FILE", default_value = "/etc/gossamer/gossamer.toml")]
    pub(crate) config: PathBuf,
    /// Run as root, and all jobs with it
    #[arg(long)]
    pub(crate) allow_root: bool,
}

/// Bytes, as a number with K, M, G or T behind it for powers of 1024.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("invalid size {text:?}: use a number of bytes, or one with K, M, G or T");
    let units = [("K", 10), ("M", 20), ("G", 30), ("T", 40)];
    let unit = units.into_iter().find_map(|(unit, bits)| Some((text.strip_suffix(unit)?, bits)));
    let (number, bits) = unit.unwrap_or((text, 0));
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << bits).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(format!("{text:?} is not NAME=VALUE")),
    }
}
