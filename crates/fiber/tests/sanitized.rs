//! AddressSanitizer sees into fibers: what goes wrong there on purpose, in a child process each, is
//! reported. Only with `cargo xtask asan`.
#![cfg(address_sanitizer)]

use std::cell::Cell;
use std::hint::black_box;
use std::process::Command;

use gossamer_fiber::{Config, Scheduler, spawn_local, yield_now};

const CHILD: &str = "GOSSAMER_FIBER_TEST_CHILD";

thread_local! {
    /// Where something was.
    static KEPT: Cell<*const u64> = const { Cell::new(std::ptr::null()) };
}

fn read_kept() -> u64 {
    // SAFETY: none: the memory is gone, which AddressSanitizer must report.
    unsafe { black_box(KEPT.get()).read_volatile() }
}

#[inline(never)]
fn keep_a_local() {
    let mut local = black_box(7u64);
    KEPT.set(black_box(&raw mut local));
}

/// Runs `bodies` as fibers, interleaved.
fn run(bodies: &[fn()]) {
    let scheduler = Scheduler::new(Config::default()).unwrap();
    for body in bodies {
        scheduler.enter(|| drop(spawn_local(*body)));
        scheduler.run(1);
    }
    while scheduler.live() > 0 {
        scheduler.run(64);
    }
}

/// Runs this very test in a child, and checks what AddressSanitizer says of `wrong` there.
fn is_seen(test: &str, expected: &[&str], wrong: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        wrong();
        return;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    let seen = expected.iter().any(|kind| said.contains(&format!("AddressSanitizer: {kind}")));
    assert!(seen && !child.status.success(), "{:?}: {said}", child.status);
}

#[test]
fn freed_memory_is_used_after_a_switch() {
    is_seen("freed_memory_is_used_after_a_switch", &["heap-use-after-free"], || {
        run(&[|| {
            let value = Box::new(7u64);
            KEPT.set(&raw const *value);
            drop(value);
            yield_now();
            read_kept();
        }]);
    });
}

#[test]
fn a_local_of_a_function_that_has_returned_is_used_after_a_switch() {
    let test = "a_local_of_a_function_that_has_returned_is_used_after_a_switch";
    is_seen(test, &["stack-use-after-return"], || {
        run(&[
            || {
                keep_a_local();
                yield_now();
                read_kept();
            },
            || {
                yield_now();
            },
        ]);
    });
}

#[test]
fn the_stack_of_a_fiber_that_has_ended_is_used() {
    is_seen("the_stack_of_a_fiber_that_has_ended_is_used", &["use-after-poison"], || {
        let end: fn() = || {
            let here: usize;
            // SAFETY: only reads the stack pointer.
            unsafe { std::arch::asm!("mov {}, rsp", out(reg) here) };
            KEPT.set(std::ptr::with_exposed_provenance(here));
        };
        run(&[end]);
        // With the scheduler, so that the stack is still mapped.
        let scheduler = Scheduler::new(Config::default()).unwrap();
        scheduler.enter(|| drop(spawn_local(end)));
        scheduler.run(1);
        read_kept();
    });
}
