//! A process that gets less memory than it asks for: a rack without its threads does not start, and a
//! fence without its fibers panics. Both say why.

#[allow(unused_macros)]
mod common;

use std::process::Command;
use std::{env, fs};

use common::{panic_in, within_deadline};
use gossamer::{Rack, RackError};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Set in the process that gets too little.
const IS_SHORT: &str = "GOSSAMER_TEST_SHORT";

/// Bytes of the stack of each thread or fiber, and of all the memory of a process: some threads fit, and 16
/// do not.
const STACK: u64 = 1 << 30;
const MEMORY: u64 = 6 * STACK;

/// Runs `test` in a process of its own, as the test of this name.
fn in_short_process(name: &'static str, test: fn()) {
    if env::var_os(IS_SHORT).is_some() {
        return within_deadline(name, test);
    }
    // The size of stacks is read once, when a process begins.
    let mut short = Command::new(env::current_exe().expect("this program"));
    short.args([name, "--exact"]).env(IS_SHORT, "1");
    let ended = short.env("RUST_MIN_STACK", STACK.to_string()).status();
    assert!(ended.expect("a process").success());
}

/// Bytes of the memory that this process has mapped.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("the state of this process");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a size");
    1024 * size.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
}

fn set_memory(bytes: u64) {
    let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::As, limit).expect("a limit");
}

#[test]
fn a_rack_that_gets_too_few_threads_does_not_start() {
    in_short_process("a_rack_that_gets_too_few_threads_does_not_start", || {
        set_memory(MEMORY);
        let ended: Result<(), _> = Rack::new().threads(16).run(|| unreachable!("it has no host"));
        assert!(matches!(ended, Err(RackError::Start(_))), "{ended:?}");
    });
}

#[test]
fn a_fence_that_gets_no_fibers_does_not_claim_success() {
    in_short_process("a_fence_that_gets_no_fibers_does_not_claim_success", || {
        let ended = Rack::new().threads(2).stack_bytes(STACK as usize).run(|| {
            // Room for anything but one more stack.
            set_memory(memory() + STACK / 2);
            panic_in(gossamer::fence)
        });
        let message = ended.expect("a rack");
        assert!(message.contains("cannot fence"), "{message}");
        assert!(message.contains("no stack of"), "{message}");
    });
}
