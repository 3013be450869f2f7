//! `cargo xtask hotpath`: the instructions of a request, counted one by one.

use anyhow::Result;

use crate::step::{Step, counted};
use crate::workspace::Workspace;

/// The tests that count the instructions of an optimised program. Of the workspace, so that dependencies
/// have the same features as in its other tests and are not built again.
const TESTS: &str = "test --workspace --test hotpath -- --ignored";
/// The variable that names the program to them.
const PROGRAM: &str = "ONE_REQUEST";

/// `cargo xtask hotpath`.
pub(crate) fn hotpath(workspace: &Workspace) -> Result<()> {
    // As a release, built with the other programs: what is counted is the code that they have.
    workspace.build_programs()?;
    let program = workspace.target().join("release/one-request");
    counted(Step::cargo(&workspace.root, TESTS).env(PROGRAM, program), "tests of the hot path")
}
