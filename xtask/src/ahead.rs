//! Builds for later gates, made by `cargo xtask ci` while earlier gates run. Many tests wait for
//! timeouts, other processes or emulated hosts; this uses the processors meanwhile. It runs at a low
//! priority: gates that compute go first, and one that waits for its lock does not wait for long.
//!
//! Each build is that of its gate, in the same folder. The gate runs it again, finds it done (or
//! waits for cargo's lock until it is), and reports what is wrong with it; nothing is reported here.

use std::os::unix::process::CommandExt;
use std::process::{self, Child, Command, Stdio};
use std::{env, io, thread};

use anyhow::{Context, Result};

use crate::step::Step;
use crate::workspace::Workspace;
use crate::{checks, fuzz, rdma_test};

/// The process that builds, and all that it started: they end when this is dropped, or when the
/// process that has it ends in any way.
pub(crate) struct Ahead {
    /// It ends itself at the end of its standard input.
    process: Child,
}

impl Ahead {
    /// Starts it.
    pub(crate) fn start(workspace: &Workspace) -> Result<Self> {
        let mut command = Command::new("nice");
        command.args(["-n", "10"]).arg(env::current_exe()?).arg("build-ahead");
        command.current_dir(&workspace.root).stdout(Stdio::null()).stderr(Stdio::null());
        Self::of(&mut command).context("cannot run nice")
    }

    fn of(command: &mut Command) -> io::Result<Self> {
        // A group of its own, which it ends.
        Ok(Self { process: command.stdin(Stdio::piped()).process_group(0).spawn()? })
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // How it ended matters to no gate.
        let _ = self.process.wait();
    }
}

/// Ends the process group of this process at the end of its standard input.
fn end_with_input() {
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        Step::program("/".as_ref(), "kill", &format!("-s KILL -- -{}", process::id())).works()
    });
}

/// `cargo xtask build-ahead`: all builds, in the order of the gates. The last one shares its folder
/// with the tests, which have built in it by then.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    end_with_input();
    let builds: [fn(&Workspace) -> Result<()>; 5] = [
        checks::build_loom,
        checks::build_hotpath,
        fuzz::build,
        Workspace::build_programs,
        rdma_test::build_tests,
    ];
    // Each for itself: a gate that fails for want of a tool says so.
    let results: Vec<_> = builds.into_iter().map(|build| build(workspace)).collect();
    results.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};

    use super::*;

    #[test]
    fn all_of_its_processes_end_with_it() {
        let helper = "ahead::tests::starts_a_process_that_stays";
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture", helper]).stdout(Stdio::piped());
        let mut ahead = Ahead::of(&mut command).unwrap();
        let mut printed = BufReader::new(ahead.process.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("started") {
            line.clear();
            assert!(printed.read_line(&mut line).unwrap() > 0, "the helper ended early");
        }
        drop(ahead);
        // It ends when the last process that has it open does.
        printed.read_to_string(&mut line).unwrap();
    }

    #[test]
    #[ignore = "a process of the test above: cargo test -p xtask all_of_its_processes"]
    fn starts_a_process_that_stays() {
        end_with_input();
        let mut stays =
            Command::new("sh").args(["-c", "echo started; exec sleep 600"]).spawn().unwrap();
        stays.wait().unwrap();
    }
}
