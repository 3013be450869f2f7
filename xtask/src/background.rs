//! [`Background`]: a command of xtask that runs beside others, its output in a file. Dropped, it ends
//! with all that it started.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

use crate::step::{Step, itself};
use crate::workspace::Workspace;

/// A command that runs beside others.
pub(crate) struct Background {
    child: Child,
    log: PathBuf,
}

impl Background {
    /// Starts `cargo xtask COMMAND`.
    pub(crate) fn start(workspace: &Workspace, command: &str) -> Result<Self> {
        Self::spawn(Command::new(itself()), workspace, command)
    }

    /// The same with the lowest priority: it takes only processors that would be idle.
    pub(crate) fn start_nice(workspace: &Workspace, command: &str) -> Result<Self> {
        let mut nice = Command::new("nice");
        // Not `itself`, which would be `nice`.
        nice.arg("-n19").arg(std::env::current_exe().context("cannot find xtask itself")?);
        Self::spawn(nice, workspace, command)
    }

    fn spawn(mut program: Command, workspace: &Workspace, command: &str) -> Result<Self> {
        program.arg(command).current_dir(&workspace.root);
        Self::logged(program, workspace.target().join(format!("{command}.log")))
    }

    fn logged(mut program: Command, log: PathBuf) -> Result<Self> {
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        program.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        // A group of its own, to be ended with the programs that it runs.
        let child = program.process_group(0).spawn();
        let child = child.with_context(|| format!("cannot run {program:?}"))?;
        Ok(Self { child, log })
    }

    /// Waits until it ends; returns its exit status and what it has printed.
    pub(crate) fn wait(&mut self) -> Result<(ExitStatus, String)> {
        let log = self.log.display();
        let status = self.child.wait().with_context(|| format!("cannot wait for that of {log}"))?;
        let printed = fs::read(&self.log).with_context(|| format!("cannot read {log}"))?;
        Ok((status, String::from_utf8_lossy(&printed).into_owned()))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // The number of one that has ended may be another's.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let group = format!("-s KILL -- -{}", self.child.id());
            Step::program(Path::new("/"), "kill", &group).works();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Background {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let name = format!("background-{}-{}", std::process::id(), script.len());
        Background::logged(command, std::env::temp_dir().join(name)).unwrap()
    }

    #[test]
    fn both_outputs_and_the_status_are_returned() {
        let mut failing = shell("echo Compiling; echo failed >&2; exit 3");
        let (status, printed) = failing.wait().unwrap();
        assert_eq!((status.code(), printed.as_str()), (Some(3), "Compiling\nfailed\n"));
        fs::remove_file(&failing.log).unwrap();
    }

    #[test]
    fn dropped_it_ends_with_all_that_it_started() {
        let background = shell("sleep 600 & echo $!; exec sleep 601");
        let log = background.log.clone();
        let inner = loop {
            match fs::read_to_string(&log).unwrap().trim().parse::<u32>() {
                Ok(number) => break number,
                Err(_) => std::thread::yield_now(),
            }
        };
        // One that was killed is listed as a zombie until another process removes it.
        let runs = |process: u32| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            stat.contains(") ") && !stat.contains(") Z ")
        };
        assert!(runs(inner));
        drop(background);
        while runs(inner) {
            std::thread::yield_now();
        }
        fs::remove_file(log).unwrap();
    }
}
