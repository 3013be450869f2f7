//! A call of a property of the own thread may let other fibers run first. One of them may then be
//! suspended inside a delegated closure, by a bare `park`, when the call goes on: the call must not
//! enter the property a second time.
#![cfg(not(loom))]

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use gossamer_trust_core::{EnteredNode, Node, Trust, Wiring, local_trustee};
use transport_shm::ShmTransport;

/// More calls than a fiber makes before it gives way.
const CALLS: u32 = 5000;

/// Makes this thread a node with a property.
fn enter() -> (Wiring, EnteredNode, Trust<u32>) {
    let wiring = Wiring::connect(ShmTransport::threads(1).unwrap(), 0, Duration::from_secs(10));
    let wiring = wiring.expect("a wired rack");
    let node = Node::enter(wiring.node(0).expect("a node"));
    let trust = local_trustee().entrust(0u32);
    (wiring, node, trust)
}

thread_local! {
    /// Whether a fiber is suspended inside a closure.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `calls` in a fiber, and another fiber that is suspended inside a closure on `trust` until
/// the first one can go no further.
fn beside_a_suspended_closure(trust: &Trust<u32>, calls: impl FnOnce() + 'static) {
    let fibers = fiber::Scheduler::new(fiber::Config::default()).expect("a scheduler");
    let trust = trust.clone();
    let suspended = fibers.enter(|| {
        let _calls = fiber::spawn_local(calls);
        let suspended = fiber::spawn_local(move || {
            trust.apply(|_| {
                INSIDE.set(true);
                fiber::park();
                INSIDE.set(false);
            });
        });
        suspended.id()
    });
    for _ in 0..10 {
        fibers.run(10);
    }
    assert!(INSIDE.get(), "a fiber is suspended inside a closure");
    fibers.unpark(suspended);
    for _ in 0..10 {
        fibers.run(10);
    }
    assert_eq!(fibers.live(), 0, "both fibers have ended");
}

#[test]
fn a_call_that_gives_way_does_not_enter_beside_a_suspended_closure() {
    let (_wiring, _node, trust) = enter();
    let refusal = Rc::new(RefCell::new(String::new()));
    let (called, refused) = (trust.clone(), refusal.clone());
    beside_a_suspended_closure(&trust, move || {
        for _ in 0..CALLS {
            let call = || called.apply(|_| assert!(!INSIDE.get(), "two are inside"));
            if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
                *refused.borrow_mut() = *panic.downcast::<String>().expect("a message");
                break;
            }
        }
    });
    let refusal = refusal.take();
    assert!(refusal.contains("would wait inside the closure delegated at"), "{refusal}");
}

#[test]
fn a_call_that_does_not_wait_runs_after_a_closure_that_was_suspended_meanwhile() {
    let (_wiring, _node, trust) = enter();
    let called = trust.clone();
    beside_a_suspended_closure(&trust, move || {
        for _ in 0..CALLS {
            called.apply_then(
                |calls| {
                    assert!(!INSIDE.get(), "two are inside");
                    *calls += 1;
                },
                |()| {},
            );
        }
    });
    assert_eq!(trust.apply(|calls| *calls), CALLS);
}

thread_local! {
    static READINGS: Cell<u32> = const { Cell::new(0) };
}

/// A clock by which a millisecond passes between two readings.
fn clock() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    READINGS.set(READINGS.get() + 1);
    *START.get_or_init(Instant::now) + Duration::from_millis(READINGS.get().into())
}

/// Has a fiber make `CALLS` calls, and be cancelled when it first gives way. Returns how many calls it
/// has made.
fn cancelled_when_it_gives_way(call: impl Fn() + 'static) -> u32 {
    let fibers = fiber::Scheduler::new(fiber::Config::default()).expect("a scheduler");
    let made = Rc::new(Cell::new(0));
    let counts = made.clone();
    let calls = move || {
        for _ in 0..CALLS {
            call();
            counts.set(counts.get() + 1);
        }
    };
    fibers.enter(|| drop(fiber::spawn_local(calls)));
    fibers.run(1);
    drop(fibers);
    made.get()
}

#[test]
fn a_fiber_that_is_cancelled_when_it_gives_way_has_no_failed_call() {
    let (_wiring, _node, _trust) = enter();
    let errors = Rc::new(Cell::new(0));
    let failed = errors.clone();
    let calls = cancelled_when_it_gives_way(move || {
        let visited = local_trustee().trustee().try_visit(|| ());
        failed.set(failed.get() + u32::from(visited.is_err()));
    });
    assert!(calls < CALLS, "it gives way");
    assert_eq!(errors.get(), 0);
}

#[test]
fn a_fiber_gives_way_after_another_was_cancelled_there() {
    let (_wiring, node, trust) = enter();
    node.keep_time(clock);
    for _ in 0..3 {
        let trust = trust.clone();
        assert!(cancelled_when_it_gives_way(move || trust.apply(|calls| *calls += 1)) < CALLS);
    }
}
