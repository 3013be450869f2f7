//! Requests of the hot path; the tests that count what they take step this program.

#![forbid(unsafe_code)]

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

fn main() -> ExitCode {
    let workloads = [
        ONE_REQUEST,
        LONE_CALL,
        LONE_REQUEST,
        ARGUMENT,
        ENCODED,
        PLAIN_CALL,
        MIXED,
        WAITING,
        IDLE_POLL,
    ];
    run_workload(&workloads).unwrap_or_else(|| {
        eprintln!("this program is stepped by the tests of the hot path");
        ExitCode::FAILURE
    })
}
