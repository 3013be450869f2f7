//! `cargo xtask fuzz`: every fuzz target for a while, from its committed corpus, all at the same time.
//!
//! What is found new goes to the build folder, not to the corpus; an input that breaks a target is
//! kept in `fuzz/artifacts`, and the output says how to run it again.

use crate::step::Step;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::time::Duration;
use std::{fs, thread};

/// The largest single allocation, in megabytes, and all of them: a claim of a peer must not cost memory.
const MEMORY: &str = "-malloc_limit_mb=64 -rss_limit_mb=1024";
/// Seconds that one input may take.
const SLOW: &str = "-timeout=5";
/// What the fuzzer says of how many inputs it has tried.
const RUNS: &str = "stat::number_of_executed_units:";
/// What a target may take beyond its time: building it.
const BUILD: Duration = Duration::from_secs(900);

/// Runs every target for so many seconds.
pub(crate) fn run(workspace: &Workspace, seconds: u32) -> Result<()> {
    let folder = workspace.own_workspace("fuzz")?;
    let targets = targets(&folder)?;
    if !Step::program(&folder, "rustup", "run nightly rustc --version").works() {
        println!(
            "fuzz: no nightly toolchain on this machine, so nothing was fuzzed \
             (rustup toolchain install nightly)"
        );
        return Ok(());
    }
    ensure!(
        Step::program(&folder, "rustup", "run nightly cargo fuzz --version").works(),
        "cargo-fuzz is missing: cargo install cargo-fuzz --locked"
    );
    let build = workspace.target().join("fuzz");
    let cargo_fuzz = |arguments: &str| {
        let arguments = format!("run nightly cargo fuzz {arguments}");
        // A folder of its own, as for every other compiler.
        Step::program(&folder, "rustup", &arguments).env("CARGO_TARGET_DIR", &build)
    };
    cargo_fuzz("build").within(BUILD).run()?;
    let fuzz = |target: &String| {
        let found = build.join("found").join(target);
        fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
        let step = cargo_fuzz(&format!("run {target}"))
            .arg(&found)
            .arg(corpus(&folder, target))
            .arg("--")
            .arg(format!("-max_total_time={seconds}"))
            .args(MEMORY)
            .args(SLOW)
            .args("-print_final_stats=1 -verbosity=0")
            .labelled(&format!("{target}| "));
        // It says everything on standard error.
        let said = step.within(BUILD + Duration::from_secs(seconds.into())).read_all()?;
        let runs = runs(&said).with_context(|| format!("{target}: nothing was tried"))?;
        Ok(format!("{target} {runs}"))
    };
    let all = side_by_side(&targets, fuzz)?;
    println!("fuzz: {seconds} s each, inputs tried: {}", all.join(", "));
    Ok(())
}

/// Does `work` on all items at once; what it made of them, in their order.
fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let work = &work;
    thread::scope(|scope| {
        let workers: Vec<_> = items.iter().map(|item| scope.spawn(move || work(item))).collect();
        workers.into_iter().map(|worker| worker.join().expect("it does not panic")).collect()
    })
}

fn corpus(folder: &Path, target: &str) -> std::path::PathBuf {
    folder.join("corpus").join(target)
}

/// The targets, each of which must have seeds, and each corpus a target.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let targets = names(&folder.join("fuzz_targets"))?;
    let corpora = names(&folder.join("corpus"))?;
    ensure!(!targets.is_empty(), "there are no fuzz targets in {}", folder.display());
    ensure!(targets == corpora, "the targets are {targets:?}, and there are seeds for {corpora:?}");
    for target in &targets {
        if names(&corpus(folder, target))?.is_empty() {
            bail!("there are no seeds for {target}");
        }
    }
    Ok(targets)
}

/// What is in a folder, in order, without what stands behind the dot.
fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {folder:?}"))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// How many inputs were tried, if any.
fn runs(said: &str) -> Option<u64> {
    let count = said.lines().find_map(|line| line.trim().strip_prefix(RUNS))?;
    count.trim().parse().ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_seeds() {
        let workspace = Workspace::find().unwrap();
        let targets = targets(&workspace.own_workspace("fuzz").unwrap()).unwrap();
        let expected =
            ["control", "frame", "hello", "machine", "memcached", "rdma", "shm", "slurm"];
        assert_eq!(targets, expected);
        assert!(super::targets(&workspace.root).is_err());
    }

    #[test]
    fn all_is_done_and_an_error_is_told() {
        assert_eq!(side_by_side(&[1, 2, 3], |n| Ok(n * 2)).unwrap(), [2, 4, 6]);
        let fails_at_two = |n: &u32| {
            ensure!(*n != 2, "two");
            Ok(())
        };
        assert_eq!(side_by_side(&[1, 2, 3], fails_at_two).unwrap_err().to_string(), "two");
    }

    #[test]
    fn a_fuzzer_that_tried_nothing_is_noticed() {
        let said = "INFO: Seed: 1\nstat::number_of_executed_units: 1234\nstat::peak_rss_mb: 40\n";
        assert_eq!(runs(said), Some(1234));
        assert_eq!(runs("stat::number_of_executed_units: 0\n"), None);
        assert_eq!(runs("Done\n"), None);
    }
}
