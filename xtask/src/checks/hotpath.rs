//! `cargo xtask hotpath`: the instructions of a request, counted one by one.

use anyhow::Result;

use crate::checks::levels::levels;
use crate::step::{Step, counted};
use crate::workspace::Workspace;

/// `cargo xtask hotpath`.
pub(crate) fn hotpath(workspace: &Workspace) -> Result<()> {
    counted(hotpath_tests(workspace, HOTPATH)?, "tests of the hot path")?;
    counted(hotpath_tests(workspace, MEASUREMENTS)?, "tests of the measurements")?;
    Ok(())
}

/// Builds what [`hotpath`] runs.
pub(crate) fn build_hotpath(workspace: &Workspace) -> Result<()> {
    hotpath_tests(workspace, HOTPATH)?.args(MEASUREMENTS).arg("--no-run").run()
}

/// The arguments of cargo for the tests of the hot path, and of the tools that trace and measure.
const HOTPATH: &str = "--test hotpath";
const MEASUREMENTS: &str = "--lib --test count";

/// What the programs that trace stand on, which is no part of the hot path.
const TOOLS: [&str; 6] = ["clap", "clap_builder", "iced-x86", "nix", "serde_json", "memchr"];

/// The command that tests the kit of the benchmarks.
fn hotpath_tests(workspace: &Workspace, tests: &str) -> Result<Step> {
    let folder = workspace.benchmarks("kit")?;
    // Optimised, since the machine code is traced, and as the programs of the workspace, which have
    // no link-time optimisation. TCP has no part in the hot path.
    let step = Step::cargo(&folder, &format!("test --release --no-default-features {tests}"));
    let step = levels(step, "release", TOOLS.map(|tool| (tool, 1)));
    Ok(step.env("CARGO_PROFILE_RELEASE_LTO", "false"))
}
