//! Results as JSON, in the format shared by all bench commands of the project.

use serde::Serialize;

use crate::bench::comparison::{Score, Spread};
use crate::bench::report::Operation;
use crate::ycsb::Workload;

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The benchmark.
    pub suite: String,
    /// Workload, store and quantity, separated by slashes.
    pub name: String,
    /// Placement of the threads (near or far), if measured.
    pub placement: Option<String>,
    /// The unit of the figures.
    pub unit: String,
    /// Median over the rounds.
    pub median: f64,
    /// Minimum over the rounds.
    pub min: f64,
    /// Maximum over the rounds.
    pub max: f64,
    /// Rounds that were measured.
    pub rounds: usize,
    /// Rounds that were discarded.
    pub discarded: usize,
    /// The store compared with.
    pub peer: Option<String>,
    /// Median divided by the peer's median.
    pub ratio: Option<f64>,
    /// The required ratio.
    pub bar: Option<f64>,
    /// Whether the ratio meets it.
    pub holds: Option<bool>,
}

/// The figures of a run: load and run throughput, and latency percentiles of every operation. The
/// first score is compared with each of the others.
pub fn figures(workload: &Workload, scores: &[Score]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for score in scores {
        let rounds = score.rounds.len();
        let mut push = |what: &str, unit: &str, spread: Spread| {
            figures.push(Figure {
                suite: "kv".to_owned(),
                name: format!("{}/{}/{what}", workload.name, score.name),
                placement: None,
                unit: unit.to_owned(),
                median: spread.median,
                min: spread.min,
                max: spread.max,
                rounds,
                discarded: 0,
                peer: None,
                ratio: None,
                bar: None,
                holds: None,
            });
        };
        push("throughput", "ops/s", score.throughput());
        push("load throughput", "ops/s", score.load_throughput());
        for operation in Operation::ALL {
            for (share, percentile) in
                [(0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (0.999, "p99.9")]
            {
                let latencies = score.rounds.iter().filter_map(|r| r.run.latencies(operation));
                let mut latencies = latencies.map(|l| l.quantile(share) as f64).peekable();
                if latencies.peek().is_some() {
                    push(&format!("{operation} {percentile}"), "ns", Spread::of(latencies));
                }
            }
        }
    }
    if let Some((first, others)) = scores.split_first() {
        let throughput = figures[0].clone();
        figures.extend(others.iter().map(|other| Figure {
            name: format!("{}/{}/throughput", workload.name, first.name),
            peer: Some(other.name.clone()),
            ratio: Some(throughput.median / other.throughput().median.max(1.0)),
            ..throughput.clone()
        }));
    }
    figures
}
