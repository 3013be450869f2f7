//! An earlier program for the same task, built from a folder and run beside ours.
//!
//! The prototype is a single crate with a program that takes `FILTER ROUNDS LIMIT_S` and prints a
//! table with one column for near cores and one for far ones. It is copied to a scratch folder,
//! built there, and started once per sample, so that it shares our rounds and our machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::{fs, io};

use bench_kit::harness::{Case, Unit};
use bench_kit::measure::cores::on_core;
use bench_kit::measure::cycles;
use bench_kit::measure::latency::Class;
use bench_kit::measure::sampling::{CaseError, Reading, Sampler};
use tempfile::TempDir;

/// A built prototype; its folder is removed with it.
#[derive(Debug)]
pub(crate) struct Prototype {
    program: PathBuf,
    _scratch: TempDir,
}

impl Prototype {
    /// Copies the crate in `folder` and builds it in release mode.
    ///
    /// # Errors
    /// Returns an error if the folder is not a crate or does not build; the message ends with
    /// cargo's.
    pub(crate) fn build(folder: &Path) -> io::Result<Prototype> {
        let scratch = TempDir::with_prefix("core-bench-prototype-")?;
        copy(folder, scratch.path())
            .and_then(|()| stand_alone(&scratch.path().join("Cargo.toml")))
            .map_err(|e| io::Error::other(format!("cannot copy {}: {e}", folder.display())))?;
        let built = Command::new("cargo")
            .args(["build", "--release", "--target-dir", "target"])
            .current_dir(scratch.path())
            .env_remove("CARGO_TARGET_DIR")
            .output()?;
        if !built.status.success() {
            let said = String::from_utf8_lossy(&built.stderr);
            let folder = folder.display();
            return Err(io::Error::other(format!("{folder} does not build:\n{said}")));
        }
        let program = only_program(&scratch.path().join("target/release"))?;
        Ok(Prototype { program, _scratch: scratch })
    }

    /// Runs the cases that `filter` selects once and returns the figure of `row`.
    fn sample(&self, filter: &str, row: &str) -> Result<Reading, CaseError> {
        const LIMIT_S: &str = "10";
        let output = Command::new(&self.program).args([filter, "1", LIMIT_S]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let figures = parse(&text, row).ok_or_else(|| {
            CaseError::Failed(format!("the prototype printed no row `{row}`:\n{text}"))
        })?;
        let near = figures[0].map(|value| (value, Class::Near));
        let (value, class) =
            near.or(figures[1].map(|value| (value, Class::Far))).ok_or_else(|| {
                CaseError::Disturbed(format!(
                    "the prototype discarded its runs of `{row}` as disturbed"
                ))
            })?;
        Ok(Reading { class: Some(class), ..Reading::of(value) })
    }
}

/// The cases of the suite `counter`.
pub(crate) fn counter(prototype: &Rc<Prototype>) -> Vec<Case> {
    let row = |name, filter, row| case(prototype, name, filter, row);
    vec![
        row(
            "prototype/async, 64 outstanding",
            "2x31 pfreap",
            "best/async best: 64 outstanding, 2x31 pfreap",
        ),
        row(
            "prototype/64 fibers",
            "best/dedicated trustee",
            "best/dedicated trustee, 64 fibers 2x42",
        ),
        row(
            "prototype/1 fiber",
            "1 fiber (sync latency)",
            "best/dedicated trustee, 1 fiber (sync latency)",
        ),
    ]
}

/// The cases of the suite `symmetric`.
pub(crate) fn symmetric(prototype: &Rc<Prototype>) -> Vec<Case> {
    let row = |name, filter, row| case(prototype, name, filter, row);
    vec![
        row(
            "prototype/two counters, half own",
            "50% own inline 64 fibers 2x42",
            "best/symmetric, 2 counters, 50% own inline 64 fibers 2x42",
        ),
        row(
            "prototype/two counters, all remote",
            "100% remote 64 fibers 2x42",
            "best/symmetric, 2 counters, 100% remote 64 fibers 2x42",
        ),
        row(
            "prototype/one counter, owner inline",
            "owner inline (total) 64 fibers 2x42",
            "best/symmetric, 1 counter, owner inline (total) 64 fibers 2x42",
        ),
    ]
}

/// A request of one of 64 fibers on a thread that is its own trustee: software alone, in cycles.
pub(crate) fn one_thread(prototype: &Rc<Prototype>) -> Case {
    let prototype = prototype.clone();
    Case::new("prototype/64 fibers, all", Unit::Cycles, move |sampler: &Sampler| {
        let filter = "self/64 fibers 1 buf x 64 pf";
        let mops = prototype.sample(filter, filter)?.value;
        // It also runs on the first core, and does not report a frequency.
        let cycles_per_ns = Some(on_core(sampler.cores.first, cycles::per_ns)?);
        Ok(Reading { cycles_per_ns, ..Reading::of(1e3 / mops) })
    })
}

/// `filter` must not contain a comma: the prototype separates filters by commas.
fn case(
    prototype: &Rc<Prototype>,
    name: &'static str,
    filter: &'static str,
    row: &'static str,
) -> Case {
    let prototype = prototype.clone();
    Case::new(name, Unit::Mops, move |_: &Sampler| prototype.sample(filter, row))
}

/// The figures of `row` for near and far cores.
fn parse(table: &str, row: &str) -> Option<[Option<f64>; 2]> {
    let cells = table.lines().find_map(|line| {
        let rest = line.strip_prefix(row)?;
        rest.starts_with("  ").then_some(rest)
    })?;
    let mut figures = Vec::new();
    let mut words = cells.split_whitespace();
    while let Some(word) = words.next() {
        figures.push(word.parse().ok());
        // The unit, the spread and, last, the count of a measured cell follow its value.
        if word != "-" {
            words.by_ref().find(|word| word.starts_with("n="))?;
        }
    }
    figures.try_into().ok()
}

/// Copies sources: neither build output nor version control.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        if kind.is_dir() && name != "target" && name != ".git" {
            fs::create_dir(to.join(&name))?;
            copy(&entry.path(), &to.join(&name))?;
        } else if kind.is_file() {
            fs::copy(entry.path(), to.join(&name))?;
        }
    }
    Ok(())
}

/// Makes the crate of this manifest a workspace of its own, so that cargo ignores folders above it.
fn stand_alone(manifest: &Path) -> io::Result<()> {
    let text = fs::read_to_string(manifest)?;
    if text.lines().any(|line| line.trim() == "[workspace]") {
        return Ok(());
    }
    fs::write(manifest, format!("{text}\n[workspace]\n"))
}

/// The single executable file of a release build.
fn only_program(folder: &Path) -> io::Result<PathBuf> {
    let is_program = |path: &Path| {
        path.extension().is_none() && path.is_file() && path.with_extension("d").is_file()
    };
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let mut programs: Vec<PathBuf> =
        entries.into_iter().map(|entry| entry.path()).filter(|path| is_program(path)).collect();
    match (programs.pop(), programs.pop()) {
        (Some(program), None) => Ok(program),
        _ => Err(io::Error::other("the prototype must have exactly one program")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
                          near (one-way <70 ns)                     far (70..400 ns)
best/dedicated trustee, 64 fibers 2x42     88.82 Mops [   49.73..   98.42] n=16      50.82 Mops [   43.31..   52.70] n=9 
best/dedicated trustee, 64 fibers 2x42 and more   -      -
best/one                 9.13 Mops [    8.46..    9.76] n=16            -
best/two                 -          2.47 Mops [2.29..2.58] n=9 
";

    #[test]
    fn rows_are_found_by_their_whole_name() {
        let row = "best/dedicated trustee, 64 fibers 2x42";
        assert_eq!(parse(TABLE, row), Some([Some(88.82), Some(50.82)]));
        assert_eq!(parse(TABLE, "best/dedicated"), None);
    }

    #[test]
    fn a_dash_is_no_figure() {
        assert_eq!(parse(TABLE, "best/one"), Some([Some(9.13), None]));
        assert_eq!(parse(TABLE, "best/two"), Some([None, Some(2.47)]));
        let row = "best/dedicated trustee, 64 fibers 2x42 and more";
        assert_eq!(parse(TABLE, row), Some([None, None]));
    }

    #[test]
    fn a_folder_that_is_no_crate_is_an_error() {
        let empty = TempDir::new().expect("a folder");
        Prototype::build(empty.path()).expect_err("no crate");
        Prototype::build(&empty.path().join("absent")).expect_err("no folder");
    }
}
