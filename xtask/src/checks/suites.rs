//! `cargo xtask test`, `asan` and `ui`: README's test command, and the same tests with other compilers,
//! clients and checks.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::checks::features::NIGHTLY;
use crate::checks::levels::optimised;
use crate::step::{Step, counted, passed};
use crate::workspace::Workspace;

/// README's test command.
pub(crate) const TEST_COMMAND: &str = "cargo test --workspace";

/// The crate of programs that must not compile, and its test.
const UI: &str = "--package gossamer-compile-fail --test ui";

/// The tests that need a feature which is off by default. README's command has them built, because a
/// crate of tests turns the feature on: these fail if it is off. Of the workspace, so that dependencies
/// have the same features and are not built again.
const OPTIONAL_TESTS: &str = "test --workspace --test tokio --test tasks";

/// Tests of code that may depend on how it is divided into codegen units, each of which has its own
/// constants: [optimised] in 16 units or more, as in a release that does not set them.
const DIVIDED_TESTS: &str = "test --workspace --test many_clients --test traffic";

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
}
