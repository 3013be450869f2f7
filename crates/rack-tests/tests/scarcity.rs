//! A process that gets fewer threads than it asks for: its rack does not start, and says why.

#[allow(unused_macros)]
mod common;

use std::env;
use std::process::Command;

use common::within_deadline;
use gossamer::{Rack, RackError};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Set in the process that gets too few threads.
const IS_SHORT: &str = "GOSSAMER_TEST_SHORT";

/// Bytes of the stack of each of its threads, and of all its memory: some fit, and 16 do not.
const STACK: u64 = 1 << 30;
const MEMORY: u64 = 6 * STACK;

#[test]
fn a_rack_that_gets_too_few_threads_does_not_start() {
    const NAME: &str = "a_rack_that_gets_too_few_threads_does_not_start";
    if env::var_os(IS_SHORT).is_none() {
        // The size of stacks is read once, when a process begins.
        let mut short = Command::new(env::current_exe().expect("this program"));
        short.args([NAME, "--exact"]).env(IS_SHORT, "1");
        let ended = short.env("RUST_MIN_STACK", STACK.to_string()).status();
        assert!(ended.expect("a process").success());
        return;
    }
    within_deadline(NAME, || {
        let limit = Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
        setrlimit(Resource::As, limit).expect("a limit");
        let ended: Result<(), _> = Rack::new().threads(16).run(|| unreachable!("it has no host"));
        assert!(matches!(ended, Err(RackError::Start(_))), "{ended:?}");
    });
}
