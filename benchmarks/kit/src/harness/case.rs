//! What a suite is made of.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::bar::{Bar, Comparison, Peer};
use crate::measure::latency::Class;
use crate::measure::sampling::{CaseError, Reading, Sampler};

/// The unit of a case's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Millions of operations a second; more is better.
    Mops,
    /// Gigabytes (10^9 bytes) a second; more is better.
    #[serde(rename = "GB/s")]
    GigabytesPerSecond,
    /// Nanoseconds an operation; less is better.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Microseconds an operation; less is better.
    #[serde(rename = "us")]
    Microseconds,
    /// Core cycles an operation; the case reads nanoseconds and the harness converts them with the
    /// frequency measured around the sample. Less is better.
    #[serde(rename = "cycles")]
    Cycles,
    /// Instructions an operation, counted exactly; less is better.
    #[serde(rename = "instructions")]
    Instructions,
    /// How often something happens in an operation, counted exactly; less is better.
    #[serde(rename = "times")]
    Times,
    /// Bytes; less is better.
    #[serde(rename = "bytes")]
    Bytes,
    /// Percent of one core; less is better.
    #[serde(rename = "%")]
    Percent,
}

impl Unit {
    /// As it stands after a number.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Mops => "Mops",
            Unit::GigabytesPerSecond => "GB/s",
            Unit::Nanoseconds => "ns",
            Unit::Microseconds => "us",
            Unit::Cycles => "cycles",
            Unit::Instructions => "instr",
            Unit::Times => "times",
            Unit::Bytes => "bytes",
            Unit::Percent => "%",
        }
    }

    /// Whether a larger figure is a better one.
    pub fn more_is_better(self) -> bool {
        matches!(self, Unit::Mops | Unit::GigabytesPerSecond)
    }
}

/// Where the cases of a suite run, which decides what disturbs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On two cores, in threads or processes pinned to them: near and far are told apart.
    Pair,
    /// On one core.
    SingleThread,
    /// Wherever the kernel puts it: idle and oversubscribed racks.
    Unpinned,
}

type Body = Box<dyn FnMut(&Sampler) -> Result<Reading, CaseError>>;

/// One candidate of a suite: a name, and a way to take one sample.
pub struct Case {
    pub(super) name: String,
    pub(super) unit: Unit,
    pub(super) body: Body,
    pub(super) comparisons: Vec<Comparison>,
}

impl Case {
    /// A case that takes a sample by calling `body`.
    ///
    /// ```
    /// use bench_kit::harness::{Bar, Case, Limit, Peer, Unit};
    ///
    /// let case = Case::new("addition", Unit::Nanoseconds, |sampler| {
    ///     sampler.single_thread(|thread| {
    ///         let mut sum = 0u64;
    ///         thread.measure(|n| (0..n).for_each(|i| sum = std::hint::black_box(sum + i)));
    ///     })
    /// })
    /// .bar(Peer::best("lock/"), Bar::ratio(Limit::AtMost(2.0)));
    /// assert_eq!(case.name(), "addition");
    /// ```
    pub fn new(
        name: impl Into<String>,
        unit: Unit,
        body: impl FnMut(&Sampler) -> Result<Reading, CaseError> + 'static,
    ) -> Case {
        Case { name: name.into(), unit, body: Box::new(body), comparisons: Vec::new() }
    }

    /// The name, unique in its suite.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reports the ratio to `peer`.
    pub fn beside(self, peer: Peer) -> Case {
        self.compared(Comparison { peer: Some(peer), ..Comparison::default() })
    }

    /// Holds the ratio to `peer`, or the value, against `bar` in every distance class.
    pub fn bar(self, peer: Peer, bar: Bar) -> Case {
        self.compared(Comparison { peer: Some(peer), bar: Some(bar), only: None })
    }

    /// Holds the ratio to `peer`, or the value, against `bar` when the cores are near; when they
    /// are far the ratio is only reported.
    pub fn bar_near(self, peer: Peer, bar: Bar) -> Case {
        self.compared(Comparison { peer: Some(peer), bar: Some(bar), only: Some(Class::Near) })
    }

    /// Holds the value itself against `bar`.
    pub fn bar_value(self, bar: Bar) -> Case {
        self.compared(Comparison { peer: None, bar: Some(bar), only: None })
    }

    /// What it is compared with.
    pub fn comparisons(&self) -> &[Comparison] {
        &self.comparisons
    }

    fn compared(mut self, comparison: Comparison) -> Case {
        self.comparisons.push(comparison);
        self
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("unit", &self.unit).finish()
    }
}

/// Candidates that are measured together.
#[derive(Debug)]
pub struct Suite {
    /// The name on the command line and in the report.
    pub name: String,
    /// One line for the report: what is done, and what one operation is.
    pub about: String,
    /// Where its cases run.
    pub placement: Placement,
    /// How long a sample takes.
    pub time: Duration,
    /// The candidates, in the order of the table.
    pub cases: Vec<Case>,
}

impl Suite {
    /// A suite without cases, whose samples take 100 ms.
    pub fn new(name: impl Into<String>, about: impl Into<String>, placement: Placement) -> Suite {
        Suite {
            name: name.into(),
            about: about.into(),
            placement,
            time: Duration::from_millis(100),
            cases: Vec::new(),
        }
    }

    /// Adds a candidate.
    ///
    /// # Panics
    /// When the suite has one of this name: peers are found by name.
    pub fn push(&mut self, case: Case) {
        assert!(
            self.cases.iter().all(|other| other.name != case.name),
            "suite `{}` has two cases named `{}`",
            self.name,
            case.name
        );
        self.cases.push(case);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_better_of_rates_only() {
        for unit in [Unit::Mops, Unit::GigabytesPerSecond] {
            assert!(unit.more_is_better(), "{}", unit.name());
        }
        for unit in [Unit::Nanoseconds, Unit::Microseconds, Unit::Cycles, Unit::Percent] {
            assert!(!unit.more_is_better(), "{}", unit.name());
        }
    }

    #[test]
    fn a_unit_is_written_to_the_list_as_the_table_shows_it() {
        for unit in [Unit::GigabytesPerSecond, Unit::Microseconds, Unit::Percent] {
            let written = serde_json::to_value(unit).expect("json");
            assert_eq!(written, unit.name());
        }
    }
}
