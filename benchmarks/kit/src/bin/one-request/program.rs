//! The workloads, with an allocator that marks what it is asked for.

use std::process::ExitCode;

use bench_kit::count::mark::MarkedAlloc;
use bench_kit::count::run_workload;
use bench_kit::product::batches::{
    ARGUMENT, ENCODED, IDLE_POLL, LONE_REQUEST, MIXED, PLAIN_CALL, WAITING,
};
use bench_kit::product::lone_call::LONE_CALL;
use bench_kit::product::single_thread::ONE_REQUEST;

#[global_allocator]
static ALLOCATOR: MarkedAlloc = MarkedAlloc;

/// Runs the workload that the environment names, if it names one.
pub(super) fn run() -> Option<ExitCode> {
    run_workload(&[
        ONE_REQUEST,
        LONE_CALL,
        LONE_REQUEST,
        ARGUMENT,
        ENCODED,
        PLAIN_CALL,
        MIXED,
        WAITING,
        IDLE_POLL,
    ])
}
