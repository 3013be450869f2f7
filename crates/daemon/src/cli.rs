//! The command lines of `gossamer` and `gossamerd`.

use crate::{
    authority::{self, Authority, AuthorityError, Card},
    commands,
    config::{Config, ConfigError},
    controller::{call::CallError, run::RunError, verdict::NO_JOB},
    daemon::{self, DaemonError},
    files,
    identity::{IdentityError, Name, Role},
    keeper, visible,
};
use clap::{Args, CommandFactory, Parser, Subcommand};
use gossamer::job::JobId;
use std::{
    env,
    ffi::OsString,
    fmt, fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};
use thiserror::Error;
use tracing_subscriber::EnvFilter;

/// Runs programs on the hosts of a rack.
#[derive(Debug, Parser)]
#[command(name = "gossamer", version, propagate_version = true)]
struct Gossamer {
    #[command(subcommand)]
    command: Command,
}

/// The daemon of a host of a rack: starts processes for whoever has an administrator's certificate.
#[derive(Debug, Parser)]
#[command(name = "gossamerd", version)]
struct Gossamerd {
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
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
    /// Install gossamer and gossamerd on the machines of a rack over ssh, and run a program there
    Deploy(DeployArgs),
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
enum RackCommand {
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
struct DeployArgs {
    #[command(flatten)]
    options: gossamer_deploy::Options,
    /// Directory of the gossamer and gossamerd to install [default: that of this command]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// The program, a file of this machine, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<String>,
}

#[derive(Debug, Args)]
struct DaemonArgs {
    /// The settings
    #[arg(long, value_name = "FILE", default_value = "/etc/gossamer/gossamer.toml")]
    config: PathBuf,
    /// Run as root, and all jobs with it
    #[arg(long)]
    allow_root: bool,
}

/// Bytes, as a number with K, M, G or T behind it for powers of 1024.
fn bytes(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("invalid size {text:?}: use a number of bytes, or one with K, M, G or T");
    let units = [("K", 10), ("M", 20), ("G", 30), ("T", 40)];
    let unit = units.into_iter().find_map(|(unit, bits)| Some((text.strip_suffix(unit)?, bits)));
    let (number, bits) = unit.unwrap_or((text, 0));
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << bits).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(format!("{text:?} is not NAME=VALUE")),
    }
}

/// Why a command failed.
#[derive(Debug, Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("cannot read the configuration: {0} (--config names its file)")]
    Unread(ConfigError),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0:#}")]
    Deploy(gossamer_deploy::Error),
    #[error("{0}")]
    Other(String),
}

/// The `gossamer` command.
pub fn gossamer() -> ExitCode {
    if let Some(code) = hidden_command() {
        return code;
    }
    finish("gossamer", execute(Gossamer::parse().command))
}

/// The `gossamerd` command.
pub fn gossamerd() -> ExitCode {
    if let Some(code) = hidden_command() {
        return code;
    }
    finish("gossamerd", run_daemon(&Gossamerd::parse().daemon))
}

fn finish(program: &str, result: Result<u8, CommandError>) -> ExitCode {
    match result {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            complain_as(program, &error);
            ExitCode::from(NO_JOB)
        }
    }
}

/// The commands by which a daemon starts itself in another part, which are for nobody else.
fn hidden_command() -> Option<ExitCode> {
    let words: Vec<OsString> = env::args_os().collect();
    match words.get(1)?.to_str() {
        Some(keeper::KEEPER) if words.len() == 2 => Some(keeper::keep()),
        Some(keeper::STEP) => {
            let [_, _, parent, cgroup, name, arguments @ ..] = &words[..] else { return None };
            let parent = parent.to_str()?.parse().ok()?;
            Some(keeper::step(parent, Path::new(cgroup), name, arguments))
        }
        _ => None,
    }
}

fn execute(command: Command) -> Result<u8, CommandError> {
    match command {
        Command::Rack(command) => rack(command)?,
        Command::Run(args) => return on_runtime(commands::run_job(args)),
        Command::Ps { who, json } => return on_runtime(commands::ps(who, json)),
        Command::Kill { who, jobs } => return on_runtime(commands::kill(who, jobs)),
        Command::Logs { who, job, follow } => return on_runtime(commands::logs(who, job, follow)),
        Command::Hosts { who, json } => return on_runtime(commands::hosts(who, json)),
        Command::Top { who, once, json } => return on_runtime(commands::top(who, once, json)),
        Command::Secret { file } => {
            let secret = format!("{}\n", files::random_secret()?.to_hex());
            match file {
                Some(path) => files::write(&path, secret.as_bytes(), 0o600)
                    .map_err(|error| CommandError::File { path, error })?,
                None => print(secret.as_bytes())?,
            }
        }
        Command::Deploy(args) => return deploy(&args),
        Command::Daemon(args) => return run_daemon(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Gossamer::command(), "gossamer", &mut script);
            print(&script)?;
        }
        Command::Man => {
            let mut page = Vec::new();
            manual(&Gossamer::command(), &mut page)?;
            print(&page)?;
        }
    }
    Ok(0)
}

/// The manual of a command, and of those inside it, as one page.
fn manual(command: &clap::Command, page: &mut Vec<u8>) -> io::Result<()> {
    clap_mangen::Man::new(command.clone()).render(page)?;
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        let name = format!("{} {}", command.get_name(), inner.get_name());
        writeln!(page, ".SH \"{}\"", name.to_uppercase())?;
        let man = clap_mangen::Man::new(inner.clone().bin_name(&name));
        man.render_description_section(page)?;
        man.render_synopsis_section(page)?;
        man.render_options_section(page)?;
        for deeper in inner.get_subcommands() {
            let name = format!("{name} {}", deeper.get_name());
            let man = clap_mangen::Man::new(deeper.clone().bin_name(name));
            man.render_description_section(page)?;
            man.render_synopsis_section(page)?;
            man.render_options_section(page)?;
        }
    }
    Ok(())
}

/// Runs `command`, and does not wait for what still waits for a terminal.
fn on_runtime(command: impl Future<Output = Result<u8, CommandError>>) -> Result<u8, CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(command);
    runtime.shutdown_background();
    result
}

fn deploy(args: &DeployArgs) -> Result<u8, CommandError> {
    let DeployArgs { options, programs, program } = args;
    gossamer_deploy::deploy_installed(options, programs.as_deref(), program)
        .map_err(CommandError::Deploy)
}

fn run_daemon(args: &DaemonArgs) -> Result<u8, CommandError> {
    if rustix::process::geteuid().is_root() && !args.allow_root {
        let text = "the daemon does not run as root, because every job would: start it as its own \
                    user (see dist/gossamerd.service), or with --allow-root";
        return Err(CommandError::Other(text.into()));
    }
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let is_terminal = io::IsTerminal::is_terminal(&io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(is_terminal)
        .init();
    let config = Config::load(&args.config).map_err(|error| match error {
        ConfigError::Read { .. } => CommandError::Unread(error),
        error => error.into(),
    })?;
    on_runtime(async {
        daemon::run(config).await?;
        Ok(0)
    })
}

/// Writes an error to standard error, escaped for a terminal: it may quote other hosts, files and
/// programs. If it cannot be written, the exit status still reports the failure.
pub(crate) fn complain(what: &impl fmt::Display) {
    complain_as("gossamer", what);
}

fn complain_as(program: &str, what: &impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{program}: {}", visible::text(&what.to_string()));
}

pub(crate) fn print(bytes: &[u8]) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    Ok(out.write_all(bytes).and_then(|()| out.flush())?)
}

fn read(path: &Path) -> Result<String, CommandError> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().read_to_string(&mut text).map(drop)
    } else {
        fs::read_to_string(path).map(|content| text = content)
    };
    read.map_err(|error| CommandError::File { path: path.to_owned(), error })?;
    Ok(text)
}

fn rack(command: RackCommand) -> Result<(), CommandError> {
    match command {
        RackCommand::Init { name, dir, host, address } => {
            let first = host.as_ref().zip(address.as_deref());
            authority::init_rack(&dir, &name, first)?;
            let dir = dir.display();
            let mut text = format!(
                "The rack {name} is made. Its authority, which signs whoever joins, is {dir}/ca: \
                 keep it safe.\n{dir}/admin is yours: name it with `gossamer ps --identity {dir}/admin` \
                 and the like, or in GOSSAMER_IDENTITY.\n"
            );
            if let Some(host) = host {
                text += &format!(
                    "{dir}/{host} is the identity of {host}'s daemon, to be moved there.\n"
                );
            }
            print(text.as_bytes())
        }
        RackCommand::Join { identity, card: None } => {
            print(authority::request(&identity)?.as_bytes())
        }
        RackCommand::Join { identity, card: Some(card) } => {
            let text = read(&card)?;
            let card: Card = toml::from_str(&text)
                .map_err(|error| AuthorityError::Card(error.message().to_owned()))?;
            let member = authority::accept(&identity, &card)?;
            let text =
                format!("{} is now a {} of the rack {}\n", member.name, member.role, member.rack);
            print(text.as_bytes())
        }
        RackCommand::Sign { dir, name, role, address, days, request } => {
            // Which may take its time, and others wait for the authority.
            let text = read(&request)?;
            let authority = Authority::open(&dir)?;
            let card = authority.sign(&text, &name, role, authority::good_for(days))?;
            if let Some(address) = address.filter(|_| role == Role::Host)
                && let Some(before) = authority.note_host(&name, &address)?
            {
                complain(&format!(
                    "{name} was at {before}: members with an older card still call it there"
                ));
            }
            let text = toml::to_string(&card)
                .map_err(|error| CommandError::Other(format!("cannot write the card: {error}")))?;
            print(text.as_bytes())
        }
        RackCommand::Revoke { dir, name } => {
            let (list, count) = Authority::open(&dir)?.revoke(&name)?;
            let text = format!(
                "{count} of the certificates of {name} are revoked. Put {} into the identity of \
                 every daemon, and of whoever calls them: it counts from the next connection on. \
                 Jobs that {name} has started go on; `gossamer kill` ends them.\n",
                list.display()
            );
            print(text.as_bytes())
        }
    }
}
