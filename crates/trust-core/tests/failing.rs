//! Calls that fail at once give way now and then: a fiber that makes them in a loop does not keep its
//! thread.
#![cfg(not(loom))]

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use fiber::{Config, Scheduler, spawn_local};
use gossamer_trust_core::{Deferred, DelegateError, Node, Trust, Wiring, local_trustee};
use transport_shm::ShmTransport;

/// More calls than a fiber makes before it gives way.
const CALLS: u32 = 5000;

/// Has a fiber make such calls in a loop, to a thread that requests do not reach any more, until another
/// fiber has run.
fn gives_way(call: impl Fn(&Trust<u64>) -> Result<(), DelegateError> + 'static) {
    let transport = ShmTransport::threads(2).expect("a rack");
    let wiring = Wiring::connect(transport, 0, Duration::from_secs(10)).expect("a wired rack");
    let trustee = Node::enter(wiring.node(1).expect("a node"));
    let trust = local_trustee().entrust(0);
    drop(trustee);
    let fibers = Scheduler::new(Config::default()).expect("a scheduler");
    let node = Node::enter(wiring.node(0).expect("a node"));
    node.close();
    let has_run = Rc::new(Cell::new(false));
    let calls = fibers.enter(|| {
        let (sees, sets) = (has_run.clone(), has_run);
        let calls = spawn_local(move || {
            let fails = |_: &u32| !sees.get() && call(&trust).is_err();
            (0..CALLS).take_while(fails).count()
        });
        drop(spawn_local(move || sets.set(true)));
        calls
    });
    while fibers.live() > 0 {
        fibers.run(64);
    }
    let made = calls.join().expect("no panic");
    assert!(0 < made && made < CALLS as usize, "{made} calls");
}

#[test]
fn a_call_that_waits_gives_way() {
    gives_way(|trust| trust.try_apply(|n| *n += 1));
}

#[test]
fn a_call_that_does_not_wait_gives_way() {
    gives_way(|trust| {
        let ended = Rc::new(Cell::new(Ok(())));
        let ends = ended.clone();
        trust.try_apply_then(|n| *n += 1, move |end| ends.set(end));
        ended.replace(Ok(()))
    });
}

#[test]
fn a_wait_for_a_later_reply_gives_way() {
    gives_way(|trust| trust.apply_deferred(|_, (), _: Deferred<()>| (), ()));
}
