//! Levels of optimisation for some packages of a build.

use crate::step::Step;

/// The packages that are [optimised]. The rest is built as for all other tests, and not again.
const OPTIMISED: [&str; 10] = [
    "gossamer-fiber",
    "gossamer-mailbox",
    "gossamer-primitive",
    "gossamer-rdma-protocol",
    "gossamer-segment",
    "gossamer-transport-api",
    "gossamer-transport-rdma",
    "gossamer-transport-shm",
    "gossamer-transport-tcp",
    "gossamer-trust-core",
];

/// Optimises the protocols and transports under a rack, with all of their checks, and has calls inlined as in a
/// release. All tests that are optimised have the same packages so, and share them.
pub(crate) fn optimised(step: Step) -> Step {
    let step = step.env("GOSSAMER_INLINE_CALLS", "1");
    levels(step, "dev", OPTIMISED.map(|package| (package, 2)))
}

/// Builds packages with these levels of optimisation.
pub(super) fn levels<const N: usize>(step: Step, profile: &str, levels: [(&str, u8); N]) -> Step {
    levels.into_iter().fold(step, |step, (package, level)| {
        step.arg("--config").arg(format!("profile.{profile}.package.{package}.opt-level={level}"))
    })
}
