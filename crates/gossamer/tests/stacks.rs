//! Stacks of the runtime threads: delegated closures run there.

#[allow(unused_macros)]
mod common;

use std::hint::black_box;

use common::within_deadline;
use gossamer::{Rack, RackError, entrust};

/// Much more than the standard library's 2 MiB.
const DEEP: usize = 24 << 20;

/// Uses at least `bytes` of stack, and without optimisation several times as much.
fn descend(bytes: usize) -> usize {
    let frame = black_box([1u8; 4096]);
    if bytes <= frame.len() {
        return frame.len();
    }
    frame.len() + descend(bytes - frame.len()) + usize::from(frame[7]) - 1
}

#[test]
fn a_delegated_closure_has_the_stack_that_was_asked_for() {
    within_deadline("a deep closure", || {
        let reached = Rack::new().threads(2).worker_stack_bytes(8 * DEEP).run(|| {
            let other = [entrust(()), entrust(())].into_iter().find(|trust| !trust.is_local());
            other.unwrap().apply(|()| descend(DEEP))
        });
        assert!(reached.unwrap() >= DEEP);
    });
}

#[test]
fn a_stack_that_the_system_does_not_give_is_an_error() {
    within_deadline("a huge stack", || {
        let ended = Rack::new().threads(1).worker_stack_bytes(1 << 60).run(|| ());
        assert!(matches!(ended, Err(RackError::Start(_))), "{ended:?}");
    });
}
