//! What must not compile, and what the compiler says then. `ui/pass.rs` must run: a program that
//! has to run makes trybuild build all of them completely, and captures are found when a call is
//! instantiated, which `cargo check` does not do. Messages changed? `TRYBUILD=overwrite` writes the
//! new ones, to be looked at.
//!
//! Trybuild builds what the programs depend on with its flags, and then once more with a flag that it
//! adds for the programs. So this program starts itself again with [`FLAGS`] in the environment,
//! where cargo takes them before those of trybuild: all flags are the same, and it builds once.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The variable of cargo that goes before trybuild's flags.
const VARIABLE: &str = "CARGO_ENCODED_RUSTFLAGS";
/// The flags of trybuild for the programs.
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
