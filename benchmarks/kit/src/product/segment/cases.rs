//! Cases that several programs of benchmarks have: [`Candidate`], and the paper's tables.

use std::time::Duration;

use super::pair::Pair;
use super::plan::{Figure, NameOp, Plan, RemoteOp, Request, Statistic, Wait};
use crate::harness::Limit::AtMost;
use crate::harness::{Bar, Case, Peer, Placement, Suite, Unit};
use crate::measure::sampling::{CaseError, Reading, Sampler};

/// How long a sample of a suite takes in which a sleeping process is woken, each time after a pause.
pub const WAKE_UP_TIME: Duration = Duration::from_millis(400);

/// Segments over one transport.
#[derive(Clone)]
pub struct Candidate {
    /// The hosts.
    pub pair: Pair,
    /// Which of many operations counts.
    pub statistic: Statistic,
    /// Whether a sample in which the importer lost its core is thrown away.
    pub is_strict: bool,
    /// What durations are given in.
    pub unit: Unit,
}

impl Candidate {
    /// What comes out of a plan.
    ///
    /// # Errors
    /// Those of a case.
    pub fn whole_figure(&self, sampler: &Sampler, plan: Plan) -> Result<Figure, CaseError> {
        let request = Request { plan, statistic: self.statistic, time: sampler.time };
        let figure = self.pair.figure(sampler, request)?;
        if self.is_strict {
            figure.undisturbed()?;
        }
        Ok(figure)
    }

    fn figure(&self, sampler: &Sampler, plan: Plan) -> Result<f64, CaseError> {
        self.whole_figure(sampler, plan).map(|figure| figure.value)
    }

    /// A case whose figure, in nanoseconds, is converted.
    pub fn converted(
        &self,
        name: impl Into<String>,
        unit: Unit,
        plan: Plan,
        convert: impl Fn(f64) -> f64 + 'static,
    ) -> Case {
        let this = self.clone();
        Case::new(name, unit, move |sampler| Ok(Reading::of(convert(this.figure(sampler, plan)?))))
    }

    /// What a nanosecond is in its unit.
    ///
    /// # Panics
    /// If that does not measure time.
    pub fn per_ns(&self) -> f64 {
        match self.unit {
            Unit::Nanoseconds => 1.0,
            Unit::Microseconds => 1e-3,
            other => panic!("{} is not a unit of time", other.name()),
        }
    }

    /// How long an operation takes.
    ///
    /// # Panics
    /// If the unit of the candidate does not measure time.
    pub fn duration(&self, name: impl Into<String>, plan: Plan) -> Case {
        let per_ns = self.per_ns();
        self.converted(name, self.unit, plan, move |ns| ns * per_ns)
    }

    /// How long there and back takes, of a plan that gives half of it.
    ///
    /// # Panics
    /// As [`Candidate::duration`].
    pub fn round_trip(&self, name: impl Into<String>, plan: Plan) -> Case {
        let twice = 2.0 * self.per_ns();
        self.converted(name, self.unit, plan, move |ns| ns * twice)
    }

    /// How many bytes per second an operation on this many bytes moves.
    pub fn throughput(&self, name: impl Into<String>, bytes: usize, plan: Plan) -> Case {
        self.converted(name, Unit::GigabytesPerSecond, plan, move |ns| bytes as f64 / ns)
    }

    /// CPU time of the owner's process while the other repeats an operation.
    pub fn owner_cpu(&self, name: impl Into<String>, op: RemoteOp) -> Case {
        let this = self.clone();
        let plan = Plan::OwnerCpu(op);
        Case::new(name, Unit::Percent, move |sampler| {
            // What the importer lost does not matter to the other's process.
            let request = Request { plan, statistic: this.statistic, time: sampler.time };
            let Figure { value, .. } = this.pair.figure(sampler, request)?;
            Ok(Reading::of(value))
        })
    }

    /// How often something that is counted happens in an operation.
    pub fn count(&self, name: impl Into<String>, plan: Plan) -> Case {
        self.converted(name, Unit::Times, plan, |times| times)
    }
}

/// Table 2 of the paper: what data and control cost. `over` names the transport in the suite's name.
pub fn table_2(candidate: &Candidate, over: &str, placement: Placement) -> Suite {
    let about = "Table 2 of Thekkath, Levy and Lazowska 1994, there: write of 40 bytes 30 us, read \
                 45 us (1.5), compare-and-swap 38 us (1.27), blocks of 4 KiB 35.4 Mb/s, and a \
                 notification 260 us more (9.7 for both)";
    let mut suite = Suite::new(format!("segment-{over}-table-2"), about, placement);
    suite.time = WAKE_UP_TIME;
    let write = candidate.duration("write, 40 bytes, one way", Plan::OneWay(40));
    let peer = Peer::case(write.name());
    suite.push(write);
    let others = [
        ("read, 40 bytes", Plan::Repeat(RemoteOp::Read(40))),
        ("compare_swap", Plan::Repeat(RemoteOp::CompareSwap)),
        ("write_notify, 8 bytes, one way, to a process that polls", Plan::Notify(Wait::Polls)),
        ("write_notify, 8 bytes, one way, to a process that sleeps", Plan::WakeUp),
    ];
    for (name, plan) in others {
        suite.push(candidate.duration(name, plan).beside(peer.clone()));
    }
    for (name, plan) in [
        ("write_block, 4 KiB", Plan::Repeat(RemoteOp::WriteBlock(4096))),
        ("read_block, 4 KiB", Plan::Repeat(RemoteOp::ReadBlock(4096))),
    ] {
        suite.push(candidate.throughput(name, 4096, plan));
    }
    suite
}

/// Table 3 of the paper: what names cost. `over` names the transport in the suite's name.
pub fn table_3(candidate: &Candidate, over: &str, placement: Placement) -> Suite {
    let about = "Table 3 of Thekkath, Levy and Lazowska 1994, there: lookup cached 196 us, uncached \
                 264 us (1.35), with control transfer 524 us (2.67), export 665 us (3.39), revoke \
                 307 us (1.57)";
    let mut suite = Suite::new(format!("segment-{over}-names"), about, placement);
    let cached = candidate.duration("lookup, cached", Plan::Names(NameOp::Cached));
    let local = Peer::case(cached.name());
    suite.push(cached);
    let name = "a cached lookup and 1.2 READs";
    let limit = candidate.duration(name, Plan::Names(NameOp::CachedAndRead));
    let uncached = candidate.duration("lookup, uncached", Plan::Names(NameOp::Uncached));
    let bar = Bar::ratio(AtMost(1.0));
    suite.push(uncached.beside(local.clone()).bar(Peer::case(limit.name()), bar));
    suite.push(limit);
    for (name, op) in [
        ("lookup, control transfer", NameOp::ControlTransfer),
        ("export", NameOp::Export),
        ("revoke", NameOp::Revoke),
    ] {
        suite.push(candidate.duration(name, Plan::Names(op)).beside(local.clone()));
    }
    suite
}
