//! Which features of which packages are checked and tested together.

use crate::step::Step;
use crate::workspace::Workspace;

/// The feature that only a nightly compiler can build.
pub(super) const NIGHTLY: &str = "nightly";

/// Features that need libraries which not every machine has: cmake, libclang, libibverbs.
const RDMA: [&str; 2] = ["rdma", "verbs"];

/// The feature that removes modules: with it, other tests of its crate do not compile.
pub(super) const SUBTRACTIVE: &str = "gossamer-rack-tests/rdma";

/// The features of the facade that a stable compiler can build on every machine.
pub(super) const FACADE_FEATURES: [&str; 4] = ["jam", "shm", "tcp", "tokio"];

/// None, and all but each: every pair of features appears together, alone either way, and absent. With each
/// transport alone, as many programs have them.
pub(super) fn choices<const N: usize>(features: [&'static str; N]) -> Vec<Vec<&'static str>> {
    let without = |one| features.into_iter().filter(|feature| *feature != one).collect();
    let alone = ["shm", "tcp"].map(|transport| vec![transport]);
    std::iter::once(Vec::new()).chain(alone).chain(features.map(without)).collect()
}

/// A command of cargo on the code for RDMA, which needs libraries that not every machine has. It
/// names all these packages: with fewer, or other features, cargo would build most dependencies
/// again. `gossamer-jam-format` has no such code, but build scripts use it, and its tests proptest: so cargo
/// gives build scripts the features of proptest's dependencies, on which the generator of the bindings to
/// libibverbs stands, too, as it does if all packages are named.
pub(crate) fn rdma(workspace: &Workspace, command: &str) -> Step {
    const PACKAGES: [&str; 10] = [
        "gossamer-rack-tests",
        "gossamer-rdma-needs",
        "gossamer-transport-rdma",
        "gossamer-rack",
        "gossamer-daemon",
        "gossamer-jam-format",
        "gossamer-jam-tests",
        "gossamer-kv",
        "gossamer-graph",
        "xtask",
    ];
    let features = features_that(workspace, |feature| RDMA.contains(&feature));
    let step = Step::cargo(&workspace.root, &format!("{command} --features={features}"));
    PACKAGES.into_iter().fold(step, |step, package| step.arg("--package").arg(package))
}

/// Every feature but [`SUBTRACTIVE`] of every member that a stable compiler can build on every machine, as
/// `package/feature,...`; with `rdma` on every machine that has the libraries of RDMA.
pub(super) fn stable_features(workspace: &Workspace, rdma: bool) -> String {
    let is_wanted = |feature: &str| {
        ![NIGHTLY, "default"].contains(&feature) && (rdma || !RDMA.contains(&feature))
    };
    let features = features_that(workspace, is_wanted);
    features.split(',').filter(|feature| *feature != SUBTRACTIVE).collect::<Vec<_>>().join(",")
}

/// The features of members whose names are wanted, as `package/feature,...`.
fn features_that(workspace: &Workspace, wanted: impl Fn(&str) -> bool) -> String {
    let of = |package: &cargo_metadata::Package| {
        let features = package.features.keys().filter(|feature| wanted(feature));
        features.map(|feature| format!("{}/{feature}", package.name)).collect::<Vec<_>>()
    };
    workspace.metadata.packages.iter().flat_map(of).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn choices_have_any_two_features_in_all_four_ways() {
        let choices = choices(FACADE_FEATURES);
        for [a, b] in FACADE_FEATURES.into_iter().flat_map(|a| FACADE_FEATURES.map(|b| [a, b])) {
            let ways = choices.iter().map(|choice| (choice.contains(&a), choice.contains(&b)));
            assert_eq!(ways.collect::<BTreeSet<_>>().len(), if a == b { 2 } else { 4 }, "{a}, {b}");
        }
    }

    #[test]
    fn all_members_have_the_same_features_of_rustix() {
        let packages = Workspace::find().unwrap().metadata.packages;
        let rustix = packages.iter().flat_map(|p| &p.dependencies).filter(|d| d.name == "rustix");
        let lists: BTreeSet<_> = rustix.map(|dependency| &dependency.features).collect();
        // With another list, most dependencies would be compiled once more.
        assert_eq!(lists.len(), 1, "{lists:?}");
    }

    #[test]
    fn features_are_those_of_a_stable_compiler() {
        let workspace = Workspace::find().unwrap();
        for rdma in [false, true] {
            let features = stable_features(&workspace, rdma);
            let is_one_of_others = |f: &str| f.ends_with("/nightly") || f.ends_with("/default");
            assert!(!features.split(',').any(is_one_of_others) && features.contains("/tokio"));
            assert!(RDMA.iter().all(|of| features.contains(&format!("/{of}")) == rdma));
        }
    }
}
