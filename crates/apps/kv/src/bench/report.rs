//! [`Report`]: the measurements of a group, with a compact serialized form.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest recorded latency in nanoseconds: one minute. Longer latencies count as this.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// Significant decimal digits of latencies. With 2 a histogram takes 40 KB, small enough not to
/// disturb the caches of the code it measures.
const DIGITS: u8 = 2;

/// The operations of a workload, with YCSB's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operation {
    /// Read a record.
    Read,
    /// Overwrite a field or a record.
    Update,
    /// Read records in key order.
    Scan,
    /// Add a record.
    Insert,
    /// Read a record, change a field, write it back.
    ReadModifyWrite,
}

impl Operation {
    /// All operations, in report order.
    pub const ALL: [Self; 5] =
        [Self::Read, Self::Update, Self::Scan, Self::Insert, Self::ReadModifyWrite];
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Read => "READ",
            Self::Update => "UPDATE",
            Self::Scan => "SCAN",
            Self::Insert => "INSERT",
            Self::ReadModifyWrite => "READ-MODIFY-WRITE",
        })
    }
}

/// Latencies of one kind of operation.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    /// Operations that did not find their record or were refused.
    pub failed: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS);
        Self { histogram: histogram.expect("the bounds are constants in range"), failed: 0 }
    }
}

impl Latencies {
    /// Records one operation.
    pub fn record(&mut self, latency: Duration, succeeded: bool) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanoseconds.max(1));
        self.failed += u64::from(!succeeded);
    }

    /// The number of operations.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency in nanoseconds at a quantile from 0 to 1.
    pub fn quantile(&self, share: f64) -> u64 {
        self.histogram.value_at_quantile(share)
    }

    /// The maximum latency in nanoseconds.
    pub fn max(&self) -> u64 {
        self.histogram.max()
    }

    /// The mean latency in nanoseconds.
    pub fn mean(&self) -> f64 {
        self.histogram.mean()
    }

    fn add(&mut self, other: &Self) {
        // Cannot fail: both have the same bounds.
        let _ = self.histogram.add(&other.histogram);
        self.failed += other.failed;
    }
}

/// The measurements of one group or of several.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Serialized", into = "Serialized")]
pub struct Report {
    /// Time from the start of the first operation to the end of the last; the maximum over groups.
    pub elapsed: Duration,
    latencies: Vec<(Operation, Latencies)>,
}

impl Report {
    /// The latencies of one kind of operation; `None` if it did not occur.
    pub fn latencies(&self, operation: Operation) -> Option<&Latencies> {
        self.latencies.iter().find(|(of, _)| *of == operation).map(|(_, latencies)| latencies)
    }

    /// The latencies of one kind of operation, created if it did not occur yet.
    pub fn latencies_mut(&mut self, operation: Operation) -> &mut Latencies {
        let index = self.latencies.iter().position(|(of, _)| *of == operation);
        let index = index.unwrap_or_else(|| {
            self.latencies.push((operation, Latencies::default()));
            self.latencies.len() - 1
        });
        &mut self.latencies[index].1
    }

    /// Adds the measurements of a group that ran at the same time.
    pub fn add(&mut self, other: &Self) {
        self.elapsed = self.elapsed.max(other.elapsed);
        for (operation, latencies) in &other.latencies {
            self.latencies_mut(*operation).add(latencies);
        }
    }

    /// Adds the measurements of another round.
    pub fn add_round(&mut self, other: &Self) {
        let elapsed = self.elapsed + other.elapsed;
        self.add(other);
        self.elapsed = elapsed;
    }

    /// The number of operations of all kinds.
    pub fn operations(&self) -> u64 {
        self.latencies.iter().map(|(_, latencies)| latencies.count()).sum()
    }

    /// The number of failed operations of all kinds.
    pub fn failed(&self) -> u64 {
        self.latencies.iter().map(|(_, latencies)| latencies.failed).sum()
    }

    /// Operations per second.
    pub fn throughput(&self) -> f64 {
        match self.elapsed.as_secs_f64() {
            0.0 => 0.0,
            seconds => self.operations() as f64 / seconds,
        }
    }
}

/// The serialized form of a [`Report`]: only the values that occurred, with their counts.
#[derive(Serialize, Deserialize)]
struct Serialized {
    elapsed: Duration,
    latencies: Vec<SerializedLatencies>,
}

#[derive(Serialize, Deserialize)]
struct SerializedLatencies {
    operation: Operation,
    failed: u64,
    /// Values and their counts.
    counts: Vec<(u64, u64)>,
}

impl From<Report> for Serialized {
    fn from(report: Report) -> Self {
        let sent = |(operation, latencies): (Operation, Latencies)| {
            let recorded = latencies.histogram.iter_recorded();
            let counts = recorded.map(|v| (v.value_iterated_to(), v.count_at_value())).collect();
            SerializedLatencies { operation, failed: latencies.failed, counts }
        };
        let latencies = report.latencies.into_iter().map(sent).collect();
        Self { elapsed: report.elapsed, latencies }
    }
}

impl From<Serialized> for Report {
    fn from(sent: Serialized) -> Self {
        let mut report = Self { elapsed: sent.elapsed, latencies: Vec::new() };
        for SerializedLatencies { operation, failed, counts } in sent.latencies {
            let latencies = report.latencies_mut(operation);
            latencies.failed = failed;
            for (value, count) in counts {
                latencies.histogram.saturating_record_n(value, count);
            }
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_serialization_and_addition() {
        let mut report = Report { elapsed: Duration::from_secs(2), ..Report::default() };
        for microseconds in 1..=1000 {
            let latency = Duration::from_micros(microseconds);
            report.latencies_mut(Operation::Read).record(latency, microseconds > 10);
        }
        report.latencies_mut(Operation::Scan).record(Duration::from_secs(600), true);
        let bytes = postcard::to_stdvec(&report).unwrap();
        let sent: Report = postcard::from_bytes(&bytes).unwrap();
        for report in [&report, &sent] {
            let reads = report.latencies(Operation::Read).unwrap();
            assert_eq!((reads.count(), reads.failed), (1000, 10));
            assert!((reads.quantile(0.5) as f64 / 500_000.0 - 1.0).abs() < 0.02);
            assert!(report.latencies(Operation::Insert).is_none());
        }
        let mut sum = report.clone();
        sum.add(&sent);
        assert_eq!((sum.operations(), sum.failed()), (2002, 20));
        assert_eq!(sum.throughput(), 1001.0);
        sum.add_round(&report);
        assert_eq!(sum.elapsed, Duration::from_secs(4));
    }
}
