//! Jams between two processes over TCP, without TLS.

use std::time::Duration;

use bench_kit::harness::Suite;
use bench_kit::measure::sampling::Sampler;
use bench_kit::product::jam::{latency, rate};
use bench_kit::product::two_process::Work;

use crate::rack::{self, Security};
use crate::segment;

/// How long a sample takes: long enough for some thousand round trips.
const TIME: Duration = Duration::from_millis(200);

/// The suites `jam-tcp-latency` and `jam-tcp-rate`.
pub(crate) fn suites() -> [Suite; 2] {
    let per_second =
        |sampler: &Sampler, plan| rack::per_second(sampler, Work::Jam(plan), Security::Off);
    let write = segment::candidate(Security::Off);
    let mut suites = [latency("tcp", write, "tcp", per_second), rate("tcp", per_second)];
    suites.iter_mut().for_each(|suite| suite.time = TIME);
    suites
}
