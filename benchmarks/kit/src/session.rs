//! Command line and main loop of the benchmark programs: runs suites and prints the report.

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::harness::{Harness, Suite};
use crate::measure::cores::Cores;
use crate::report::{Row, absences, failures, raw, rows, table};

/// What is measured: the cores, and the suites with the selected cases.
pub type Selection = (Cores, Vec<Suite>);

/// The options of all benchmark programs.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Number of interleaved rounds over all candidates of a suite; published figures use at least
    /// 7.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Write all rows to FILE as a JSON list.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Measure only cases whose "suite/case" contains SUBSTR.
    #[arg(long, value_name = "SUBSTR")]
    pub filter: Option<String>,
    /// Also print every valid sample, tab-separated.
    #[arg(long)]
    pub raw: bool,
    /// List suites and cases without measuring.
    #[arg(long)]
    pub list: bool,
}

impl Options {
    /// The suites with the selected cases.
    ///
    /// # Errors
    /// If no case is selected.
    pub fn filtered(&self, mut suites: Vec<Suite>) -> Result<Vec<Suite>, Box<dyn Error>> {
        if let Some(part) = &self.filter {
            for suite in &mut suites {
                let name = suite.name.clone();
                suite.cases.retain(|case| format!("{name}/{}", case.name()).contains(part));
            }
        }
        suites.retain(|suite| !suite.cases.is_empty());
        if suites.is_empty() {
            return Err("no case matches --suite and --filter (see --list)".into());
        }
        Ok(suites)
    }

    /// The cores of this process, and the suites with the selected cases, after `header` is printed.
    /// `None` if the cases are only to be listed: then they are.
    ///
    /// # Errors
    /// If no case is selected, or the cores are unknown.
    pub fn begin(
        &self,
        suites: Vec<Suite>,
        header: impl FnOnce(Cores) -> String,
    ) -> Result<Option<Selection>, Box<dyn Error>> {
        let suites = self.filtered(suites)?;
        if self.list {
            print!("{}", list(&suites));
            return Ok(None);
        }
        let cores = Cores::of_this_process()?;
        println!("{}", header(cores));
        Ok(Some((cores, suites)))
    }

    /// Runs the suites on these cores and prints tables; returns whether every case whose program
    /// is on this machine was measured.
    ///
    /// # Errors
    /// If nothing was measured, or the list cannot be written.
    pub fn run(&self, cores: Cores, suites: &mut [Suite]) -> Result<bool, Box<dyn Error>> {
        self.measure(cores, suites).map(|(_, is_complete)| is_complete)
    }

    /// As [`run`](Self::run); also returns the rows.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn measure(
        &self,
        cores: Cores,
        suites: &mut [Suite],
    ) -> Result<(Vec<Row>, bool), Box<dyn Error>> {
        let mut all: Vec<Row> = Vec::new();
        let mut complete = true;
        for suite in suites {
            let (name, rounds) = (suite.name.clone(), usize::from(self.rounds));
            let mut harness = Harness::new(cores, rounds);
            harness.progress = Box::new(move |round, case| {
                eprint!("\r\x1b[2K{name} {}/{rounds}: {case}", round + 1);
            });
            let outcomes = harness.run(suite);
            eprint!("\r\x1b[2K");
            let new = rows(suite, &outcomes, cores);
            println!("{}", table(suite, &new));
            if self.raw {
                println!("{}", raw(suite, &outcomes));
            }
            absences(suite, &outcomes).iter().for_each(|line| println!("{line}"));
            for line in failures(suite, &outcomes) {
                complete = false;
                println!("{line}");
            }
            all.extend(new);
        }
        if all.is_empty() {
            return Err("nothing was measured".into());
        }
        if let Some(file) = &self.json {
            fs::write(file, serde_json::to_string_pretty(&all)?)
                .map_err(|e| format!("cannot write {}: {e}", file.display()))?;
        }
        Ok((all, complete))
    }
}

/// Prints the error, if any, and returns the exit status: success if every case was measured.
pub fn exit_code(program: &str, result: Result<bool, Box<dyn Error>>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("{program}: {e}");
            ExitCode::from(2)
        }
    }
}

/// The cases as "suite/case", one a line.
pub fn list(suites: &[Suite]) -> String {
    let mut text = String::new();
    for suite in suites {
        for case in &suite.cases {
            let _ = writeln!(text, "{}/{}", suite.name, case.name());
        }
    }
    text
}
