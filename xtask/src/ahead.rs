//! `cargo xtask ahead`: builds what gates need that build in folders of their own, where no other
//! gate waits for a lock of cargo. `ci` starts it beside its first gates, [`Ahead`]: a test that
//! waits, the last crate of a build and a linker leave processors idle. It runs with the lowest
//! priority, so that it takes only those.
//!
//! It checks nothing: each gate builds again, and finds it done. So a failure here costs time only,
//! and is found, and shown, by the gate.

use std::fs::File;
use std::os::unix::process::{CommandExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use anyhow::{Context, Result, ensure};

use crate::step::Step;
use crate::times::{HEADING, Times};
use crate::workspace::Workspace;
use crate::{checks, fuzz};

/// One thing to build.
type Build = fn(&Workspace) -> Result<()>;

/// What is built, in the order of the gates that need it.
const BUILDS: [(&str, Build); 5] = [
    ("tests with the switch of other processors, and on a nightly compiler", checks::build_others),
    ("loom models", checks::build_loom),
    ("hot path", checks::build_hotpath),
    ("fuzz targets", |workspace| fuzz::build(workspace).map(drop)),
    ("programs", Workspace::build_programs),
];

/// `cargo xtask ahead`. It goes on after a failure, and ends early if what started it has ended.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut times = Times::new();
    let mut failed = Vec::new();
    let parent = parent_id();
    for (name, build) in BUILDS {
        ensure!(parent_id() == parent, "what started this has ended: nothing more is built ahead");
        if let Err(error) = times.of(format!("ahead: {name}"), || build(workspace)) {
            eprintln!("ahead: {name}: {error:#}");
            failed.push(name);
        }
    }
    println!("{times}");
    ensure!(failed.is_empty(), "not built ahead: {}", failed.join("; "));
    Ok(())
}

/// A process that builds ahead. Dropped, it ends with all that it started.
pub(crate) struct Ahead {
    child: Child,
    /// Its output.
    log: PathBuf,
}

impl Ahead {
    /// Starts building.
    pub(crate) fn start(workspace: &Workspace) -> Result<Self> {
        let program = env::current_exe().context("cannot find xtask itself")?;
        let mut command = Command::new("nice");
        command.arg("-n19").arg(program).arg("ahead").current_dir(&workspace.root);
        Self::spawn(command, workspace.target().join("ahead.log"))
    }

    fn spawn(mut command: Command, log: PathBuf) -> Result<Self> {
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        // A group of its own, to be ended with the compilers that it runs.
        let child = command.process_group(0).spawn().context("cannot run nice")?;
        Ok(Self { child, log })
    }

    /// Waits until everything is built; returns the times of the parts, and what failed.
    pub(crate) fn wait(&mut self) -> Result<String> {
        self.child.wait().context("cannot wait for what is built ahead")?;
        let printed = fs::read_to_string(&self.log);
        let printed = printed.with_context(|| format!("cannot read {}", self.log.display()))?;
        let table = printed.rfind(HEADING).map_or("", |start| &printed[start..]);
        Ok(table.to_owned())
    }
}

impl Drop for Ahead {
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

    fn shell(script: &str) -> Ahead {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let log = env::temp_dir().join(format!("ahead-{}-{}", std::process::id(), script.len()));
        Ahead::spawn(command, log).unwrap()
    }

    #[test]
    fn the_times_are_returned_and_what_failed() {
        let mut ahead = shell(&format!("echo Compiling; echo '{HEADING}'; echo failed >&2"));
        assert_eq!(ahead.wait().unwrap(), format!("{HEADING}\nfailed\n"));
        fs::remove_file(&ahead.log).unwrap();
    }

    #[test]
    fn dropped_it_ends_with_all_that_it_started() {
        let ahead = shell("sleep 600 & echo $!; exec sleep 601");
        let log = ahead.log.clone();
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
        drop(ahead);
        while runs(inner) {
            std::thread::yield_now();
        }
        fs::remove_file(log).unwrap();
    }
}
