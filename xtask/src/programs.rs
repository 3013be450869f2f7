//! The gates that run our own programs: README's main command in small, racks whose processes are
//! killed, and the measurements.

use crate::rdma_bench;
use crate::step::Step;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// README's main command.
pub(crate) const MAIN_COMMAND: &str = "cargo run --release --bin kv -- bench";

/// What `cargo xtask bench` can measure.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Delegation, fibers and locks: the figures of docs/performance.md
    Core(Measuring),
    /// Delegation over TCP beside remote procedure calls: the figures of docs/performance-tcp.md
    Tcp(Measuring),
    /// Delegation over RDMA beside perftest, in a virtual machine that has RDMA devices: the figures
    /// of docs/performance-rdma.md
    Rdma(RdmaMeasuring),
}

/// How it is measured.
#[derive(Args)]
pub(crate) struct Measuring {
    /// Write the results to this file, as JSON
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Interleaved rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Only cases whose name contains this
    #[arg(long)]
    filter: Option<String>,
    /// Print every sample that counts as well
    #[arg(long)]
    raw: bool,
}

/// How it is measured over RDMA.
#[derive(Args)]
pub(crate) struct RdmaMeasuring {
    #[command(flatten)]
    pub(crate) how: Measuring,
    /// Draw throughput over numbers of queue pairs into this file, as SVG
    #[arg(long, requires = "json")]
    pub(crate) plot: Option<PathBuf>,
}

impl Measuring {
    /// Has the program of `step` measure so, with the results in the file `json`.
    pub(crate) fn applied_to(&self, mut step: Step, json: Option<&Path>) -> Step {
        step = step.arg("--rounds").arg(self.rounds.to_string());
        if let Some(file) = json {
            step = step.arg("--json").arg(file);
        }
        if let Some(filter) = &self.filter {
            step = step.arg("--filter").arg(filter);
        }
        if self.raw { step.arg("--raw") } else { step }
    }
}

/// `cargo xtask demo`.
pub(crate) fn demo(workspace: &Workspace) -> Result<()> {
    let root = &workspace.root;
    let command = MAIN_COMMAND.strip_prefix("cargo ").expect("it is a cargo command");
    let (build, _) = command.split_once(" -- ").expect("it has arguments");
    Step::cargo(root, &build.replacen("run", "build", 1)).run()?;
    let small = format!("{command} --records 2000 --operations 50000");
    let printed = Step::cargo(root, &small).within(Duration::from_secs(120)).read()?;
    let rate =
        check_bench(&printed, 2).context("the output of README's main command is not right")?;
    println!("demo: two hosts, {rate} operations per second");
    Ok(())
}

/// Reads what `kv bench` prints on so many hosts: their number, a throughput, and a table with a
/// row of latency percentiles for every type of operation. Returns the throughput.
pub(crate) fn check_bench(output: &str, hosts: usize) -> Result<f64> {
    let lower = output.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).collect();
    let number_of_hosts = hosts.to_string();
    let hosts =
        |pair: &[&str]| pair == ["hosts", &number_of_hosts] || pair == [&number_of_hosts, "hosts"];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let says_hosts = words.windows(2).any(hosts);
    ensure!(says_hosts, "it does not say that there are {number_of_hosts} hosts");

    let mut lines = lower.lines().map(cells);
    let columns = lines
        .find(|cells| cells.iter().filter(|cell| is_percentile(cell)).count() >= 3)
        .context("no table headed by percentiles")?;
    let rows: Vec<_> = lines.by_ref().take_while(|cells| !cells.is_empty()).collect();
    ensure!(!rows.is_empty(), "the table of percentiles has no rows");
    for row in rows {
        let times: Vec<f64> = columns
            .iter()
            .zip(&row)
            .filter(|(column, _)| is_percentile(column))
            .filter_map(|(_, cell)| nanoseconds(cell))
            .collect();
        let complete = times.len() >= 3 && times.is_sorted() && times.iter().all(|t| *t > 0.0);
        ensure!(complete, "a row without percentiles: {row:?}");
    }
    let columns = lines
        .find(|cells| cells.iter().any(|cell| cell.starts_with("run ops/s")))
        .context("no table of throughputs")?;
    let place = columns.iter().position(|cell| cell.starts_with("run ops/s"));
    let row = lines.next().context("no throughput")?;
    // The column of names has no head.
    let rate = place.and_then(|place| number(row.get(place + 1)?)).filter(|rate| *rate > 0.0);
    rate.context("no throughput above zero")
}

/// The cells of a line of a table: what stands two spaces or more apart.
fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// Whether a column is one of percentiles: `p50`, `p99.9`.
fn is_percentile(column: &str) -> bool {
    column.strip_prefix('p').is_some_and(|rest| rest.parse::<f64>().is_ok())
}

/// A number whose digits are grouped by spaces.
fn number(cell: &str) -> Option<f64> {
    cell.replace(' ', "").parse().ok()
}

/// A time with its unit, in nanoseconds.
fn nanoseconds(cell: &str) -> Option<f64> {
    let (value, unit) = cell.split_once(' ')?;
    let factor = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    Some(value.parse::<f64>().ok()? * factor)
}

/// `cargo xtask chaos`.
pub(crate) fn chaos(workspace: &Workspace, rounds: u32, seed: Option<u64>) -> Result<()> {
    let root = &workspace.root;
    let seed = seed_or_new(seed)?;
    let program = "--release --package gossamer-chaos --bin chaos";
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

/// Where the randomness starts: where it is told to, or at a new place each time.
pub(crate) fn seed_or_new(seed: Option<u64>) -> Result<u64> {
    Ok(match seed {
        Some(seed) => seed,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64 & 0xffff_ffff,
    })
}

/// The program prints one line per round, which starts with `round`.
fn check_rounds(printed: &str, rounds: u32) -> Result<()> {
    let count = printed.lines().filter(|line| line.starts_with("round ")).count();
    ensure!(count == rounds as usize, "{rounds} rounds were asked for, {count} were reported");
    Ok(())
}

/// `cargo xtask bench`.
pub(crate) fn bench(workspace: &Workspace, bench: &Bench) -> Result<()> {
    let (step, how) = match bench {
        Bench::Core(how) => {
            say_if_ucx_is_missing(&workspace.root);
            say_if_prototype_is_missing();
            // The key-value store is measured by its own program.
            let build = "build --release --package gossamer-kv --bin kv";
            Step::cargo(&workspace.root, build).run()?;
            let kv = workspace.target().join("release/kv");
            let folder = workspace.benchmarks("core")?;
            let step = Step::cargo(&folder, "run --release --bin core-bench --");
            (step.arg("--kv").arg(kv), how)
        }
        Bench::Tcp(how) => {
            say_if_ucx_is_missing(&workspace.root);
            (Step::cargo(&workspace.benchmarks("tcp")?, "run --release --bin tcp-bench --"), how)
        }
        Bench::Rdma(how) => return rdma_bench::run(workspace, how),
    };
    // The program runs in its own folder; the file is meant relative to ours.
    let here = env::current_dir()?;
    let json = how.json.as_ref().map(|file| here.join(file));
    how.applied_to(step, json.as_deref()).run()
}

/// Cargo cannot fetch it; without it its rows are missing, which must not surprise.
fn say_if_ucx_is_missing(root: &Path) {
    if !Step::program(root, "sh", "-c").arg("command -v ucx_perftest").works() {
        eprintln!("bench: no ucx_perftest, so no comparison with UCX (apt-get install ucx-utils)");
    }
}

fn say_if_prototype_is_missing() {
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
workloadc: 2000 records of 1000 bytes, zipfian keys

gossamer, 2 hosts x 1 threads x 64 fibers
  latency      operations     mean      p50       p95       p99     p99.9       max   failed
  READ             50 000  64.0 us  23.9 us  151.6 us  223.2 us  407.6 us  585.7 us        0

Throughput over 1 round:
                                             load ops/s  run ops/s         least to most  ratio
gossamer, 2 hosts x 1 threads x 64 fibers       172 774  1 908 294  1 908 294 to 1 908 294   1.00
";

    #[test]
    fn a_good_run_is_accepted() {
        assert_eq!(check_bench(GOOD, 2).unwrap(), 1_908_294.0);
    }

    #[test]
    fn what_is_missing_is_named() {
        for (cut, with, reason) in [
            ("2 hosts", "1 hosts", "2 hosts"),
            ("  1 908 294  1", "  0  1", "no throughput above zero"),
            ("run ops/s", "speed", "no table of throughputs"),
            ("p50       p95       p99     p99.9", "", "no table headed by percentiles"),
            ("151.6 us", "15.6 us", "a row without percentiles"),
            ("151.6 us  223.2 us  407.6 us", "", "a row without percentiles"),
        ] {
            let error = check_bench(&GOOD.replace(cut, with), 2).unwrap_err().to_string();
            assert!(error.contains(reason), "{cut}: {error}");
        }
        assert!(check_bench("", 2).is_err());
    }

    #[test]
    fn rounds_are_counted() {
        assert!(check_rounds("round 1: killed host 1\nround 2: ok\n", 2).is_ok());
        let error = check_rounds("nothing to do\n", 2).unwrap_err().to_string();
        assert_eq!(error, "2 rounds were asked for, 0 were reported");
    }
}
