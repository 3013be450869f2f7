//! [`Lists`]: the rows that measurements have written, by program and suite.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

/// The programs of measurements, in the order of the columns.
pub(super) const PROGRAMS: [&str; 3] = ["core", "tcp", "rdma"];

/// A row: a case in one placement, and one comparison of it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Row {
    pub(super) suite: String,
    pub(super) name: String,
    pub(super) placement: String,
    pub(super) unit: String,
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) rounds: usize,
    pub(super) discarded: usize,
    pub(super) peer: Option<String>,
    pub(super) ratio: Option<f64>,
    pub(super) bar: Option<String>,
    pub(super) holds: Option<bool>,
}

/// A suite, with its rows in their order.
pub(super) type Suite = (String, Vec<Row>);

/// All rows, by program.
#[derive(Default)]
pub(super) struct Lists {
    suites: BTreeMap<&'static str, Vec<Suite>>,
    /// Cases that were asked for and are not there, by program and suite.
    missing: RefCell<BTreeMap<(String, String), BTreeSet<String>>>,
    /// Suites that were asked for and are there, by program.
    used: RefCell<BTreeSet<(String, String)>>,
    /// How often something was asked for that is there.
    found: Cell<usize>,
}

impl Lists {
    /// Reads the files of each program, in their order.
    pub(super) fn read(files: [&Vec<PathBuf>; PROGRAMS.len()]) -> Result<Lists> {
        let mut lists = Lists::default();
        for (program, files) in PROGRAMS.into_iter().zip(files) {
            for file in files {
                let name = || file.display().to_string();
                let text = fs::read_to_string(file).with_context(name)?;
                lists.add(program, serde_json::from_str(&text).with_context(name)?);
            }
        }
        Ok(lists)
    }

    /// Adds the rows of a program; they replace those of the same suites.
    pub(super) fn add(&mut self, program: &'static str, rows: Vec<Row>) {
        let suites = self.suites.entry(program).or_default();
        let new: BTreeSet<String> = rows.iter().map(|row| row.suite.clone()).collect();
        suites.retain(|(name, _)| !new.contains(name));
        for row in rows {
            match suites.iter_mut().find(|(name, _)| *name == row.suite) {
                Some((_, rows)) => rows.push(row),
                None => suites.push((row.suite.clone(), vec![row])),
            }
        }
    }

    /// The suites of a program whose names begin with `prefix`.
    pub(super) fn suites(&self, program: &str, prefix: &str) -> Vec<Suite> {
        let suites = self.suites.get(program).into_iter().flatten();
        let suites: Vec<_> = suites.filter(|(name, _)| name.starts_with(prefix)).cloned().collect();
        if suites.is_empty() {
            let suite = (program.to_owned(), format!("{prefix}*"));
            self.missing.borrow_mut().entry(suite).or_default();
        }
        suites.iter().for_each(|(suite, _)| self.is_used(program, suite));
        suites
    }

    /// A case, in the placement that has most samples.
    pub(super) fn find(&self, program: &str, suite: &str, name: &str) -> Option<&Row> {
        let rows = self.suites.get(program).into_iter().flatten();
        let rows = rows.filter(|(other, _)| other == suite).flat_map(|(_, rows)| rows);
        let row = rows.filter(|row| row.name == name).max_by_key(|row| row.rounds);
        match row {
            Some(_) => self.is_used(program, suite),
            None => {
                let suite = (program.to_owned(), suite.to_owned());
                self.missing.borrow_mut().entry(suite).or_default().insert(name.to_owned());
            }
        }
        row
    }

    fn is_used(&self, program: &str, suite: &str) {
        self.used.borrow_mut().insert((program.to_owned(), suite.to_owned()));
        self.found.set(self.found.get() + 1);
    }

    /// How often a figure or suite was asked for and found so far.
    pub(super) fn found(&self) -> usize {
        self.found.get()
    }

    /// What was asked for and not found, and what is there and was not asked for.
    pub(super) fn report(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for program in PROGRAMS {
            let suites = self.suites.get(program).into_iter().flatten();
            let names: Vec<&str> = suites.map(|(name, _)| &**name).collect();
            let missing = self.missing.borrow();
            let missing = || missing.iter().filter(|((of, _), _)| of == program);
            let prefixes = missing().filter_map(|((_, name), _)| name.strip_suffix('*'));
            let prefixes: Vec<&str> = prefixes.collect();
            let (mut absent, mut partial) = (Vec::new(), Vec::new());
            for ((_, suite), cases) in missing() {
                if names.contains(&&**suite) {
                    let cases = cases.iter().cloned().collect::<Vec<_>>().join("; ");
                    partial.push(format!("{program}: {suite} has no figure of: {cases}"));
                } else if suite.ends_with('*') || !prefixes.iter().any(|it| suite.starts_with(it)) {
                    absent.push(suite.clone());
                }
            }
            if !absent.is_empty() {
                let absent = absent.join(", ");
                lines.push(format!("{program}: in no list, so their figures stay: {absent}"));
            }
            lines.extend(partial);
            for name in names {
                if !self.used.borrow().contains(&(program.to_owned(), name.to_owned())) {
                    lines.push(format!("{program}: {name} is in no document"));
                }
            }
        }
        lines
    }
}

impl Row {
    /// Its median in nanoseconds, if it is a time.
    pub(super) fn ns(&self) -> Option<f64> {
        match &*self.unit {
            "ns" => Some(self.median),
            "us" => Some(self.median * 1e3),
            _ => None,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn row(suite: &str, name: &str, median: f64, unit: &str) -> Row {
        Row {
            suite: suite.to_owned(),
            name: name.to_owned(),
            placement: "pinned 0,1 near".to_owned(),
            unit: unit.to_owned(),
            median,
            min: median / 2.0,
            max: median * 2.0,
            rounds: 7,
            discarded: 0,
            peer: None,
            ratio: None,
            bar: None,
            holds: None,
        }
    }

    #[test]
    fn a_later_list_replaces_the_suites_that_it_has() {
        let mut lists = Lists::default();
        lists.add("core", vec![row("a", "one", 1.0, "ns"), row("b", "two", 2.0, "us")]);
        lists.add("core", vec![row("a", "three", 3.0, "ns")]);
        assert!(lists.find("core", "a", "one").is_none());
        assert_eq!(lists.find("core", "b", "two").and_then(Row::ns), Some(2000.0));
        assert_eq!(lists.found(), 1);
        assert_eq!(lists.report(), ["core: a has no figure of: one", "core: a is in no document"]);
        assert_eq!(lists.suites("core", "").len(), 2);
        assert!(lists.suites("tcp", "a").is_empty());
        lists.find("tcp", "ab", "two");
        lists.find("tcp", "b", "two");
        let missing = "tcp: in no list, so their figures stay: a*, b";
        assert_eq!(lists.report(), ["core: a has no figure of: one", missing]);
    }

    #[test]
    fn the_placement_with_most_samples_counts() {
        let mut lists = Lists::default();
        let far = Row { rounds: 2, ..row("a", "one", 9.0, "ns") };
        lists.add("tcp", vec![far, row("a", "one", 1.0, "ns")]);
        assert_eq!(lists.find("tcp", "a", "one").map(|row| row.median), Some(1.0));
    }
}
