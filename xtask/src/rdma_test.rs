//! `cargo xtask rdma-test`: the tests that need RDMA devices. Their programs are built here, and run in a
//! guest of [`gossamer_guest`], on both of Debian's kernels: 6.1 is fast, and on 6.12 a WRITE becomes
//! visible with its tail first. Tests of the same programs that need no device run here, where
//! nothing is emulated.
//!
//! A guest may be emulated on two processors. So what lies under a rack is optimised, with all of its
//! checks, and programs run one test at a time: polling threads that outnumber the processors wait for
//! each other's time slices. For the same reason one guest runs after the other. The transport is tested
//! on both kernels; racks only on 6.12, which reorders writes, unless `--kernel` names the other.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Message;
use cargo_metadata::camino::Utf8PathBuf;
use clap::{Args, ValueEnum};
use gossamer_deploy::action::quote;
use gossamer_guest::kernel::Version;

use crate::checks;
use crate::rdma_vm::cache;
use crate::step::{Step, itself, passed};
use crate::times::Times;
use crate::workspace::Workspace;

/// Tests that need RDMA devices: some test programs of a package.
struct Suite {
    package: &'static str,
    /// Their names; unit tests have that of their library.
    programs: &'static [&'static str],
    /// Their kernels without `--kernel`.
    kernels: &'static [Version],
}

/// All such tests.
const SUITES: [Suite; 5] = [
    Suite {
        package: "gossamer-transport-rdma",
        programs: &["gossamer_transport_rdma", "conformance", "payloads", "killed", "link_down"],
        kernels: &[Version::Six1, Version::Six12],
    },
    Suite {
        package: "gossamer-rack-tests",
        programs: &["rdma", "segments_rdma"],
        kernels: &[Version::Six12],
    },
    Suite {
        package: "gossamer-jam-tests",
        programs: &["mailboxes_rdma", "racks_rdma"],
        kernels: &[Version::Six12],
    },
    Suite { package: "gossamer-graph", programs: &["rdma"], kernels: &[Version::Six12] },
    Suite { package: "gossamer-daemon", programs: &["rdma"], kernels: &[Version::Six12] },
];

/// The argument of test programs in guests: elsewhere, tests that need devices are ignored.
const ON_DEVICES: &str = "--ignored";
/// The arguments of cargo that build integration tests.
const INTEGRATION: &str = "--test conformance --test payloads --test killed --test link_down --test rdma \
    --test segments_rdma --test mailboxes_rdma --test racks_rdma";
/// The arguments of cargo that build the unit tests of the transport. The other packages are named so that
/// dependencies have the features of the other builds; their unit tests are built as well, and not run.
const UNIT: &str = "--package gossamer-transport-rdma --package gossamer-jam-format \
    --package gossamer-jam-tests --package xtask \
    --features gossamer-transport-rdma/verbs,gossamer-jam-tests/rdma";
/// Printed before the name of a program, in front of its output.
const MARK: &str = "==> ";
/// The timeout of all test programs on one kernel, emulated, in seconds.
const TIMEOUT: u32 = 900;
/// The number of slowest tests that are listed.
const SLOWEST: usize = 8;

/// The options of `cargo xtask rdma-test`.
#[derive(Args)]
pub(crate) struct RdmaTest {
    /// Run all tests on this kernel of Debian [default: those of the transport on both, those of
    /// racks on 6.12]
    #[arg(long, value_enum)]
    kernel: Option<Version>,
    /// More arguments of the test programs: names of tests, for instance
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// A test program that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Program {
    path: PathBuf,
    /// The folder of its package, where it expects to be run.
    folder: PathBuf,
    /// Its kernels without `--kernel`.
    kernels: &'static [Version],
}

/// The lines that a guest printed, each with the time until it came.
type TimedLines = [(Duration, String)];

/// `cargo xtask rdma-test`.
pub(crate) fn run(workspace: &Workspace, test: &RdmaTest) -> Result<()> {
    let kernels = test.kernel.map_or(Version::value_variants().to_vec(), |kernel| vec![kernel]);
    let mut times = Times::new();
    let programs = prepare(workspace, &kernels, &mut times)?;
    run_here(workspace, &programs, &test.arguments, &mut times)?;
    for kernel in kernels {
        let is_here =
            |program: &&Program| test.kernel.is_some() || program.kernels.contains(&kernel);
        let programs: Vec<_> = programs.iter().filter(is_here).cloned().collect();
        run_on(workspace, kernel, &programs, &test.arguments, &mut times)?;
    }
    println!("\n{times}");
    Ok(())
}

/// Builds the test programs, and downloads the packages of guests meanwhile.
fn prepare(workspace: &Workspace, kernels: &[Version], times: &mut Times) -> Result<Vec<Program>> {
    gossamer_guest::check()?;
    let (programs, fetched) = thread::scope(|scope| {
        let fetching = scope.spawn(|| gossamer_guest::fetch(&cache(workspace), kernels));
        let programs = build(workspace, times);
        let fetched = || fetching.join().expect("it does not panic");
        (programs, times.of("waiting for what guests need", fetched))
    });
    fetched.and(programs)
}

/// Builds the test programs. Both builds have packages and features with which dependencies are the
/// same, and not built twice.
fn build(workspace: &Workspace, times: &mut Times) -> Result<Vec<Program>> {
    let built = |step: Step| {
        let step = step.args("--no-run --message-format json-render-diagnostics");
        checks::optimised(step).capture()
    };
    let messages = times.of("building the tests", || {
        let integration = built(checks::rdma(workspace, "test").args(INTEGRATION))?;
        let unit = built(Step::cargo(&workspace.root, &format!("test --lib {UNIT}")))?;
        anyhow::Ok([integration, unit].concat())
    })?;
    let packages = workspace.metadata.packages.iter();
    let packages = packages.map(|package| (&package.manifest_path, package.name.as_str()));
    programs_in(&messages, &packages.collect())
}

/// Runs those tests of the programs that need no device.
fn run_here(
    workspace: &Workspace,
    programs: &[Program],
    more: &[String],
    times: &mut Times,
) -> Result<()> {
    let script = script(programs, "", more)?;
    let step = Step::program(&workspace.root, "sh", "-c").arg(script);
    let printed = times.of("tests without devices", || step.read_timed())?;
    let lines: String = printed.iter().flat_map(|(_, line)| [line, "\n"]).collect();
    let count = passed(&lines);
    ensure!(count > 0 || !more.is_empty(), "no tests without devices ran");
    println!("{count} tests passed without devices");
    Ok(())
}

/// Runs the programs in a guest with this kernel.
fn run_on(
    workspace: &Workspace,
    kernel: Version,
    programs: &[Program],
    more: &[String],
    times: &mut Times,
) -> Result<()> {
    let file = cache(workspace).join("tests.sh");
    fs::write(&file, script(programs, ON_DEVICES, more)?)?;
    let kernel = kernel.name();
    let arguments = format!("rdma-vm --kernel {kernel} --timeout {TIMEOUT} --");
    let step = Step::program(&workspace.root, itself(), &arguments);
    let step = step.arg("sh").arg(&file);
    let printed = times.of(format!("kernel {kernel}"), || step.read_timed())?;
    let lines: String = printed.iter().flat_map(|(_, line)| [line, "\n"]).collect();
    let count = passed(&lines);
    ensure!(count > 0, "no tests ran on kernel {kernel}");
    let idle = idle(&lines);
    // With names of tests, some programs have none of them.
    let may_be_idle = idle.is_empty() || !more.is_empty();
    ensure!(may_be_idle, "no test of {} ran on kernel {kernel}", idle.join(", "));
    for (test, took) in slowest(&printed) {
        times.add(format!("  of it {test}"), took);
    }
    println!("{count} tests passed on RDMA devices of kernel {kernel}");
    Ok(())
}

/// The test programs of all suites in what cargo prints as JSON; packages are given by their
/// manifests.
fn programs_in(messages: &[u8], packages: &HashMap<&Utf8PathBuf, &str>) -> Result<Vec<Program>> {
    let mut built = HashMap::new();
    for message in Message::parse_stream(messages) {
        let Message::CompilerArtifact(artifact) = message? else { continue };
        let Some(path) = artifact.executable.filter(|_| artifact.profile.test) else { continue };
        let Some(package) = packages.get(&artifact.manifest_path) else { continue };
        let folder = artifact.manifest_path.parent().context("a manifest is in a folder")?;
        built.insert((*package, artifact.target.name), (path, folder.to_owned()));
    }
    let mut all = Vec::new();
    for Suite { package, programs, kernels } in SUITES {
        for name in programs {
            let program = built.remove(&(package, (*name).to_owned()));
            let program = program.with_context(|| format!("{package} has no test program {name}"));
            let (path, folder) = program?;
            all.push(Program { path: path.into(), folder: folder.into(), kernels });
        }
    }
    Ok(all)
}

/// The script that runs all programs one after the other with the arguments `which` and `more`; it
/// fails if one fails.
fn script(programs: &[Program], which: &str, more: &[String]) -> Result<String> {
    let more: String = more.iter().map(|word| format!(" {}", quote(word))).collect();
    let mut script = String::from("export RUST_TEST_THREADS=1\nfailed=0\n");
    for Program { path, folder, .. } in programs {
        let [path, folder] = [path, folder].map(|path| path.to_str().map(quote));
        let (path, folder) = path.zip(folder).context("a path in UTF-8")?;
        script +=
            &format!("cd {folder} && echo \"{MARK}\"{path} && {path} {which}{more} || failed=1\n");
    }
    Ok(script + "exit $failed\n")
}

/// The programs of which no test passed, by the output of all.
fn idle(printed: &str) -> Vec<&str> {
    let parts = printed.split(MARK).skip(1).filter(|part| passed(part) == 0);
    parts.filter_map(|part| part.lines().next()).collect()
}

/// The slowest tests and their times, by the output of the programs: they run one test at a time, so
/// each began when the line before it came.
fn slowest(printed: &TimedLines) -> Vec<(&str, Duration)> {
    let took = printed.windows(2).filter_map(|pair| {
        let [(before, _), (end, line)] = pair else { return None };
        let name = line.strip_prefix("test ")?.split_once(" ...")?.0;
        Some((name, end.saturating_sub(*before)))
    });
    let mut all: Vec<_> = took.collect();
    all.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
    all.truncate(SLOWEST);
    all
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    #[test]
    fn test_programs_are_found_in_what_cargo_prints() {
        let artifact = |package: &str, name: &str, is_test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"a","manifest_path":"/{package}/Cargo.toml",
                "target":{{"kind":["test"],"crate_types":["bin"],"name":"{name}","src_path":"/t.rs",
                "edition":"2024","doc":false,"doctest":false,"test":true}},
                "profile":{{"opt_level":"0","debuginfo":1,"debug_assertions":true,
                "overflow_checks":true,"test":{is_test}}},"features":[],"filenames":[],
                "executable":"/target/{package}.{name}","fresh":true}}"#
            )
            .replace('\n', "")
        };
        let manifests = SUITES.map(|Suite { package, .. }| {
            (Utf8PathBuf::from(format!("/{package}/Cargo.toml")), package)
        });
        let packages = manifests.iter().map(|(manifest, name)| (manifest, *name)).collect();
        let wanted = SUITES.iter().flat_map(|s| s.programs.iter().map(|name| (s.package, *name)));
        let wanted: Vec<_> = wanted.collect();
        let mut messages = vec![
            artifact("gossamer-daemon", "gossamerd", false),
            artifact("gossamer-rack", "gossamer", true),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        messages.extend(wanted.iter().map(|(package, name)| artifact(package, name, true)));
        let found = programs_in(messages.join("\n").as_bytes(), &packages).unwrap();
        let paths: Vec<_> = found.iter().map(|program| program.path.to_str().unwrap()).collect();
        let expected = wanted.iter().map(|(package, name)| format!("/target/{package}.{name}"));
        assert_eq!(paths, expected.collect::<Vec<_>>());
        assert_eq!(found[0].folder, Path::new("/gossamer-transport-rdma"));
        messages.pop();
        let error = programs_in(messages.join("\n").as_bytes(), &packages).unwrap_err();
        assert_eq!(error.to_string(), "gossamer-daemon has no test program rdma");
    }

    #[test]
    fn all_programs_run_and_a_failure_is_reported() {
        let program = |path: &str| {
            let (path, folder) = (path.into(), Path::new("/").into());
            Program { path, folder, kernels: &[] }
        };
        let all = ["/bin/echo", "/bin/false", "/bin/true"].map(program);
        let run = |programs: &[Program]| {
            let script = script(programs, ON_DEVICES, &["it's".into()]).unwrap();
            let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
            (String::from_utf8(output.stdout).unwrap(), output.status.code())
        };
        let printed = "==> /bin/echo\n--ignored it's\n==> /bin/false\n==> /bin/true\n".to_owned();
        assert_eq!(run(&all), (printed, Some(1)));
        assert!(script(&all, "", &[]).unwrap().contains("\ncd / && "), "where the package is");
        assert_eq!(run(&all[..1]).1, Some(0));
    }

    #[test]
    fn the_transport_is_tested_on_both_kernels_and_racks_on_the_harder_one() {
        let on = |kernel| SUITES.iter().filter(move |suite| suite.kernels.contains(&kernel));
        assert_eq!(on(Version::Six12).count(), SUITES.len());
        assert!(on(Version::Six1).any(|suite| suite.package == "gossamer-transport-rdma"));
    }

    #[test]
    fn the_slowest_tests_come_first() {
        let line = |at, text: &str| (Duration::from_secs(at), text.to_owned());
        let printed = [
            line(5, "running 3 tests"),
            line(6, "test a ... ok"),
            line(16, "test b ... ok"),
            line(16, "says something"),
            line(20, "test c - should panic ... ok"),
        ];
        let times = [("b", 10), ("c - should panic", 4), ("a", 1)];
        assert_eq!(slowest(&printed), times.map(|(name, time)| (name, Duration::from_secs(time))));
    }

    #[test]
    fn programs_without_tests_are_named() {
        let result = |count| format!("test result: ok. {count} passed; 0 failed\n");
        let printed = format!("==> /a\n{}==> /b\n{}==> /c\n", result(2), result(0));
        assert_eq!(idle(&printed), ["/b", "/c"]);
        assert_eq!(idle(&format!("==> /a\n{}", result(1))), [""; 0]);
    }
}
