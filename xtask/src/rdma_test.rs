//! `cargo xtask rdma-test`: clippy on what needs the libraries of RDMA, which `cargo xtask lint`
//! leaves out, and the tests that need RDMA devices. Their programs are built here, and run in a
//! guest of [`rdma_vm`](crate::rdma_vm), on both of Debian's kernels: 6.1 is fast, and on 6.12 a
//! WRITE becomes visible with its tail first.
//!
//! A guest may be emulated on two processors. So the programs are optimised, still with all of
//! their checks, and run one test at a time: more threads that poll than there are processors wait
//! for each other's time slices.

use crate::deploy::action::quote;
use crate::rdma_vm::Version;
use crate::step::{Step, passed};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use cargo_metadata::Message;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::{env, fs};

/// Tests that need RDMA devices: the test programs of a package that is built with some features.
struct Suite {
    package: &'static str,
    /// Separated by commas.
    features: &'static str,
    /// What of the package is tested, as cargo's flags.
    targets: &'static str,
    /// Arguments of its test programs.
    arguments: &'static str,
}

/// All such tests.
const SUITES: [Suite; 2] = [
    Suite {
        package: "gossamer-transport-rdma",
        features: "verbs",
        targets: "--lib --tests",
        // Those that need devices are ignored where nobody has asked for them.
        arguments: "--include-ignored",
    },
    Suite {
        package: "gossamer",
        features: "rdma",
        targets: "--test rdma",
        arguments: "--include-ignored",
    },
];

/// How the programs are built, beyond what `cargo test` does.
const BUILD: &str = "--config profile.dev.opt-level=2 --no-run --message-format \
    json-render-diagnostics";
/// What the name of a program stands behind, in front of what it prints.
const MARK: &str = "==> ";
/// Seconds that all test programs may take on one kernel, emulated.
const TIMEOUT: u32 = 900;

/// Which tests to run, and where.
#[derive(Args)]
pub(crate) struct RdmaTest {
    /// Only on this one of Debian's kernels [default: on both]
    #[arg(long, value_enum)]
    kernel: Option<Version>,
    /// More arguments of the test programs: names of tests, for instance
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// A test program that was built.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    path: PathBuf,
    /// The folder of its package, where it expects to be run.
    folder: PathBuf,
    arguments: &'static str,
}

/// `cargo xtask rdma-test`.
pub(crate) fn run(workspace: &Workspace, test: &RdmaTest) -> Result<()> {
    crate::checks::lint_rdma(workspace)?;
    let mut programs = Vec::new();
    for Suite { package, features, targets, arguments } in SUITES {
        let build = format!("test --package {package} --features {features} {targets}");
        let messages = Step::cargo(&workspace.root, &build).args(BUILD).capture()?;
        let built = programs_in(&messages, arguments)?;
        ensure!(!built.is_empty(), "`cargo {build}` has no test programs");
        programs.extend(built);
    }
    let file = workspace.target().join("rdma-vm/tests.sh");
    fs::create_dir_all(file.parent().context("it is in a folder")?)?;
    fs::write(&file, script(&programs, &test.arguments)?)?;
    let kernels = test.kernel.map_or(Version::value_variants().to_vec(), |kernel| vec![kernel]);
    for kernel in kernels {
        let arguments = format!("rdma-vm --kernel {} --timeout {TIMEOUT} --", kernel.name());
        let step = Step::program(&workspace.root, env::current_exe()?, &arguments);
        let said = step.arg("sh").arg(&file).read()?;
        let count = passed(&said);
        ensure!(count > 0, "no tests ran on kernel {}", kernel.name());
        let idle = idle(&said);
        // With names of tests, some programs have none of them.
        let may_be_idle = idle.is_empty() || !test.arguments.is_empty();
        ensure!(may_be_idle, "no test of {} ran on kernel {}", idle.join(", "), kernel.name());
        println!("{count} tests passed on RDMA devices of kernel {}", kernel.name());
    }
    Ok(())
}

/// The test programs in what cargo prints as JSON, which get these arguments.
fn programs_in(messages: &[u8], arguments: &'static str) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for message in Message::parse_stream(messages) {
        let Message::CompilerArtifact(artifact) = message? else { continue };
        let Some(path) = artifact.executable.filter(|_| artifact.profile.test) else { continue };
        let folder = artifact.manifest_path.parent().context("a manifest is in a folder")?;
        programs.push(Program { path: path.into(), folder: folder.into(), arguments });
    }
    Ok(programs)
}

/// What runs the programs one after the other, all of them, with more arguments; it fails if one
/// fails.
fn script(programs: &[Program], more: &[String]) -> Result<String> {
    let more: String = more.iter().map(|word| format!(" {}", quote(word))).collect();
    let mut script = String::from("export RUST_TEST_THREADS=1\nfailed=0\n");
    for Program { path, folder, arguments } in programs {
        let [path, folder] = [path, folder].map(|path| path.to_str().map(quote));
        let (path, folder) = path.zip(folder).context("a path in UTF-8")?;
        script += &format!(
            "cd {folder} && echo \"{MARK}\"{path} && {path} {arguments}{more} || failed=1\n"
        );
    }
    Ok(script + "exit $failed\n")
}

/// The programs of which no test passed, by what all have printed.
fn idle(said: &str) -> Vec<&str> {
    let parts = said.split(MARK).skip(1).filter(|part| passed(part) == 0);
    parts.filter_map(|part| part.lines().next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    #[test]
    fn test_programs_are_found_in_what_cargo_prints() {
        let artifact = |executable: &str, is_test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"a","manifest_path":"/w/a/Cargo.toml",
                "target":{{"kind":["test"],"crate_types":["bin"],"name":"t","src_path":"/w/a/t.rs",
                "edition":"2024","doc":false,"doctest":false,"test":true}},
                "profile":{{"opt_level":"0","debuginfo":1,"debug_assertions":true,
                "overflow_checks":true,"test":{is_test}}},"features":[],"filenames":[],
                "executable":{executable},"fresh":true}}"#
            )
            .replace('\n', "")
        };
        let messages = [
            artifact("\"/target/t\"", true),
            artifact("\"/target/gossamerd\"", false),
            artifact("null", true),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = programs_in(messages.join("\n").as_bytes(), "--all").unwrap();
        let (path, folder) = ("/target/t".into(), "/w/a".into());
        assert_eq!(found, [Program { path, folder, arguments: "--all" }]);
    }

    #[test]
    fn all_programs_run_and_one_that_fails_is_not_forgotten() {
        let program = |path: &str| {
            let (path, folder) = (path.into(), Path::new("/").into());
            Program { path, folder, arguments: "-P" }
        };
        let all = ["/bin/echo", "/bin/false", "/bin/pwd"].map(program);
        let run = |programs: &[Program]| {
            let script = script(programs, &["it's".into()]).unwrap();
            let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
            (String::from_utf8(output.stdout).unwrap(), output.status.code())
        };
        let said = "==> /bin/echo\n-P it's\n==> /bin/false\n==> /bin/pwd\n/\n".to_owned();
        assert_eq!(run(&all), (said, Some(1)));
        assert_eq!(run(&all[..1]).1, Some(0));
    }
    #[test]
    fn programs_without_tests_are_named() {
        let result = |count| format!("test result: ok. {count} passed; 0 failed\n");
        let said = format!("==> /a\n{}==> /b\n{}==> /c\n", result(2), result(0));
        assert_eq!(idle(&said), ["/b", "/c"]);
        assert_eq!(idle(&format!("==> /a\n{}", result(1))), [""; 0]);
    }
}
