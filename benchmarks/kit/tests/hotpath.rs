//! What a request of the hot path does not do: step through full batches and look at everything
//! that client and trustee execute. The promise is about optimised code, so the program that is
//! stepped is a release, which `cargo xtask hotpath` builds and names in [`PROGRAM`].

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::PathBuf;
use std::sync::OnceLock;

use bench_kit::count::{Counted, Workload, count};
use bench_kit::measure::cores::Cores;
use bench_kit::product::batches::{
    ARGUMENT, COUNTED_POLLS, ENCODED, ENCODED_BATCH, IDLE_POLL, LONE_REQUEST, MIXED, PLAIN_CALL,
    WAITING,
};
use bench_kit::product::lone_call::{COUNTED_CALLS, LONE_CALL, VISITS};
use bench_kit::product::single_thread::{BATCH, COUNTED_BATCHES, ONE_REQUEST};
use rustix::thread::{MembarrierCommand, membarrier_query};

/// The variable with the path of the program `one-request`.
const PROGRAM: &str = "ONE_REQUEST";

/// Counts of [`ONE_REQUEST`]. Nothing can change them, so they are taken once.
fn counted() -> &'static Counted {
    static COUNTED: OnceLock<Counted> = OnceLock::new();
    COUNTED.get_or_init(|| count_of(&ONE_REQUEST))
}

/// The same of [`LONE_CALL`].
fn counted_lone() -> &'static Counted {
    static COUNTED: OnceLock<Counted> = OnceLock::new();
    COUNTED.get_or_init(|| count_of(&LONE_CALL))
}

fn count_of(workload: &Workload) -> Counted {
    let program = std::env::var_os(PROGRAM).map(PathBuf::from);
    let program = program.expect("the path of the optimised program: use `cargo xtask hotpath`");
    let core = Cores::of_this_process().expect("two cores").first;
    count(workload, &program, core).expect("counts")
}

#[test]
#[ignore = "needs an optimised program: cargo xtask hotpath"]
fn a_launch_that_does_not_wait_costs_at_most_two_calls() {
    let counted = counted_lone();
    let [apply, launch] = ["apply", "launch"].map(|phase| counted.phase(phase));
    assert_eq!([apply.visits, launch.visits], [COUNTED_CALLS * VISITS; 2]);
    let [in_launch, in_call] = [launch, apply].map(|phase| phase.instructions / COUNTED_CALLS);
    assert!(in_launch <= 2 * in_call, "a launch takes {in_launch} instructions, a call {in_call}");
    // What is measured today, so that a launch does not get dearer unseen.
    assert!(in_launch - in_call <= 750, "a launch takes {in_launch}, a call {in_call}");
    let allocated = (launch.allocations, launch.frees, launch.locked, launch.syscalls);
    assert_eq!(allocated, (0, 0, 0, 0), "(taken, freed, locked, system calls)");
    // One batch, which the trustee answers.
    assert_eq!(launch.fences, apply.fences);
}

#[test]
#[ignore = "needs an optimised program: cargo xtask hotpath"]
fn a_request_locks_nothing_calls_no_kernel_and_allocates_nothing() {
    let counted = counted();
    for phase in &counted.0 {
        assert_eq!(phase.visits, COUNTED_BATCHES, "{phase:#?}");
        assert!(phase.instructions >= phase.visits * BATCH, "it does something: {phase:#?}");
        let (locked, syscalls) = (phase.locked, phase.syscalls);
        assert_eq!((locked, syscalls), (0, 0), "(locked, system calls): {phase:#?}");
        assert_eq!((phase.allocations, phase.frees), (0, 0), "(taken, freed): {phase:#?}");
    }
}

#[test]
#[ignore = "needs an optimised program: cargo xtask hotpath"]
fn a_batch_has_a_fence_on_either_side_only_where_the_sleeper_has_none_for_both() {
    let counted = counted();
    // Whoever hands a buffer over must see whether the other side went to sleep before that.
    let has_barrier = membarrier_query().contains_command(MembarrierCommand::PrivateExpedited);
    let expected = if has_barrier { 0 } else { COUNTED_BATCHES };
    let fences = ["enqueue", "serve", "reap"].map(|phase| counted.phase(phase).fences);
    assert_eq!(fences, [expected, expected, 0]);
}

/// Instructions of each phase and of all, a request.
fn instructions_of(name: &str, counted: &Counted, requests: u64) -> Vec<f64> {
    let phases = counted.0.iter();
    let each: Vec<_> = phases.map(|p| p.instructions as f64 / requests as f64).collect();
    let all = each.iter().sum();
    println!("{name}: {each:.1?}, all {all:.1}");
    [each, vec![all]].concat()
}

/// Limits a little above what was counted last, so that what makes requests dearer is noticed.
#[test]
#[ignore = "needs an optimised program: cargo xtask hotpath"]
fn requests_and_polls_take_no_more_instructions_than_they_did() {
    let requests = COUNTED_BATCHES * BATCH;
    let batches = [
        ("one request", counted(), 55.6),
        ("argument", &count_of(&ARGUMENT), 61.0),
        ("plain call", &count_of(&PLAIN_CALL), 79.5),
        ("mixed", &count_of(&MIXED), 186.0),
        ("waiting", &count_of(&WAITING), 126.0),
    ];
    let batches = batches
        .map(|(name, counted, limit)| (name, instructions_of(name, counted, requests)[3], limit));
    let encoded =
        instructions_of("encoded", &count_of(&ENCODED), COUNTED_BATCHES * ENCODED_BATCH)[3];
    let lone_request =
        instructions_of("lone request", &count_of(&LONE_REQUEST), COUNTED_BATCHES)[3];
    let lone_call = instructions_of("lone call", counted_lone(), COUNTED_CALLS)[0];
    let lone = [
        ("encoded", encoded, 562.0),
        ("lone request", lone_request, 868.0),
        ("lone call", lone_call, 985.5),
    ];
    let polls = instructions_of("idle poll", &count_of(&IDLE_POLL), COUNTED_POLLS);
    let polls =
        polls.iter().zip([193.5, 358.5, 1289.0]).map(|(poll, limit)| ("poll", *poll, limit));
    for (name, count, limit) in batches.into_iter().chain(lone).chain(polls) {
        assert!(count <= limit, "{name}: {count:.1} instructions, and {limit} at most");
    }
}
