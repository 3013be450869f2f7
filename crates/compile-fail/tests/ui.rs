//! What must not compile, and what the compiler says then. `ui/pass.rs` must run: a program that
//! has to run makes trybuild build all of them completely, and captures are found when a call is
//! instantiated, which `cargo check` does not do. Messages changed? `TRYBUILD=overwrite` writes the
//! new ones, to be looked at.
//!
//! Trybuild compiles the dependencies first, and then the programs with one flag more, so cargo would
//! compile the dependencies twice. This program therefore restarts itself with [`FLAGS`] in the
//! environment, which override trybuild's: both builds have the same ones.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Overrides the `rustflags` that trybuild passes by `--config`.
const VARIABLE: &str = "CARGO_ENCODED_RUSTFLAGS";
/// What trybuild passes for the programs. After an update of trybuild, compare its `rustflags.rs` and
/// `cargo.rs`: flags that are missing here are ignored.
const FLAGS: &str = "--cfg\x1ftrybuild\x1f--verbose\x1f-A\x1fdead_code\x1f--diagnostic-width=140";

fn misuse_does_not_compile() {
    let folder = if cfg!(feature = "nightly") { "ui-nightly" } else { "ui" };
    let tests = trybuild::TestCases::new();
    tests.pass(format!("tests/{folder}/pass.rs"));
    for entry in std::fs::read_dir(format!("tests/{folder}")).expect("a folder of programs") {
        let path = entry.expect("a readable folder").path();
        if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("pass.rs") {
            tests.compile_fail(path);
        }
    }
}

fn main() -> ExitCode {
    if env::var_os(VARIABLE).is_some_and(|flags| flags == FLAGS) {
        return cases::run_here(
            &[("misuse_does_not_compile", misuse_does_not_compile)],
            |_, test| {
                test();
            },
        );
    }
    let mut again = Command::new(env::current_exe().expect("this program has a path"));
    let error = again.args(env::args_os().skip(1)).env(VARIABLE, FLAGS).exec();
    panic!("cannot start this program again: {error}");
}
