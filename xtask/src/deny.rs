//! `cargo xtask deny`: checks dependencies against `deny.toml` with cargo-deny.
//!
//! Bans, licences and sources need no network beyond the registry that the build needs anyway.
//! Advisories come from a repository on GitHub; if that cannot be reached, the gate prints that they
//! were not checked, and passes.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::step::Step;
use crate::workspace::Workspace;

/// The checks that need no network.
const OFFLINE: [&str; 3] = ["bans", "licenses", "sources"];

/// Checks all dependencies.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let deny = |arguments: &str| {
        Step::cargo(&workspace.root, &format!("deny --workspace --locked {arguments}"))
    };
    ensure!(deny("--version").works(), "cargo-deny is missing: cargo install --locked cargo-deny");
    let checks = OFFLINE.join(" ");
    // For the user: the errors, and where they are.
    deny("--log-level error check --hide-inclusion-graph --allow=duplicate").args(&checks).run()?;
    // For this gate: whether it checked anything.
    let printed = deny("--format json check").args(&checks).capture_errors()?;
    let packages = checked(&printed, workspace.metadata.packages.len())?;
    println!("deny: {} of {packages} packages agree with deny.toml", OFFLINE.join(", "));

    if !deny("fetch db").works() {
        println!(
            "deny: ADVISORIES WERE NOT CHECKED: the advisory database cannot be fetched from here \
             (cargo deny fetch db says why)"
        );
        return Ok(());
    }
    deny("--offline check --hide-inclusion-graph advisories").run()
}

/// The last line of cargo-deny's JSON.
#[derive(Deserialize)]
struct Summary {
    fields: BTreeMap<String, Count>,
}

/// The findings of one check.
#[derive(Deserialize)]
struct Count {
    errors: u64,
    /// One for each package that the check accepts, with a reason.
    helps: u64,
}

/// The number of packages whose licences were checked, if all checks ran and found no error. There
/// must be more than the workspace has itself.
fn checked(printed: &str, members: usize) -> Result<u64> {
    let last = printed.lines().rfind(|line| line.contains("\"type\":\"summary\""));
    let summary: Summary = serde_json::from_str(last.context("cargo-deny printed no summary")?)
        .context("cargo-deny printed a summary of an unknown form")?;
    for check in OFFLINE {
        let count = summary.fields.get(check);
        let count = count.with_context(|| format!("cargo-deny did not check {check}"))?;
        ensure!(count.errors == 0, "cargo-deny found {} errors in {check}", count.errors);
    }
    let packages = summary.fields["licenses"].helps;
    ensure!(
        packages > members as u64,
        "cargo-deny checked {packages} packages, expected more than the workspace's {members}"
    );
    Ok(packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(bans: u64, licenses: u64) -> String {
        format!(
            "{{\"fields\":{{\"message\":\"x\"}},\"type\":\"diagnostic\"}}\n\
             {{\"fields\":{{\"bans\":{{\"errors\":{bans},\"helps\":0,\"notes\":0,\"warnings\":5}},\
             \"licenses\":{{\"errors\":0,\"helps\":{licenses},\"notes\":1,\"warnings\":0}},\
             \"sources\":{{\"errors\":0,\"helps\":0,\"notes\":0,\"warnings\":0}}}},\
             \"type\":\"summary\"}}\n"
        )
    }

    #[test]
    fn all_checks_must_have_looked_at_the_dependencies() {
        assert_eq!(checked(&summary(0, 228), 17).unwrap(), 228);
        let refused = |printed: &str| checked(printed, 17).unwrap_err().to_string();
        assert!(refused("").contains("no summary"));
        assert!(refused(&summary(1, 228)).contains("1 errors in bans"));
        assert!(refused(&summary(0, 0)).contains("checked 0 packages"));
        assert!(refused(&summary(0, 17)).contains("checked 17 packages"));
        let without_sources = summary(0, 228).replace("sources", "advisories");
        assert!(refused(&without_sources).contains("did not check sources"));
    }
}
