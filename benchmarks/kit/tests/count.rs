//! The counter counts exactly: a program with known counts is stepped and must show them.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::Path;

use bench_kit::count::{CountError, Counted, Workload, count};
use bench_kit::measure::cores::Cores;

fn counted(name: &'static str, phases: &'static [&'static str]) -> Result<Counted, CountError> {
    let probe = Path::new(env!("CARGO_BIN_EXE_count-probe"));
    let core = Cores::of_this_process().expect("two cores").first;
    count(&Workload { name, phases, run: || () }, probe, core)
}

#[test]
#[ignore = "traces a process: cargo xtask hotpath"]
fn instructions_locks_and_system_calls_are_exact() {
    let counted = counted("exact", &["nops", "lock", "xchg", "call"]).expect("counts");
    let nops = counted.phase("nops");
    assert_eq!((nops.visits, nops.instructions), (2, 200));
    assert_eq!((nops.locked, nops.syscalls, nops.allocations), (0, 0, 0));
    let lock = counted.phase("lock");
    assert_eq!((lock.instructions, lock.locked, lock.syscalls), (3, 1, 0));
    let xchg = counted.phase("xchg");
    assert_eq!((xchg.instructions, xchg.locked), (2, 1));
    let call = counted.phase("call");
    assert_eq!((call.instructions, call.locked, call.syscalls), (2, 0, 1));
}

#[test]
#[ignore = "traces a process: cargo xtask hotpath"]
fn offences_name_their_place() {
    let counted = counted("exact", &["nops", "lock", "xchg", "call"]).expect("counts");
    let offence = &counted.phase("lock").offences[0];
    assert_eq!(offence.what, "locked");
    assert!(offence.place.contains("count-probe") && offence.place.contains("+0x"), "{offence:?}");
    assert_eq!(counted.phase("call").offences[0].what, "syscall");
}

#[test]
#[ignore = "traces a process: cargo xtask hotpath"]
fn a_repeated_instruction_counts_once() {
    let counted = counted("repeated", &["copy", "empty"]).expect("counts");
    assert_eq!(counted.phase("copy").instructions, 5);
    assert_eq!((counted.phase("empty").visits, counted.phase("empty").instructions), (1, 0));
}

#[test]
#[ignore = "traces a process: cargo xtask hotpath"]
fn allocations_are_seen_in_the_phase_that_makes_them() {
    let counted = counted("allocating", &["grow", "stay"]).expect("counts");
    let grow = counted.phase("grow");
    assert_eq!((grow.allocations, grow.frees), (2, 1));
    let stay = counted.phase("stay");
    assert_eq!((stay.allocations, stay.frees), (0, 0));
    assert!(stay.instructions > 0);
}

#[test]
#[ignore = "traces a process: cargo xtask hotpath"]
fn a_phase_without_a_name_is_an_error() {
    let error = counted("unnamed", &["only"]).expect_err("two phases");
    assert!(matches!(error, CountError::UnknownPhase { index: 1, named: 1, .. }), "{error}");
}

#[test]
#[ignore = "traces a process: cargo xtask hotpath"]
fn a_workload_that_ends_early_is_an_error() {
    let error = counted("quitting", &["only"]).expect_err("exits");
    assert!(error.to_string().contains("exited with 3"), "{error}");
    let error = counted("timid", &["only"]).expect_err("never begins");
    assert!(error.to_string().contains("exited with 0"), "{error}");
    let error = counted("absent", &["only"]).expect_err("no such workload");
    assert!(error.to_string().contains("exited with 1"), "{error}");
}
