//! `cargo xtask hotpath`: the instructions of a request, counted one by one.

use anyhow::Result;

use crate::step::{Step, counted};
use crate::workspace::Workspace;

/// The tests that count the instructions of an optimised program, and those of the counter. Of the
/// workspace, so that dependencies have the same features as in its other tests and are not built again.
const HOTPATH: &str = "test --workspace --test hotpath -- --ignored";
const COUNTER: &str = "test --workspace --test count -- --ignored";
/// The program, a release that is built with the other programs: what is counted is the code that they have.
const PROGRAM: &str = "one-request";
/// The variable that names it to the tests.
const VARIABLE: &str = "ONE_REQUEST";

/// `cargo xtask hotpath`.
pub(crate) fn hotpath(workspace: &Workspace) -> Result<()> {
    Workspace::check_can_measure()?;
    let program = workspace.build_program(PROGRAM)?;
    let tests = Step::cargo(&workspace.root, HOTPATH).env(VARIABLE, program);
    counted(tests, "tests of the hot path")?;
    counted(Step::cargo(&workspace.root, COUNTER), "tests of the counter")
}
