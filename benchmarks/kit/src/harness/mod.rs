//! Cases, suites, and the interleaved rounds that run them.
//!
//! All candidates of a suite take one sample each before any takes its next, so that a slow change
//! of the machine meets all of them alike. A disturbed sample is taken again, a bounded number of
//! times, and every one thrown away is counted.

mod bar;
mod case;
mod rounds;

pub use bar::{Bar, Comparison, Limit, Peer};
pub use case::{Case, Placement, Suite, Unit};
pub use rounds::{Distance, Harness, MAX_TRIES, Outcome, Progress, Sample};
