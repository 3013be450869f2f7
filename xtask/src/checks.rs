//! The gates that run cargo's own tools: formatting, clippy, documentation, tests, compile-fail
//! tests and loom models. They share one build folder wherever the compiler's flags are the same.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::step::{Step, counted, passed};
use crate::workspace::Workspace;
use crate::{aarch64, pages, subjects};

/// README's test command.
pub(crate) const TEST_COMMAND: &str = "cargo test --workspace";
/// The crate of programs that must not compile, and its test.
const UI: &str = "--package gossamer-compile-fail --test ui";
/// Crates with protocols, which must have loom models (test programs called `loom_*`); others may.
const MODELLED: [&str; 5] = [
    "gossamer-jam",
    "gossamer-mailbox",
    "gossamer-segment",
    "gossamer-transport-api",
    "gossamer-trust-core",
];
/// The feature that only a nightly compiler can build.
const NIGHTLY: &str = "nightly";

/// Folders that are workspaces of their own.
const OWN_WORKSPACES: [&str; 5] =
    ["benchmarks/kit", "benchmarks/core", "benchmarks/tcp", "benchmarks/rdma", "fuzz"];

/// Features that need libraries which not every machine has: cmake, libclang, libibverbs.
const RDMA: [&str; 2] = ["rdma", "verbs"];

/// The feature that removes modules: with it, other tests of its crate do not compile.
const SUBTRACTIVE: &str = "gossamer-rack-tests/rdma";

/// The features of the facade that a stable compiler can build on every machine.
const FACADE_FEATURES: [&str; 4] = ["jam", "shm", "tcp", "tokio"];

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

/// Choices of features, in which any two are chosen together, either without the other, and neither: none,
/// and all but each.
fn choices<const N: usize>(features: [&'static str; N]) -> Vec<Vec<&'static str>> {
    let without = |one| features.into_iter().filter(|feature| *feature != one).collect();
    std::iter::once(Vec::new()).chain(features.map(without)).collect()
}

/// A command of cargo on the code for RDMA, which needs libraries that not every machine has. It
/// names all these packages: with fewer, or other features, cargo would build most dependencies
/// again.
pub(crate) fn rdma(workspace: &Workspace, command: &str) -> Step {
    const PACKAGES: [&str; 9] = [
        "gossamer-rack-tests",
        "gossamer-rdma-needs",
        "gossamer-transport-rdma",
        "gossamer-rack",
        "gossamer-daemon",
        "gossamer-jam-tests",
        "gossamer-kv",
        "gossamer-graph",
        "xtask",
    ];
    let features = features_that(workspace, |feature| RDMA.contains(&feature));
    let step = Step::cargo(&workspace.root, &format!("{command} --features={features}"));
    PACKAGES.into_iter().fold(step, |step, package| step.arg("--package").arg(package))
}

/// `cargo xtask doc`; `rdma` as for [`lint`].
pub(crate) fn doc(workspace: &Workspace, rdma: bool) -> Result<()> {
    pages::check(workspace)?;
    // With examples, for which cargo takes the features that tests need: they are those of `lint`, so
    // dependencies are not checked again.
    Step::cargo(&workspace.root, "doc --no-deps --lib --bins --examples --workspace")
        .arg(format!("--features={}", stable_features(workspace, rdma)))
        .env("RUSTDOCFLAGS", "-Dwarnings")
        .run()?;
    let page = workspace.target().join("doc/gossamer/index.html");
    ensure!(page.is_file(), "cargo doc wrote no {}", page.display());
    Ok(())
}

/// Every feature but [`SUBTRACTIVE`] of every member that a stable compiler can build on every machine, as
/// `package/feature,...`; with `rdma` on every machine that has the libraries of RDMA.
fn stable_features(workspace: &Workspace, rdma: bool) -> String {
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

/// The tests that need a feature which is off by default. README's command has them built, because a
/// crate of tests turns the feature on: these fail if it is off. Of the workspace, so that dependencies
/// have the same features and are not built again.
const OPTIONAL_TESTS: &str = "test --workspace --test tokio --test tasks";

/// Tests of code that may depend on how it is divided into codegen units, each of which has its own
/// constants: [optimised] in 16 units or more, as in a release that does not set them.
const DIVIDED_TESTS: &str = "test --workspace --test many_clients --test traffic";
/// The packages that are [optimised]. The rest is built as for all other tests, and not again.
const OPTIMISED: [&str; 10] = [
    "gossamer-fiber",
    "gossamer-jam",
    "gossamer-mailbox",
    "gossamer-primitive",
    "gossamer-segment",
    "gossamer-transport-api",
    "gossamer-transport-rdma",
    "gossamer-transport-shm",
    "gossamer-transport-tcp",
    "gossamer-trust-core",
];

/// Optimises what racks run, with all of its checks, and has calls inlined as in a release. All tests
/// that are optimised have the same packages so, and share them.
pub(crate) fn optimised(step: Step) -> Step {
    let step = step.env("GOSSAMER_INLINE_CALLS", "1");
    levels(step, "dev", OPTIMISED.map(|package| (package, 2)))
}

/// Builds packages with these levels of optimisation.
fn levels<const N: usize>(step: Step, profile: &str, levels: [(&str, u8); N]) -> Step {
    levels.into_iter().fold(step, |step, (package, level)| {
        step.arg("--config").arg(format!("profile.{profile}.package.{package}.opt-level={level}"))
    })
}

/// `cargo xtask test`: README's command, the tests of optional features and of another profile, and
/// the extras that were asked for.
pub(crate) fn test(workspace: &Workspace, clients: bool, nightly: bool) -> Result<()> {
    let command = TEST_COMMAND.strip_prefix("cargo ").expect("it is a cargo command");
    counted(Step::cargo(&workspace.root, command), "tests")?;
    counted(Step::cargo(&workspace.root, OPTIONAL_TESTS), "tests of optional features")?;
    let divided = optimised(Step::cargo(&workspace.root, DIVIDED_TESTS));
    counted(divided, "tests in many units of code")?;
    other_switch(workspace)?;
    if clients {
        real_clients(&workspace.root)?;
    }
    if nightly {
        on_nightly(workspace)?;
    }
    Ok(())
}

/// Tests the portable switch of stacks, which all processors but x86-64 use, on this one.
fn other_switch(workspace: &Workspace) -> Result<()> {
    counted(switch_tests(workspace), "tests of fibers with the switch of other processors")
}

fn switch_tests(workspace: &Workspace) -> Step {
    Step::cargo(&workspace.root, "test --package gossamer-fiber")
        .env("RUSTFLAGS", "--cfg switch_portable")
        // Another program, hence a folder of its own.
        .env("CARGO_TARGET_DIR", workspace.target().join("switch_portable"))
}

/// Builds what [`test()`] tests in build folders of their own: [`ahead`](crate::ahead).
pub(crate) fn build_others(workspace: &Workspace) -> Result<()> {
    switch_tests(workspace).arg("--no-run").run()?;
    // Most of its time is in the programs that it compiles, and keeps.
    on_nightly(workspace)
}

fn real_clients(root: &Path) -> Result<()> {
    let mut missing = Vec::new();
    if !Step::program(root, "python3", "-c").arg("import pymemcache").works() {
        missing.push("pymemcache (python3 -m pip install pymemcache)");
    }
    if !Step::program(root, "sh", "-c").arg("command -v memccapable").works() {
        missing.push("memccapable (apt-get install libmemcached-tools)");
    }
    if !Step::program(root, "sh", "-c").arg("command -v memcached").works() {
        missing.push("memcached (apt-get install memcached)");
    }
    ensure!(missing.is_empty(), "missing memcached programs: {}", missing.join(", "));
    // Of the workspace, for the reason of OPTIONAL_TESTS.
    let tests = "test --workspace --test memcached_clients --test memcached_same -- --ignored";
    counted(Step::cargo(root, tests), "tests with real clients")
}

/// Whether there is a nightly toolchain; if not, prints that `command` has tested nothing.
fn has_nightly(root: &Path, command: &str) -> bool {
    let works = Step::program(root, "rustup", "run nightly rustc --version").works();
    if !works {
        println!(
            "{command}: no nightly toolchain on this machine, so nothing was tested on one \
             (rustup toolchain install nightly)"
        );
    }
    works
}

fn on_nightly(workspace: &Workspace) -> Result<()> {
    let root = &workspace.root;
    if !has_nightly(root, "test --nightly") {
        return Ok(());
    }
    // A folder of its own: two compilers in one would rebuild each other's work every time.
    let arguments = format!("run nightly cargo test {UI} --features {NIGHTLY}");
    let step = Step::program(root, "rustup", &arguments)
        .env("CARGO_TARGET_DIR", workspace.target().join(NIGHTLY));
    counted(step, "compile-fail tests on nightly")
}

/// Crates whose tests run under AddressSanitizer, each with a test that must pass. That of fibers
/// and that of jams pass only if AddressSanitizer detects an error in a fiber, and in freed code.
const SANITIZED: [(&str, &str); 4] = [
    ("gossamer-fiber", "a_local_of_a_function_that_has_returned_is_used_after_a_switch"),
    ("gossamer-trust-core", "a_value_entrusted_by_another_thread_is_found_counted_and_dropped"),
    ("gossamer-jam", "arena::chunk::tests::a_place_that_is_free_is_not_accessed"),
    ("gossamer-jam-executor", "memory_is_moved_to_where_it_overlaps"),
];

/// `cargo xtask asan`: the tests of fibers, of delegation and of jams with AddressSanitizer, to which
/// `fiber` announces the switches between fibers. Only nightly compilers have it.
pub(crate) fn asan(workspace: &Workspace) -> Result<()> {
    let root = &workspace.root;
    if !has_nightly(root, "asan") {
        return Ok(());
    }
    // With a target named, the flags are not those of build scripts. The standard library is not
    // built again: AddressSanitizer does not look at what that does inside.
    let target = "x86_64-unknown-linux-gnu";
    for (package, required) in SANITIZED {
        let arguments =
            format!("run nightly cargo test --package {package} --lib --tests --target {target}");
        let step = Step::program(root, "rustup", &arguments)
            .env("RUSTFLAGS", "-Zsanitizer=address --cfg address_sanitizer")
            // The stacks of suspended fibers are not searched for pointers, so leaks would be found
            // where there are none. Faults are left to the handlers that are tested.
            .env("ASAN_OPTIONS", "detect_leaks=0:handle_segv=0:handle_sigbus=0")
            .env("CARGO_TARGET_DIR", workspace.target().join("asan"));
        let count = passed_with(&step.read()?, required)?;
        println!("{count} tests of {package} passed under AddressSanitizer");
    }
    Ok(())
}

/// The number of tests that passed according to `printed`; an error if `required` is not one of them.
fn passed_with(printed: &str, required: &str) -> Result<usize> {
    let is_required = |line: &str| line.ends_with(&format!("{required} ... ok"));
    ensure!(printed.lines().any(is_required), "the test {required} did not run, or did not pass");
    Ok(passed(printed))
}

/// `cargo xtask ui`.
pub(crate) fn ui(workspace: &Workspace) -> Result<()> {
    counted(Step::cargo(&workspace.root, &format!("test {UI}")), "compile-fail tests")
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> Step {
        Step::program(Path::new("/"), "echo", text)
    }

    #[test]
    fn test_programs_without_tests_are_a_failure() {
        let nothing = "test result: ok. 0 passed; 0 failed; 3 ignored";
        assert_eq!(counted(printed(nothing), "models").unwrap_err().to_string(), "no models ran");
        assert!(counted(printed("test result: ok. 1 passed; 0 failed"), "models").is_ok());
    }

    #[test]
    fn a_required_test_that_did_not_run_is_a_failure() {
        let printed = "test tests::seen ... ok\ntest result: ok. 2 passed; 0 failed";
        assert_eq!(passed_with(printed, "seen").unwrap(), 2);
        assert!(passed_with(printed, "unseen").is_err());
        assert!(passed_with("test tests::seen ... FAILED", "seen").is_err());
        assert!(passed_with("test tests::seen ... ignored", "seen").is_err());
    }

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
