//! Results as a text table.

use std::fmt::Write;

use crate::bench::comparison::Score;
use crate::bench::report::{Latencies, Operation};
use crate::ycsb::Workload;

/// Renders results for a terminal. The first score is compared with each of the others.
pub fn render(workload: &Workload, scores: &[Score]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_all(&mut text, workload, scores);
    text
}

fn write_all(out: &mut String, workload: &Workload, scores: &[Score]) -> std::fmt::Result {
    let Some(first) = scores.first() else { return Ok(()) };
    writeln!(out, "{}", headline(workload))?;
    for score in scores {
        write_latencies(out, score)?;
    }
    let width = scores.iter().map(|score| score.name.len()).max().unwrap_or(0);
    let rounds = first.rounds.len();
    let noun = if rounds == 1 { "round" } else { "rounds, medians" };
    writeln!(out, "\nThroughput over {rounds} {noun}:")?;
    let is_compared = scores.len() > 1;
    let ratio = if is_compared { "     ratio" } else { "" };
    writeln!(
        out,
        "{:width$}  {:>12}  {:>12}  {:>25}{ratio}",
        "", "load ops/s", "run ops/s", "min to max"
    )?;
    for score in scores {
        let run = score.throughput();
        let range = format!("{} to {}", thousands(run.min), thousands(run.max));
        let ratio = first.throughput().median / run.median.max(1.0);
        let ratio = if is_compared { format!("  {ratio:>8.2}") } else { String::new() };
        writeln!(
            out,
            "{:width$}  {:>12}  {:>12}  {range:>25}{ratio}",
            score.name,
            thousands(score.load_throughput().median),
            thousands(run.median),
        )?;
    }
    if is_compared {
        writeln!(out, "ratio: throughput of {} divided by the throughput of the row", first.name)?;
    }
    Ok(())
}

fn write_latencies(out: &mut String, score: &Score) -> std::fmt::Result {
    let run = score.run();
    writeln!(out, "\n{}", score.name)?;
    writeln!(
        out,
        "  {:18} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}",
        "latency", "operations", "mean", "p50", "p95", "p99", "p99.9", "max", "failed"
    )?;
    for operation in Operation::ALL {
        let Some(latencies) = run.latencies(operation) else { continue };
        let of = |share| duration(latencies.quantile(share) as f64);
        writeln!(
            out,
            "  {operation:18} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}",
            thousands(latencies.count() as f64),
            duration(Latencies::mean(latencies)),
            of(0.5),
            of(0.95),
            of(0.99),
            of(0.999),
            duration(latencies.max() as f64),
            latencies.failed,
        )?;
    }
    Ok(())
}

/// The workload in one line.
pub(super) fn headline(workload: &Workload) -> String {
    format!(
        "{}: {} records of {} bytes, {} keys",
        workload.name,
        workload.record_count,
        workload.record_bytes(),
        workload.request_distribution
    )
}

/// A whole number with spaces between groups of thousands.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A duration with a suitable unit.
pub(super) fn duration(nanoseconds: f64) -> String {
    match nanoseconds {
        ..1e3 => format!("{nanoseconds:.0} ns"),
        ..1e6 => format!("{:.1} us", nanoseconds / 1e3),
        ..1e9 => format!("{:.1} ms", nanoseconds / 1e6),
        _ => format!("{:.2} s", nanoseconds / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_durations_are_formatted() {
        assert_eq!(thousands(0.0), "0");
        assert_eq!(thousands(999.4), "999");
        assert_eq!(thousands(1_234_567.0), "1 234 567");
        assert_eq!(duration(850.0), "850 ns");
        assert_eq!(duration(1500.0), "1.5 us");
        assert_eq!(duration(2.5e6), "2.5 ms");
        assert_eq!(duration(3e9), "3.00 s");
    }
}
