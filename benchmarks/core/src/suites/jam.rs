//! Jams between two processes that share memory: Server-Side Sum and Indirect Put beside writes of as
//! many bytes, calls of one word beside `apply`, and the arrival of code.

use bench_kit::harness::{Placement, Suite, Unit};
use bench_kit::product::jam::{arrival, latency, rate};
use bench_kit::product::segment::cases::Candidate;
use bench_kit::product::segment::{Statistic, shm};
use bench_kit::product::two_process::jams_per_second;

/// The suites `jam-*`.
pub(crate) fn suites() -> Vec<Suite> {
    let unit = Unit::Nanoseconds;
    let write = Candidate { pair: shm::pair(), statistic: Statistic::Mean, is_strict: true, unit };
    let mut code = Suite::new(
        "jam-arrival",
        "one thread; an operation is the arrival of a jam: its digest, the policy, parsing, linking",
        Placement::SingleThread,
    );
    arrival().into_iter().for_each(|case| code.push(case));
    vec![latency("shm", write, "posix", jams_per_second), rate("shm", jams_per_second), code]
}
