//! `cargo xtask loom`: models of protocols, in every order that threads may take.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::checks::levels::levels;
use crate::step::{Step, counted};
use crate::workspace::Workspace;

/// Crates with protocols, which must have loom models (test programs called `loom_*`); others may.
const MODELLED: [&str; 5] = [
    "gossamer-jam",
    "gossamer-mailbox",
    "gossamer-segment",
    "gossamer-transport-api",
    "gossamer-trust-core",
];

/// `cargo xtask loom`.
pub(crate) fn loom(workspace: &Workspace) -> Result<()> {
    build_loom(workspace)?;
    for (package, model) in models(workspace)? {
        let step = loom_tests(workspace)?.args(&format!("--test {model}"));
        counted(step, &format!("models in {package}'s {model}"))?;
    }
    Ok(())
}

/// Builds all loom models at once.
pub(crate) fn build_loom(workspace: &Workspace) -> Result<()> {
    let all = models(workspace)?.into_iter();
    let step = all.fold(loom_tests(workspace)?, |step, (_, model)| step.args("--test").arg(model));
    step.arg("--no-run").run()
}

/// The loom models, as (package, test program).
fn models(workspace: &Workspace) -> Result<Vec<(String, String)>> {
    let models = workspace.tests("loom_");
    ensure!(!models.is_empty(), "no crate has a test program called loom_*");
    let without: Vec<&str> =
        MODELLED.into_iter().filter(|name| models.iter().all(|(of, _)| of != name)).collect();
    ensure!(without.is_empty(), "no tests/loom_*.rs in {}", without.join(", "));
    Ok(models)
}

/// The command that tests models, always of the same packages: see `Workspace::build_programs`.
fn loom_tests(workspace: &Workspace) -> Result<Step> {
    let models = models(workspace)?;
    let packages: BTreeSet<&str> = models.iter().map(|(package, _)| package.as_str()).collect();
    let packages: String = packages.iter().map(|name| format!(" --package {name}")).collect();
    let step = Step::cargo(&workspace.root, &format!("test --release{packages}"));
    // What explores is optimised; most dependencies are only linked, some of which Cargo.toml names.
    let linked = ["\"*\"", "regex-automata", "regex-syntax", "tracing-subscriber"];
    let step = levels(step, "release", linked.map(|package| (package, 0)));
    let step = levels(step, "release", [("loom", 3), ("generator", 3)])
        .env("RUSTFLAGS", "--cfg loom")
        // Under `--cfg loom` everything is another program, hence a folder of its own.
        .env("CARGO_TARGET_DIR", workspace.target().join("loom"))
        // Building takes longer than exploring.
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    Ok(step)
}
