//! A session: suites from their first round to the last line of the report, as every program of
//! measurements runs them.

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::harness::{Harness, Suite};
use crate::measure::cores::Cores;
use crate::report::{Row, absences, failures, raw, rows, table};

/// What every program of measurements can be told.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Interleaved rounds over all candidates of a suite; published figures take at least 7.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Write every row to this file, as one JSON list.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Measure only cases whose "suite/case" contains this.
    #[arg(long, value_name = "SUBSTR")]
    pub filter: Option<String>,
    /// Print every sample that counts as well, tab-separated.
    #[arg(long)]
    pub raw: bool,
    /// Print the names of suites and cases, and measure nothing.
    #[arg(long)]
    pub list: bool,
}

impl Options {
    /// What is left of `suites` with the cases that are asked for.
    ///
    /// # Errors
    /// When nothing is left.
    pub fn narrowed(&self, mut suites: Vec<Suite>) -> Result<Vec<Suite>, Box<dyn Error>> {
        if let Some(part) = &self.filter {
            for suite in &mut suites {
                let name = suite.name.clone();
                suite.cases.retain(|case| format!("{name}/{}", case.name()).contains(part));
            }
        }
        suites.retain(|suite| !suite.cases.is_empty());
        if suites.is_empty() {
            return Err("no case has this suite and name; --list shows all".into());
        }
        Ok(suites)
    }

    /// Runs the suites on these cores, printing tables; whether everything that this machine has the
    /// programs for came to a figure.
    ///
    /// # Errors
    /// When nothing was measured, or the list cannot be written.
    pub fn run(&self, cores: Cores, suites: &mut [Suite]) -> Result<bool, Box<dyn Error>> {
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
        Ok(complete)
    }
}

/// The exit status of a program of measurements: whether everything came to a figure. An error is
/// printed.
pub fn ended(program: &str, result: Result<bool, Box<dyn Error>>) -> ExitCode {
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
