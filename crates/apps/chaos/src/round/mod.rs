//! Runs rounds: starts a rack, kills one of its processes as planned, and checks that nothing
//! hangs, nothing is left behind, and every survivor reports the right host as lost.
//!
//! In reading order: [`Runner`] (several rounds), `start` (the processes of one), `starvation` (how
//! long they wait for a processor), `running` (one round), `descriptors` (whether a process keeps
//! another's memory open), `checks` (whether the outcome is correct).

mod checks;
mod descriptors;
mod running;
mod start;
mod starvation;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::{env, fs, io};

use rustix::process::set_child_subreaper;

use crate::round::running::RunningRound;
use crate::{Plan, RoundReport, procfs};

/// Runs rounds and checks that each leaves the system as it was.
pub struct Runner {
    shared_memory: BTreeSet<PathBuf>,
    /// The descriptors that this process was started with.
    descriptors: String,
}

impl Runner {
    /// Makes this process the subreaper, so that orphans of racks become its children.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn new() -> io::Result<Runner> {
        set_child_subreaper(Some(rustix::process::getpid()))?;
        let descriptors: Vec<_> =
            procfs::descriptors("self").into_keys().map(|number| number.to_string()).collect();
        Ok(Runner { shared_memory: procfs::shared_memory()?, descriptors: descriptors.join(",") })
    }

    /// Runs one round.
    ///
    /// # Errors
    /// If this process itself fails to run the round.
    pub fn run(&self, plan: Plan) -> io::Result<RoundReport> {
        let folder = env::temp_dir().join(format!("gossamer-chaos-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let before = procfs::descriptors("self").len();
        let mut round = RunningRound::start(plan, &folder, &self.descriptors)?;
        round.run()?;
        round.check();
        let mut report = round.report;
        let after = procfs::descriptors("self");
        if after.len() != before {
            report.violations.push(format!("descriptors leaked: {after:?}"));
        }
        for left in procfs::unheld_shared_memory(&self.shared_memory)? {
            report.violations.push(format!("{} is left behind", left.display()));
        }
        for left in fs::read_dir(&folder)? {
            report.violations.push(format!("{} is left behind", left?.path().display()));
        }
        fs::remove_dir_all(&folder)?;
        Ok(report)
    }
}
