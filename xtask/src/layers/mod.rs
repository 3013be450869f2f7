//! `cargo xtask layers`: the crates are layers, and each may use only what lies below it.
//!
//! Checked against `cargo metadata`, development dependencies included:
//! 1. a lower layer never names an upper one, nor does a layer name its neighbours, except that tests of
//!    `gossamer` name the crate that has what they test in common;
//! 2. transports never name each other, except that one which stands on a carrier may be tested
//!    over it;
//! 3. only `gossamer` and what measures layers name transports; elsewhere they may be named for tests
//!    alone;
//! 4. only tests, build scripts and the `gossamer` command name the crate that builds jams: receivers
//!    have neither a compiler driver nor a linker;
//! 5. every crate of the workspace has its place in the list.
//!
//! The same holds inside crates for their folders ([`folders`]); [`order`] has both tables. What
//! sources of some crates may not name at all is in [`bans`].

mod bans;
mod folders;
mod names;
mod order;

use anyhow::{Result, bail, ensure};
use cargo_metadata::DependencyKind;
use clap::Args;

use crate::layers::order::{
    BUILDS_JAMS, LAYERS, MEASURES, PICKS_TRANSPORTS, TESTED_OVER, TRANSPORTS,
};
use crate::workspace::Workspace;

/// `user` has `used` among its dependencies.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edge {
    user: String,
    used: String,
    for_tests: bool,
    for_build: bool,
}

/// What `cargo xtask layers` does.
#[derive(Args)]
pub(crate) struct Layers {
    /// Check nothing; print the modules of a folder (such as crates/fiber/src), lowest first, and
    /// their cycles
    #[arg(long, value_name = "FOLDER")]
    order: Option<String>,
}

/// `cargo xtask layers`.
pub(crate) fn run(workspace: &Workspace, layers: &Layers) -> Result<()> {
    match &layers.order {
        Some(folder) => folders::print_order(workspace, folder),
        None => check(workspace),
    }
}

/// Runs the gate.
fn check(workspace: &Workspace) -> Result<()> {
    let crates = workspace.metadata.packages.iter();
    let crates: Vec<&str> = crates.map(|package| package.name.as_str()).collect();
    let edges = edges(workspace, &crates);
    ensure!(!edges.is_empty(), "no crate uses another, expected dependencies to check");
    let mut broken = broken_rules(&crates, &edges);
    let folders = folders::check(workspace, &mut broken)?;
    let bans = bans::check(workspace, &mut broken)?;
    if !broken.is_empty() {
        bail!("{} violations of the order:\n  {}", broken.len(), broken.join("\n  "));
    }
    println!(
        "layers: {} crates and {} dependencies between them keep the order; {folders}; {bans}",
        crates.len(),
        edges.len()
    );
    Ok(())
}

fn edges(workspace: &Workspace, crates: &[&str]) -> Vec<Edge> {
    let mut edges = Vec::new();
    for package in &workspace.metadata.packages {
        for used in package.dependencies.iter().filter(|d| crates.contains(&d.name.as_str())) {
            edges.push(Edge {
                user: package.name.to_string(),
                used: used.name.clone(),
                for_tests: used.kind == DependencyKind::Development,
                for_build: used.kind == DependencyKind::Build,
            });
        }
    }
    edges
}

fn rank(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

fn broken_rules(crates: &[&str], edges: &[Edge]) -> Vec<String> {
    let mut broken = Vec::new();
    for name in crates.iter().filter(|name| rank(name).is_none()) {
        broken.push(format!(
            "{name} has no place in the table LAYERS: give it one in xtask/src/layers/order.rs"
        ));
    }
    broken.extend(edges.iter().filter_map(broken_rule));
    broken
}

fn broken_rule(edge: &Edge) -> Option<String> {
    let Edge { user, used, for_tests, for_build } = edge;
    let is_transport = |name: &str| TRANSPORTS.contains(&name);
    // A crate without a place has been reported as such.
    let (above, below) = (rank(user)?, rank(used)?);
    // A crate's tests may name the crate itself, to turn its features for tests on.
    let names = (&user[..], &used[..]);
    if *for_tests && (user == used || names == TESTED_OVER) {
        None
    } else if is_transport(user) && is_transport(used) {
        Some(format!("{user} names {used}: transports do not know each other"))
    } else if below >= above {
        Some(format!("{user} names {used}, which does not lie below it"))
    } else if is_transport(used) && ![PICKS_TRANSPORTS, MEASURES].contains(&names.0) && !for_tests {
        Some(format!(
            "{user} names {used}: only {PICKS_TRANSPORTS} and {MEASURES} know transports (others: for \
             tests)"
        ))
    } else if used == BUILDS_JAMS.0 && user != BUILDS_JAMS.1 && !for_tests && !for_build {
        Some(format!("{user} names {used}: expected it in tests and build scripts only"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(user: &str, used: &str) -> Edge {
        Edge { user: user.into(), used: used.into(), for_tests: false, for_build: false }
    }

    fn test_edge(user: &str, used: &str) -> Edge {
        Edge { for_tests: true, ..edge(user, used) }
    }

    #[test]
    fn looking_down_is_allowed() {
        assert_eq!(broken_rule(&edge("gossamer-trust-core", "gossamer-transport-api")), None);
        assert_eq!(broken_rule(&edge("gossamer-rack", "gossamer-transport-shm")), None);
        assert_eq!(broken_rule(&edge("gossamer-kv", "gossamer-rack")), None);
        assert_eq!(broken_rule(&edge(MEASURES, "gossamer-transport-shm")), None);
        assert_eq!(broken_rule(&test_edge("gossamer-trust-core", "gossamer-transport-shm")), None);
        assert_eq!(broken_rule(&test_edge("gossamer-segment", "gossamer-segment")), None);
    }

    #[test]
    fn looking_up_is_not() {
        let broken = broken_rule(&edge("gossamer-primitive", "gossamer-trust-core")).unwrap();
        assert!(broken.contains("does not lie below it"), "{broken}");
        let for_tests = test_edge("gossamer-transport-api", "gossamer-transport-shm");
        assert!(broken_rule(&for_tests).unwrap().contains("does not lie below it"));
    }

    #[test]
    fn only_builds_know_how_jams_are_built() {
        let broken = broken_rule(&edge("gossamer-rack", "gossamer-jam-build")).unwrap();
        assert!(broken.contains("tests and build scripts only"), "{broken}");
        let for_build = Edge { for_build: true, ..edge("gossamer-kv", "gossamer-jam-build") };
        assert_eq!(broken_rule(&for_build), None);
        assert_eq!(broken_rule(&test_edge("gossamer-rack", "gossamer-jam-build")), None);
        assert_eq!(broken_rule(&edge("gossamer-daemon", "gossamer-jam-build")), None);
    }

    #[test]
    fn transports_do_not_know_each_other_even_in_tests() {
        let broken = test_edge("gossamer-transport-tcp", "gossamer-transport-shm");
        assert!(broken_rule(&broken).unwrap().contains("do not know each other"));
    }

    #[test]
    fn a_transport_may_be_tested_over_its_carrier() {
        let (rdma, tcp) = TESTED_OVER;
        assert_eq!(broken_rule(&test_edge(rdma, tcp)), None);
        assert!(broken_rule(&edge(rdma, tcp)).is_some(), "but not made of it");
        assert!(broken_rule(&test_edge(tcp, rdma)).is_some(), "nor the other way round");
    }

    #[test]
    fn only_gossamer_and_the_kit_know_transports() {
        let broken = broken_rule(&edge("gossamer-trust-core", "gossamer-transport-shm")).unwrap();
        assert!(broken.contains("only gossamer-rack and bench-kit know transports"), "{broken}");
        assert!(broken_rule(&edge("gossamer-kv", "gossamer-transport-shm")).is_some());
    }

    #[test]
    fn a_crate_without_a_place_is_reported() {
        let broken = broken_rules(&["gossamer-rack", "gossamer-new"], &[]);
        assert_eq!(broken.len(), 1);
        assert!(broken[0].contains("gossamer-new has no place"), "{broken:?}");
    }

    #[test]
    fn this_workspace_keeps_the_order() {
        let workspace = Workspace::find().unwrap();
        let crates: Vec<_> = workspace.metadata.packages.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(broken_rules(&crates, &edges(&workspace, &crates)), Vec::<String>::new());
    }
}
