//! The gates that run the workspace's own programs: README's main command in small, and racks whose
//! processes are killed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use crate::step::Step;
use crate::workspace::Workspace;

/// README's main command.
pub(crate) const MAIN_COMMAND: &str = "cargo run --release --bin kv -- bench";

/// `cargo xtask demo`.
pub(crate) fn demo(workspace: &Workspace) -> Result<()> {
    let root = &workspace.root;
    let command = MAIN_COMMAND.strip_prefix("cargo ").expect("it is a cargo command");
    workspace.build_programs()?;
    let small = format!("{command} --records 2000 --operations 50000");
    let printed = Step::cargo(root, &small).within(Duration::from_secs(120)).read()?;
    let rate = check_bench(&printed, 2).context("wrong output of README's main command")?;
    println!("demo: two hosts, {rate} operations per second");
    Ok(())
}

/// Checks the output of `kv bench` on `hosts` hosts: their number, a throughput, and a table with a
/// row of latency percentiles for every type of operation. Returns the throughput.
pub(crate) fn check_bench(output: &str, hosts: usize) -> Result<f64> {
    let lower = output.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).collect();
    let number_of_hosts = hosts.to_string();
    let hosts =
        |pair: &[&str]| pair == ["hosts", &number_of_hosts] || pair == [&number_of_hosts, "hosts"];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let says_hosts = words.windows(2).any(hosts);
    ensure!(says_hosts, "wrong number of hosts, expected {number_of_hosts} hosts");

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

/// The arguments of a small run of `graph`, which validates its results.
pub(crate) const GRAPH: &str = "bench --scale 10 --roots 4";

/// Checks the output of `graph bench` on `hosts` hosts of one thread each: both kernels have a rate, and
/// valid results. Returns the rate of BFS, in millions of edges per second.
pub(crate) fn check_graph(output: &str, hosts: usize) -> Result<f64> {
    let threads = format!(", {hosts} threads;");
    ensure!(output.contains(&threads), "wrong number of threads, expected {hosts}");
    let rate = |kernel: &str| {
        let rows = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = rows.into_iter().find(|row| row.first() == Some(&kernel));
        let row = row.with_context(|| format!("no row of {kernel}"))?;
        ensure!(row.last() == Some(&"valid"), "results of {kernel} that are not valid: {row:?}");
        let rate = row.get(1).and_then(|cell| cell.parse::<f64>().ok()).filter(|rate| *rate > 0.0);
        rate.with_context(|| format!("no rate of {kernel}: {row:?}"))
    };
    rate("sssp").and(rate("bfs"))
}

/// The cells of a line of a table, which are two spaces or more apart.
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
pub(crate) fn chaos(
    workspace: &Workspace,
    rounds: u32,
    seed: Option<u64>,
    workload: Option<&str>,
) -> Result<()> {
    let root = &workspace.root;
    let seed = seed_or_new(seed)?;
    workspace.build_programs()?;
    // A round takes a fraction of a second; one that hangs must not hang CI.
    let timeout = Duration::from_secs(60) + rounds * Duration::from_secs(5);
    let workload = workload.map(|workload| format!(" --workload {workload}")).unwrap_or_default();
    let rounds_and_seed = format!("--rounds {rounds} --seed {seed}{workload}");
    let printed = Step::cargo(root, &format!("run --release --bin chaos -- {rounds_and_seed}"))
        .within(timeout)
        .read()
        .with_context(|| format!("repeat it with {rounds_and_seed}"))?;
    check_rounds(&printed, rounds)?;
    println!("chaos: {rounds} racks lost processes and ended as they must (seed {seed})");
    Ok(())
}

/// The seed of the random numbers, a new one if none is given.
pub(crate) fn seed_or_new(seed: Option<u64>) -> Result<u64> {
    Ok(match seed {
        Some(seed) => seed,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64 & 0xffff_ffff,
    })
}

/// The program prints one line per round, which starts with `round`.
fn check_rounds(printed: &str, rounds: u32) -> Result<()> {
    let count = printed.lines().filter(|line| line.starts_with("round ")).count();
    ensure!(count == rounds as usize, "{count} rounds reported, expected {rounds}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_graph_is_valid_and_has_all_its_threads() {
        let good = "scale 10, edge factor 16, 4 roots, 3 threads; the edges were made in 0.01 s, and \
                    the graph built in 0.02 s\nkernel           MTEPS     median ms    slowest ms       \
                    results\nbfs              123.4          0.10          0.20         valid\nsssp              \
                    12.5          1.00          2.00         valid\n";
        assert_eq!(check_graph(good, 3).unwrap(), 123.4);
        for (bad, hosts) in [
            (good.to_owned(), 2),
            (good.replace("123.4", "0.0"), 3),
            (good.replacen("valid", "not checked", 1), 3),
            (good.replace("sssp", "pagerank"), 3),
        ] {
            assert!(check_graph(&bad, hosts).is_err(), "{bad}");
        }
    }

    const GOOD: &str = "\
workloadc: 2000 records of 1000 bytes, zipfian keys

gossamer, 2 hosts x 1 thread x 64 fibers
  latency      operations     mean      p50       p95       p99     p99.9       max   failed
  READ             50 000  64.0 us  23.9 us  151.6 us  223.2 us  407.6 us  585.7 us        0

Throughput over 1 round:
                                            load ops/s  run ops/s         least to most  ratio
gossamer, 2 hosts x 1 thread x 64 fibers       172 774  1 908 294  1 908 294 to 1 908 294   1.00
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
        assert_eq!(error, "0 rounds reported, expected 2");
    }
}
