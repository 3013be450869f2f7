//! What a switch of stacks must leave alone: everything that a fiber had in its registers, and the
//! chain of frames that a backtrace follows.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;

use gossamer_fiber::{Config, Scheduler, spawn_local, yield_now};

fn scheduler() -> Scheduler {
    Scheduler::new(Config::default()).unwrap()
}

fn settle(scheduler: &Scheduler) {
    while scheduler.run(64) > 0 {}
}

/// Twelve numbers and eight fractions that all live across every wait: more than there are
/// registers that a called function must keep.
#[inline(never)]
fn mixed(seed: u64, rounds: u64, mut wait: impl FnMut()) -> (u64, f64) {
    let mut numbers: [u64; 12] = std::array::from_fn(|i| black_box(seed + i as u64));
    let mut fractions: [f64; 8] = std::array::from_fn(|i| black_box(seed as f64 + i as f64));
    for round in 0..rounds {
        wait();
        for i in 0..numbers.len() {
            let next = numbers[(i + 1) % numbers.len()];
            numbers[i] = numbers[i].rotate_left(7).wrapping_mul(31) ^ next.wrapping_add(round);
        }
        for i in 0..fractions.len() {
            fractions[i] = fractions[i].mul_add(0.5, fractions[(i + 1) % fractions.len()]);
        }
    }
    (numbers.iter().fold(0, |all, n| all ^ n), fractions.iter().sum())
}

#[test]
fn what_is_in_registers_survives_a_wait() {
    const ROUNDS: u64 = 50;
    let scheduler = scheduler();
    let results = Rc::new(RefCell::new(Vec::new()));
    scheduler.enter(|| {
        for seed in 0..20 {
            let results = Rc::clone(&results);
            spawn_local(move || {
                let result = mixed(seed, ROUNDS, yield_now);
                results.borrow_mut().push((seed, result));
            });
        }
    });
    settle(&scheduler);
    let results = results.borrow();
    assert_eq!(results.len(), 20);
    for &(seed, result) in results.iter() {
        assert_eq!(result, mixed(seed, ROUNDS, || ()), "fiber {seed}");
    }
}

#[inline(never)]
fn deep_inside_the_fiber(traces: &RefCell<Vec<String>>) {
    for _ in 0..2 {
        traces.borrow_mut().push(Backtrace::force_capture().to_string());
        yield_now();
    }
}

#[test]
fn a_backtrace_shows_the_fibers_frames_and_ends_with_its_stack() {
    let scheduler = scheduler();
    let traces = Rc::new(RefCell::new(Vec::new()));
    scheduler.enter(|| {
        let traces = Rc::clone(&traces);
        spawn_local(move || deep_inside_the_fiber(&traces));
    });
    settle(&scheduler);
    let traces = traces.borrow();
    assert_eq!(traces.len(), 2, "before and after a wait");
    for trace in traces.iter() {
        assert!(trace.contains("deep_inside_the_fiber"), "{trace}");
        assert!(trace.lines().count() < 200, "{trace}");
    }
}
