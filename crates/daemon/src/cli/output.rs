//! The output of commands, and their errors.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use thiserror::Error;

use crate::controller::call::CallError;
use crate::controller::run::RunError;
use crate::escape;
use crate::host::config::ConfigError;
use crate::host::run::DaemonError;
use crate::security::authority::AuthorityError;
use crate::security::member::IdentityError;

/// Why a command failed.
#[derive(Debug, Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error("cannot load the configuration (set its path with --config)")]
    Unread(#[source] ConfigError),
    #[error("invalid configuration {}", path.display())]
    Misconfigured {
        path: PathBuf,
        #[source]
        error: ConfigError,
    },
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("cannot access {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0:#}")]
    Deploy(gossamer_deploy::Error),
    #[error("{0}")]
    Other(String),
}

/// Writes an error to standard error, escaped for a terminal: it may quote other hosts, files and
/// programs. If it cannot be written, the exit status still reports the failure.
pub(crate) fn complain(what: &impl fmt::Display) {
    complain_as("gossamer", what);
}

pub(crate) fn complain_as(program: &str, what: &impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{program}: {}", escape::text(&what.to_string()));
}

pub(crate) fn print(bytes: &[u8]) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    Ok(out.write_all(bytes).and_then(|()| out.flush())?)
}

pub(crate) fn read(path: &Path) -> Result<String, CommandError> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().read_to_string(&mut text).map(drop)
    } else {
        fs::read_to_string(path).map(|content| text = content)
    };
    read.map_err(|error| CommandError::File { path: path.to_owned(), error })?;
    Ok(text)
}
