//! [`Mode`]: whether a deployment runs its commands or prints them, and what it prints. A deployment
//! goes on if its output is closed.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};

use crate::action::{Action, path};
use crate::interrupt::Interrupt;

/// Whether commands are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Commands are run.
    Run,
    /// Commands are printed, and no file is written.
    DryRun,
}

impl Mode {
    /// Runs a command and returns its output, or prints it.
    pub(crate) fn act(self, action: &Action, interrupt: &Interrupt) -> Result<String> {
        match self {
            Mode::Run => action.run(interrupt),
            Mode::DryRun => {
                print(&action.shown());
                Ok(String::new())
            }
        }
    }

    /// Writes a file, or prints the command that would.
    pub(crate) fn write(self, file: &Path, text: &str) -> Result<()> {
        match self {
            Mode::Run => fs::write(file, text).with_context(|| path(file)),
            Mode::DryRun => {
                print(&format!("cat >{} <<END\n{text}END", path(file)));
                Ok(())
            }
        }
    }

    /// Prints the next step; in a dry run as a comment between the commands.
    pub(crate) fn step(self, what: &str) {
        match self {
            Mode::Run => self.status(what),
            Mode::DryRun => print(&format!("\n# {what}")),
        }
    }

    /// Prints what was found, which a dry run does not know.
    pub(crate) fn status(self, what: &str) {
        if self == Mode::Run {
            let _ = writeln!(io::stderr(), "deploy: {what}");
        }
    }
}

/// Prints a command of a dry run.
pub(crate) fn print(command: &str) {
    let _ = writeln!(io::stdout(), "{command}");
}
