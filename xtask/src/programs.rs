//! The gates that run our own programs: README's main command in small, racks whose processes are
//! killed, and the measurements.

use crate::step::Step;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;
use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// README's main command.
pub(crate) const MAIN_COMMAND: &str = "cargo run --release --bin kv -- bench";

/// What `cargo xtask bench` can measure.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Delegation, fibers and locks: the figures of docs/performance.md
    Core {
        /// Write the results to this file, as JSON
        #[arg(long)]
        json: Option<PathBuf>,
        /// Interleaved rounds
        #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// Only cases whose name contains this
        #[arg(long)]
        filter: Option<String>,
    },
}

/// `cargo xtask demo`.
pub(crate) fn demo(workspace: &Workspace) -> Result<()> {
    let root = &workspace.root;
    let command = MAIN_COMMAND.strip_prefix("cargo ").expect("it is a cargo command");
    let (build, _) = command.split_once(" -- ").expect("it has arguments");
    Step::cargo(root, &build.replacen("run", "build", 1)).run()?;
    let small = format!("{command} --records 2000 --operations 50000");
    let printed = Step::cargo(root, &small).within(Duration::from_secs(120)).read()?;
    let rate = check_bench(&printed).context("the output of README's main command is not right")?;
    println!("demo: two hosts, {rate} operations per second");
    Ok(())
}

/// Reads what `kv bench` prints: the number of hosts, a throughput, and a table with a row of
/// latency percentiles for every type of operation. Returns the throughput.
fn check_bench(output: &str) -> Result<f64> {
    let lower = output.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).collect();
    let two_hosts = |pair: &[&str]| pair == ["hosts", "2"] || pair == ["2", "hosts"];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    ensure!(words.windows(2).any(two_hosts), "it does not say that there are 2 hosts");

    let mut rates = lower.lines().filter(|line| line.contains("throughput"));
    let rate = rates.find_map(|line| numbers(line).into_iter().find(|rate| *rate > 0.0));
    let rate = rate.context("no line with a throughput above zero")?;

    let mut table = lower.lines().skip_while(|line| percentiles(line) < 3);
    let columns = percentiles(table.next().context("no table headed by percentiles")?);
    let rows: Vec<&str> = table
        .take_while(|line| !line.trim().is_empty())
        .filter(|line| line.contains(char::is_alphanumeric))
        .collect();
    ensure!(!rows.is_empty(), "the table of percentiles has no rows");
    for row in rows {
        let cells = numbers(row);
        let complete = cells.len() >= columns && cells[cells.len() - columns..].is_sorted();
        ensure!(complete && cells[cells.len() - 1] > 0.0, "a row without percentiles: {row:?}");
    }
    Ok(rate)
}

/// How many columns of a line are called like a percentile: `p50`, `p99.9`, `max`.
fn percentiles(line: &str) -> usize {
    let is_one = |word: &str| {
        word == "max" || word.strip_prefix('p').is_some_and(|rest| rest.parse::<f64>().is_ok())
    };
    line.split(|c: char| !c.is_alphanumeric() && c != '.').filter(|word| is_one(word)).count()
}

/// The numbers in a line; underscores and commas inside of them are read over, and a unit may
/// follow without a space.
fn numbers(line: &str) -> Vec<f64> {
    let plain = |word: &str| {
        let word: String = word.chars().filter(|c| !matches!(c, ',' | '_')).collect();
        let digits = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
        word[..digits].parse().ok()
    };
    line.split_whitespace().filter_map(plain).collect()
}

/// `cargo xtask chaos`.
pub(crate) fn chaos(workspace: &Workspace, rounds: u32, seed: Option<u64>) -> Result<()> {
    let root = &workspace.root;
    let seed = match seed {
        Some(seed) => seed,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64 & 0xffff_ffff,
    };
    let program = "--release --package gossamer-apps --bin chaos";
    Step::cargo(root, &format!("build {program}")).run()?;
    // A round takes a fraction of a second; one that hangs must not hang CI.
    let patience = Duration::from_secs(60) + rounds * Duration::from_secs(5);
    let arguments = format!("run {program} -- --rounds {rounds} --seed {seed}");
    let printed = Step::cargo(root, &arguments)
        .within(patience)
        .read()
        .with_context(|| format!("repeat it with --rounds {rounds} --seed {seed}"))?;
    check_rounds(&printed, rounds)?;
    println!("chaos: {rounds} racks were hurt and behaved (seed {seed})");
    Ok(())
}

/// The program prints one line per round, which starts with `round`.
fn check_rounds(printed: &str, rounds: u32) -> Result<()> {
    let count = printed.lines().filter(|line| line.starts_with("round ")).count();
    ensure!(count == rounds as usize, "{rounds} rounds were asked for, {count} were reported");
    Ok(())
}

/// `cargo xtask bench`.
pub(crate) fn bench(workspace: &Workspace, bench: &Bench) -> Result<()> {
    let Bench::Core { json, rounds, filter } = bench;
    let folder = workspace.root.join("benchmarks/core");
    if !folder.join("Cargo.toml").is_file() {
        bail!("{} is not there: the checkout is incomplete", folder.display());
    }
    say_what_is_missing(&workspace.root);
    let mut step =
        Step::cargo(&folder, "run --release --bin core-bench -- --rounds").arg(rounds.to_string());
    if let Some(file) = json {
        // The program runs in its own folder; the file is meant relative to ours.
        step = step.arg("--json").arg(env::current_dir()?.join(file));
    }
    if let Some(filter) = filter {
        step = step.arg("--filter").arg(filter);
    }
    step.run()
}

/// Peers that cargo cannot fetch: without them their rows are missing, which must not surprise.
fn say_what_is_missing(root: &Path) {
    if !Step::program(root, "sh", "-c").arg("command -v ucx_perftest").works() {
        eprintln!("bench: no ucx_perftest, so no comparison with UCX (apt-get install ucx-utils)");
    }
    match env::var_os("GOSSAMER_PROTOTYPE") {
        Some(folder) if Path::new(&folder).is_dir() => {}
        Some(folder) => eprintln!("bench: GOSSAMER_PROTOTYPE={folder:?} is no folder"),
        None => eprintln!(
            "bench: no comparison with the delegation prototype (GOSSAMER_PROTOTYPE names its folder)"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
        kv bench: workload C on 2 hosts x 1 threads\n\
        throughput  1,204,551 ops/s\n\n\
        operation    count   mean     p50     p95     p99   p99.9     max\n\
        -----------------------------------------------------------------\n\
        READ        50,000   4.1us   3.0us   9.1us  12.9us  31.0us  88.2us\n\n\
        done\n";

    #[test]
    fn a_good_run_is_accepted() {
        assert_eq!(check_bench(GOOD).unwrap(), 1_204_551.0);
    }

    #[test]
    fn what_is_missing_is_named() {
        for (cut, with, reason) in [
            ("2 hosts", "1 hosts", "2 hosts"),
            ("1,204,551", "0", "throughput above zero"),
            ("throughput", "speed", "throughput above zero"),
            ("p50     p95     p99   p99.9     max", "", "no table headed by percentiles"),
            ("READ        50,000   4.1us   3.0us   9.1us  12.9us  31.0us  88.2us", "", "no rows"),
            ("88.2us", "0us", "a row without percentiles"),
            ("   4.1us   3.0us   9.1us  12.9us  31.0us", "", "a row without percentiles"),
        ] {
            let error = check_bench(&GOOD.replace(cut, with)).unwrap_err().to_string();
            assert!(error.contains(reason), "{cut}: {error}");
        }
        assert!(check_bench("").is_err());
    }

    #[test]
    fn rounds_are_counted() {
        assert!(check_rounds("round 1: killed host 1\nround 2: ok\n", 2).is_ok());
        let error = check_rounds("nothing to do\n", 2).unwrap_err().to_string();
        assert_eq!(error, "2 rounds were asked for, 0 were reported");
    }
}
