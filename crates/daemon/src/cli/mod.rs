//! The commands `gossamer` and `gossamerd`.

mod args;
mod commands;
mod jam;
mod output;
mod rack;
mod selection;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tracing_subscriber::EnvFilter;

use crate::causes::with_causes;
use crate::cli::args::{Command, DaemonArgs, DeployArgs, Gossamer, Gossamerd};
use crate::cli::jam::jam;
use crate::cli::output::{CommandError, complain_as, print};
use crate::cli::rack::rack;
use crate::controller::verdict::NO_JOB;
use crate::files;
use crate::host::config::{Config, ConfigError};
use crate::host::run;
use crate::process::supervisor;

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
            complain_as(program, &with_causes(&error));
            ExitCode::from(NO_JOB)
        }
    }
}

/// The internal commands with which a daemon starts its supervisors and their programs.
fn hidden_command() -> Option<ExitCode> {
    let words: Vec<OsString> = env::args_os().collect();
    match words.get(1)?.to_str() {
        Some(supervisor::SUPERVISOR) if words.len() == 2 => Some(supervisor::run()),
        Some(supervisor::STEP) => {
            let [_, _, parent, cgroup, name, arguments @ ..] = &words[..] else { return None };
            let parent = parent.to_str()?.parse().ok()?;
            Some(supervisor::step(parent, Path::new(cgroup), name, arguments))
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
        Command::Jam(command) => return jam(command),
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

/// Runs `command`, and does not wait for threads that still read a terminal.
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
        let text = "refusing to run as root, because every job would run as root too: start the daemon \
                    as its own user (see dist/gossamerd.service), or pass --allow-root";
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
        error => CommandError::Misconfigured { path: args.config.clone(), error },
    })?;
    on_runtime(async {
        run::run(config).await?;
        Ok(0)
    })
}
