//! `cargo xtask fuzz`: every fuzz target for a while, from its committed corpus, all at the same time.
//!
//! New inputs go to the build folder, not to the corpus. An input that breaks a target is kept in
//! `fuzz/artifacts`, and the output has the command that runs it again.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};

use crate::step::Step;
use crate::workspace::Workspace;

/// The limits of one allocation and of all, in megabytes: a length from a peer must not cost memory.
const MEMORY: &str = "-malloc_limit_mb=64 -rss_limit_mb=1024";
/// The timeout of one input, in seconds: all targets share the processors, so half a second of work may
/// take five.
const INPUT_TIMEOUT: &str = "-timeout=30";
/// The fuzzer's name for the number of inputs that it tried.
const RUNS: &str = "stat::number_of_executed_units:";
/// The time that a build may take.
const BUILD_TIMEOUT: Duration = Duration::from_secs(900);

/// Runs every target for `seconds`.
pub(crate) fn run(workspace: &Workspace, seconds: u32) -> Result<()> {
    let folder = workspace.own_workspace("fuzz")?;
    let targets = targets(&folder)?;
    if !build(workspace)? {
        println!(
            "fuzz: no nightly toolchain on this machine, so nothing was fuzzed \
             (rustup toolchain install nightly)"
        );
        return Ok(());
    }
    let fuzz = |target: &String| {
        let found = build_folder(workspace).join("found").join(target);
        fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
        let step = cargo_fuzz(workspace, &format!("run {target}"))?
            .arg(&found)
            .arg(corpus(&folder, target))
            .arg("--")
            .arg(format!("-max_total_time={seconds}"))
            .args(MEMORY)
            .args(INPUT_TIMEOUT)
            .args("-print_final_stats=1 -verbosity=0")
            .labelled(&format!("{target}| "));
        // It writes everything to standard error.
        let printed =
            step.within(BUILD_TIMEOUT + Duration::from_secs(seconds.into())).read_all()?;
        let runs = runs(&printed).with_context(|| format!("{target}: no input was tried"))?;
        Ok(format!("{target} {runs}"))
    };
    let all = in_parallel(&targets, fuzz)?;
    println!("fuzz: {seconds} s each, inputs tried: {}", all.join(", "));
    Ok(())
}

/// Builds every target; `false` if there is no nightly toolchain.
pub(crate) fn build(workspace: &Workspace) -> Result<bool> {
    let root = &workspace.root;
    if !Step::program(root, "rustup", "run nightly rustc --version").works() {
        return Ok(false);
    }
    ensure!(
        Step::program(root, "rustup", "run nightly cargo fuzz --version").works(),
        "cargo-fuzz is missing: cargo install cargo-fuzz --locked"
    );
    cargo_fuzz(workspace, "build")?.run().map(|()| true)
}

/// A folder of its own, as for every other compiler.
fn build_folder(workspace: &Workspace) -> PathBuf {
    workspace.target().join("fuzz")
}

fn cargo_fuzz(workspace: &Workspace, arguments: &str) -> Result<Step> {
    let arguments = format!("run nightly cargo fuzz {arguments}");
    let step = Step::program(&workspace.own_workspace("fuzz")?, "rustup", &arguments);
    Ok(step.env("CARGO_TARGET_DIR", build_folder(workspace)))
}

/// Calls `work` for all items in parallel; returns the results in their order.
fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let work = &work;
    thread::scope(|scope| {
        let workers: Vec<_> = items.iter().map(|item| scope.spawn(move || work(item))).collect();
        workers.into_iter().map(|worker| worker.join().expect("it does not panic")).collect()
    })
}

fn corpus(folder: &Path, target: &str) -> PathBuf {
    folder.join("corpus").join(target)
}

/// The targets, each of which must have seeds, and each corpus a target.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let targets = names(&folder.join("fuzz_targets"))?;
    let corpora = names(&folder.join("corpus"))?;
    ensure!(!targets.is_empty(), "no fuzz targets in {}", folder.display());
    ensure!(targets == corpora, "seeds for {corpora:?}, expected them for the targets {targets:?}");
    for target in &targets {
        if names(&corpus(folder, target))?.is_empty() {
            bail!("no seeds for {target}");
        }
    }
    Ok(targets)
}

/// The names of the files in a folder, sorted, without their extensions.
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

/// The number of inputs that were tried, if any.
fn runs(printed: &str) -> Option<u64> {
    let count = printed.lines().find_map(|line| line.trim().strip_prefix(RUNS))?;
    count.trim().parse().ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_seeds() {
        let workspace = Workspace::find().unwrap();
        let targets = targets(&workspace.own_workspace("fuzz").unwrap()).unwrap();
        let expected = [
            "control",
            "control_plane",
            "frame",
            "hello",
            "jam_blob",
            "jam_call",
            "jam_claims",
            "jam_frame",
            "jam_library",
            "jam_package",
            "machine",
            "memcached",
            "rdma",
            "registry",
            "shm",
            "slurm",
        ];
        assert_eq!(targets, expected);
        assert!(super::targets(&workspace.root).is_err());
    }

    #[test]
    fn all_items_are_done_and_an_error_is_returned() {
        assert_eq!(in_parallel(&[1, 2, 3], |n| Ok(n * 2)).unwrap(), [2, 4, 6]);
        let fails_at_two = |n: &u32| {
            ensure!(*n != 2, "two");
            Ok(())
        };
        assert_eq!(in_parallel(&[1, 2, 3], fails_at_two).unwrap_err().to_string(), "two");
    }

    #[test]
    fn a_fuzzer_that_tried_nothing_is_noticed() {
        let printed =
            "INFO: Seed: 1\nstat::number_of_executed_units: 1234\nstat::peak_rss_mb: 40\n";
        assert_eq!(runs(printed), Some(1234));
        assert_eq!(runs("stat::number_of_executed_units: 0\n"), None);
        assert_eq!(runs("Done\n"), None);
    }
}
