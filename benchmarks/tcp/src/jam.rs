//! Jams between two processes over TCP, without TLS.

use bench_kit::harness::Suite;
use bench_kit::measure::sampling::Sampler;
use bench_kit::product::jam::suites::Transport;
use bench_kit::product::two_process::Work;

use crate::rack::{self, Security};
use crate::segment;

/// The suites `jam-tcp-*`.
pub(crate) fn suites() -> Vec<Suite> {
    let transport = Transport::on_a_pair("tcp", segment::candidate(Security::Off), "tcp");
    let per_second =
        |sampler: &Sampler, plan| rack::per_second(sampler, Work::Jam(plan), Security::Off);
    let mut suites = transport.suites();
    suites.extend(transport.calls(per_second));
    suites
}
