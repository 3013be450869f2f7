//! Stacks of the runtime threads: delegated closures run there.

#[allow(unused_macros)]
mod common;

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;

use common::within_deadline;
use gossamer::{Latch, Rack, RackError, entrust};

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

/// Set in a child process, which overflows a stack in the way that it names.
const WAY: &str = "GOSSAMER_TEST_OVERFLOW";

fn without_end(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if black_box(depth) == u64::MAX { 0 } else { without_end(depth + 1) + frame[3] }
}

/// Overflows the stack of a thread or of a fiber.
fn overflow(way: &str) {
    let way = way.to_owned();
    let ended = Rack::new().threads(2).run(move || {
        let both = [entrust(0u64), entrust(0u64)];
        let [own, other] = if both[0].is_local() {
            both
        } else {
            let [a, b] = both;
            [b, a]
        };
        match &*way {
            "remote" => drop(other.try_apply(|n| *n = without_end(*n))),
            "visit" => drop(other.trustee().try_visit(|| without_end(0))),
            "own" => own.apply(|n| *n = without_end(*n)),
            "callback" => {
                other.apply_then(|n| *n, |n| assert_eq!(without_end(n), 0));
                other.apply(|_| ());
            }
            "fiber" => drop(without_end(0)),
            "spawned" => drop(gossamer::spawn_with(without_end, 0).join()),
            "launched" => {
                let latch = gossamer::entrust_with(Latch::new, 0u64);
                latch.launch(|n| *n = without_end(*n));
            }
            other => panic!("{other}"),
        }
    });
    panic!("it should not have come to an end: {ended:?}");
}

#[test]
fn an_overflow_in_a_delegated_closure_is_reported_with_its_origin() {
    if let Some(way) = std::env::var_os(WAY) {
        return overflow(way.to_str().expect("a way"));
    }
    let here = "an_overflow_in_a_delegated_closure_is_reported_with_its_origin";
    // Who overflowed, and in what.
    let expected: [(&str, &[&str]); 7] = [
        (
            "remote",
            &[
                "thread 'gossamer-0.",
                "in the delegated closure stacks::overflow::",
                "Rack::worker_stack_bytes",
            ],
        ),
        (
            "visit",
            &[
                "thread 'gossamer-0.",
                "in the delegated closure stacks::overflow::",
                "Rack::worker_stack_bytes",
            ],
        ),
        (
            "own",
            &[
                "fiber 1 (`stacks::overflow::{{closure}}`) on thread 'gossamer-0.",
                "in the closure delegated at crates/rack-tests/tests/stacks.rs:",
                "Rack::stack_bytes",
            ],
        ),
        (
            "callback",
            &[
                "thread 'gossamer-0.",
                "in the callback stacks::overflow::",
                "Rack::worker_stack_bytes",
            ],
        ),
        (
            "fiber",
            &[
                "fiber 1 (`stacks::overflow::{{closure}}`) on",
                "has overflowed its stack of 128 KiB; ",
                "Rack::stack_bytes",
            ],
        ),
        ("spawned", &["fiber ", " (`stacks::without_end`) on thread 'gossamer-0."]),
        (
            "launched",
            &["fiber ", " (`stacks::overflow::", "}`) on thread 'gossamer-0.", "Rack::stack_bytes"],
        ),
    ];
    for (way, expected) in expected {
        let ended = std::process::Command::new(std::env::current_exe().expect("this program"))
            .args([here, "--exact", "--nocapture"])
            .env(WAY, way)
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&ended.stderr);
        let line = said.lines().find(|line| line.contains("has overflowed its stack"));
        let line = line.unwrap_or_else(|| panic!("{way}: {said}"));
        assert!(expected.iter().all(|part| line.contains(part)), "{way}: {line}");
        assert!(!line.contains("Config::") && !line.contains("Builder::"), "{way}: {line}");
        assert_eq!(ended.status.signal(), Some(rustix::process::Signal::ABORT.as_raw()), "{way}");
    }
}

#[test]
fn a_stack_that_the_system_does_not_give_is_an_error() {
    within_deadline("a huge stack", || {
        let ended = Rack::new().threads(1).worker_stack_bytes(1 << 60).run(|| ());
        assert!(matches!(ended, Err(RackError::Start(_))), "{ended:?}");
    });
}
