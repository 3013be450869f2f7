//! A session: suites from their first round to the last line of the report, as every program of
//! measurements runs them.

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::harness::{Harness, Suite};
use crate::measure::cores::Cores;
use crate::report::{Row, absences, failures, raw, rows, table};

/// How suites are run and where what comes of them goes.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    /// Where to measure.
    pub cores: Cores,
    /// Interleaved rounds over all candidates of a suite.
    pub rounds: usize,
    /// Whether every sample that counts is printed as well.
    pub raw: bool,
    /// Where every row is written to, as one JSON list.
    pub json: Option<&'a Path>,
}

impl Session<'_> {
    /// Runs the suites, printing tables; whether everything that this machine has the programs for
    /// came to a figure.
    ///
    /// # Errors
    /// When nothing was measured, or the list cannot be written.
    pub fn run(&self, suites: &mut [Suite]) -> Result<bool, Box<dyn Error>> {
        let mut all: Vec<Row> = Vec::new();
        let mut complete = true;
        for suite in suites {
            let (name, rounds) = (suite.name.clone(), self.rounds);
            let mut harness = Harness::new(self.cores, rounds);
            harness.progress = Box::new(move |round, case| {
                eprint!("\r\x1b[2K{name} {}/{rounds}: {case}", round + 1);
            });
            let outcomes = harness.run(suite);
            eprint!("\r\x1b[2K");
            let new = rows(suite, &outcomes, self.cores);
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
        if let Some(file) = self.json {
            fs::write(file, serde_json::to_string_pretty(&all)?)
                .map_err(|e| format!("cannot write {}: {e}", file.display()))?;
        }
        Ok(complete)
    }
}

/// What is left of `suites` when only cases count whose "suite/case" contains `part`.
///
/// # Errors
/// When nothing is left.
pub fn narrowed(mut suites: Vec<Suite>, part: Option<&str>) -> Result<Vec<Suite>, Box<dyn Error>> {
    if let Some(part) = part {
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
