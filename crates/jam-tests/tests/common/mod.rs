//! Runs cases on racks: of threads, and of two processes. Each case is this program once more, with a
//! deadline.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use gossamer::Rack;

const CASE: &str = "GOSSAMER_TEST_CASE";
const DEADLINE: Duration = Duration::from_secs(120);

/// A case and its name.
pub(crate) type Case = (&'static str, fn());

/// The rack of a case, whose name begins with `threads_` or `processes_`.
pub(crate) fn rack(case: &str) -> Option<Rack> {
    let rack = match case.starts_with("processes_") {
        true => Rack::new().hosts(2).threads(2),
        false => Rack::new().threads(3),
    };
    Some(rack.check_leaks(true))
}

/// The `main` of a test program.
#[allow(dead_code, reason = "each test program uses this or the next")]
pub(crate) fn run_all(cases: &[Case]) -> ExitCode {
    run_all_on(cases, rack)
}

/// As [`run_all`], of a program that has racks of its own for some cases, or none.
pub(crate) fn run_all_on(cases: &[Case], rack: fn(&str) -> Option<Rack>) -> ExitCode {
    if let Ok(name) = std::env::var(CASE) {
        let (_, case) = name.split_once('_').expect("a prefix");
        let (_, case) = cases.iter().find(|(listed, _)| *listed == case).expect("a case");
        rack(&name).expect("a case on this rack").run(*case).unwrap();
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let names =
        cases.iter().flat_map(|(name, _)| ["threads_", "processes_"].map(|p| format!("{p}{name}")));
    let names = names.filter(|name| rack(name).is_some());
    let names = names.filter(|name| wanted.is_empty() || wanted.iter().any(|w| name.contains(w)));
    let (mut passed, mut failed) = (0, 0);
    for name in names {
        if std::env::args().any(|word| word == "--list") {
            println!("{name}: test");
            continue;
        }
        let is_well = run(&name);
        println!("test {name} ... {}", if is_well { "ok" } else { "FAILED" });
        *(if is_well { &mut passed } else { &mut failed }) += 1;
    }
    println!(
        "\ntest result: {}. {passed} passed; {failed} failed",
        if failed == 0 { "ok" } else { "FAILED" }
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a case in processes of its own, whose output goes to this one's.
fn run(name: &str) -> bool {
    let exe = std::env::current_exe().expect("this program");
    let mut child =
        Command::new(exe).env(CASE, name).stdin(Stdio::null()).spawn().expect("a process");
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status.success();
        }
        if started.elapsed() > DEADLINE {
            println!("{name} hung");
            let _ = child.kill();
            return child.wait().is_ok_and(|_| false);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
