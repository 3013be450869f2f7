//! What a request of the hot path does not do: step through full batches and look at everything
//! that client and trustee execute. Needs an optimised build, as that is what the promise is about.

use std::path::Path;
use std::sync::OnceLock;

use bench_kit::count::{Counted, Workload, count};
use bench_kit::measure::cores::Cores;
use bench_kit::product::lone_call::{COUNTED_CALLS, LONE_CALL};
use bench_kit::product::single_thread::{BATCH, COUNTED_BATCHES, ONE_REQUEST};

/// Nothing can change the counts, so they are taken once.
fn counted() -> &'static Counted {
    static COUNTED: OnceLock<Counted> = OnceLock::new();
    COUNTED.get_or_init(|| count_of(&ONE_REQUEST))
}

fn count_of(workload: &Workload) -> Counted {
    let program = Path::new(env!("CARGO_BIN_EXE_one-request"));
    let core = Cores::of_this_process().expect("two cores").first;
    count(workload, program, core).expect("counts")
}

#[test]
#[cfg_attr(debug_assertions, ignore = "needs an optimised build: --release")]
fn a_launch_that_does_not_wait_costs_at_most_two_calls() {
    let counted = count_of(&LONE_CALL);
    let [apply, launch] = ["apply", "launch"].map(|phase| counted.phase(phase));
    assert_eq!((apply.visits, launch.visits), (COUNTED_CALLS, COUNTED_CALLS));
    assert!(
        launch.instructions <= 2 * apply.instructions,
        "{} instructions, and {} without a fiber",
        launch.instructions / COUNTED_CALLS,
        apply.instructions / COUNTED_CALLS
    );
    let allocated = (launch.allocations, launch.frees, launch.locked, launch.syscalls);
    assert_eq!(allocated, (0, 0, 0, 0), "(taken, freed, locked, system calls)");
    // One batch, which the trustee answers.
    assert_eq!(launch.fences, apply.fences);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "needs an optimised build: --release")]
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
#[cfg_attr(debug_assertions, ignore = "needs an optimised build: --release")]
fn a_batch_has_a_fence_on_either_side() {
    let counted = counted();
    // Whoever hands a buffer over must see whether the other side went to sleep before that.
    let fences = ["enqueue", "serve", "reap"].map(|phase| counted.phase(phase).fences);
    assert_eq!(fences, [COUNTED_BATCHES, COUNTED_BATCHES, 0]);
}
