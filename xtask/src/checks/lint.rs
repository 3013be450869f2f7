//! `cargo xtask lint` and `cargo xtask doc`.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::checks::features::{FACADE_FEATURES, SUBTRACTIVE, choices, stable_features};
use crate::step::Step;
use crate::workspace::Workspace;
use crate::{aarch64, pages, subjects};

/// Folders that are workspaces of their own.
const OWN_WORKSPACES: [&str; 4] = ["benchmarks/core", "benchmarks/tcp", "benchmarks/rdma", "fuzz"];

/// `cargo xtask lint`; `rdma` includes the code that needs the libraries of RDMA.
pub(crate) fn lint(workspace: &Workspace, rdma: bool) -> Result<()> {
    subjects::check(workspace)?;
    Step::cargo(&workspace.root, "fmt --all --check").run()?;
    for folder in OWN_WORKSPACES {
        Step::cargo(&workspace.own_workspace(folder)?, "fmt --check").run()?;
    }
    let features = stable_features(workspace, rdma);
    Step::cargo(&workspace.root, "clippy --workspace --all-targets")
        .arg(format!("--features={features}"))
        .arg("--")
        .arg("-Dwarnings")
        .run()?;
    if rdma {
        // The rest is as before, and not checked again.
        Step::cargo(&workspace.root, "clippy --workspace --lib --test rdma --test segments_rdma")
            .arg(format!("--features={features},{SUBTRACTIVE}"))
            .args("-- -Dwarnings")
            .run()?;
    }
    // The facade with other features than all, tests included, as a user may choose them: never with
    // RDMA, so code that only racks without it have is checked here. With xtask, most dependencies have
    // the features that they have in the workspace, and are not checked again.
    for features in choices(FACADE_FEATURES) {
        let features: Vec<_> =
            features.iter().map(|feature| format!("gossamer-rack/{feature}")).collect();
        let packages = "clippy --package gossamer-rack --package xtask --no-default-features";
        Step::cargo(&workspace.root, packages)
            .args("--lib --tests --examples")
            .arg(format!("--features={}", features.join(",")))
            .arg("--")
            .arg("-Dwarnings")
            .run()?;
    }
    check_aarch64(&workspace.root)
}

/// Runs clippy for 64-bit ARM on what differs by processor, where rustup has that target. A dependency compiles
/// C, which is not needed for that: `true` stands for its compiler.
fn check_aarch64(root: &Path) -> Result<()> {
    if !aarch64::rustup_has_target(root) {
        println!("not checked for {0}: rustup target add {0}", aarch64::TARGET);
        return Ok(());
    }
    let packages = "clippy --package gossamer-jam --package gossamer-jam-executor \
                    --package gossamer-mailbox --package gossamer-transport-shm";
    Step::cargo(root, &format!("{packages} --target {}", aarch64::TARGET))
        .args("-- -Dwarnings")
        .env("CC_aarch64_unknown_linux_gnu", "true")
        .env("AR_aarch64_unknown_linux_gnu", "true")
        .run()
}

/// `cargo xtask doc`; `rdma` as for [`lint`].
pub(crate) fn doc(workspace: &Workspace, rdma: bool) -> Result<()> {
    pages::check(workspace)?;
    // With one example, for which cargo enables the features that tests need: they are those of `lint`, so
    // dependencies are not checked again. The pages of the others have no readers.
    Step::cargo(&workspace.root, "doc --no-deps --lib --bins --example counter --workspace")
        .arg(format!("--features={}", stable_features(workspace, rdma)))
        .env("RUSTDOCFLAGS", "-Dwarnings")
        .run()?;
    let page = workspace.target().join("doc/gossamer/index.html");
    ensure!(page.is_file(), "cargo doc wrote no {}", page.display());
    Ok(())
}
