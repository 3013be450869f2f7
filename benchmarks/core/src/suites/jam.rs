//! Jams between two processes that share memory: the figures of Grodowitz et al. 2021, calls of a trustee
//! beside `apply`, and the arrival of code.

use bench_kit::harness::{Suite, Unit};
use bench_kit::product::jam::suites::Transport;
use bench_kit::product::jam::{arrival, tail};
use bench_kit::product::segment::cases::Candidate;
use bench_kit::product::segment::{Statistic, shm};
use bench_kit::product::two_process::jams_per_second;

/// The suites `jam-*`.
pub(crate) fn suites() -> Vec<Suite> {
    let unit = Unit::Nanoseconds;
    let candidate =
        Candidate { pair: shm::pair(), statistic: Statistic::Mean, is_strict: true, unit };
    let transport = Transport::on_a_pair("shm", candidate.clone(), "posix");
    let mut suites = transport.suites();
    suites.extend(transport.calls(jams_per_second));
    suites.push(arrival::suite());
    suites.push(tail::loaded("shm", &Candidate { unit: Unit::Microseconds, ..candidate.clone() }));
    suites.push(tail::waiting("shm", &candidate));
    suites
}
