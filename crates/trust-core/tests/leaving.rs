//! A thread stops being a node when its owner drops the guard. Code inside the node,
//! or a caller while fibers wait there, gets a panic with a message, and the node stays.
#![cfg(not(loom))]

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use gossamer_trust_core::{
    Deferred, EnteredNode, Latch, Node, Trust, Wiring, local_trustee, run_job,
};
use serde::{Deserialize, Serialize, Serializer};
use transport_shm::ShmTransport;

thread_local! {
    static ENTERED: RefCell<Option<EnteredNode>> = const { RefCell::new(None) };
}

fn leave() {
    drop(ENTERED.take());
}

/// A value that leaves the node when it is encoded.
#[derive(Deserialize)]
struct Leaver;

impl Serialize for Leaver {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        leave();
        serializer.serialize_unit()
    }
}

/// A value that leaves the node when it is dropped.
#[derive(Serialize, Deserialize)]
struct LeaverAtLast;

impl Drop for LeaverAtLast {
    fn drop(&mut self) {
        leave();
    }
}

/// Makes this thread a node, which has a property of its own and one on a thread that
/// never polls.
fn enter() -> (Wiring, Trust<u8>, Trust<Latch<u8>>) {
    let wiring = Wiring::connect(ShmTransport::threads(2).unwrap(), 0, Duration::from_secs(10));
    let wiring = wiring.expect("a wired rack");
    let other = Node::enter(wiring.node(1).expect("a node"));
    let there = local_trustee().entrust(Latch::new(2));
    drop(other);
    ENTERED.set(Some(Node::enter(wiring.node(0).expect("a node"))));
    let here = local_trustee().entrust(1);
    (wiring, here, there)
}

/// Checks that `act` panics because the thread cannot stop being a node now, and that it still is
/// one.
#[track_caller]
fn stays<R>(here: &Trust<u8>, act: impl FnOnce() -> R) {
    let panic = catch_unwind(AssertUnwindSafe(act)).err().expect("a panic");
    let said = panic.downcast_ref::<&str>().expect("a message");
    assert!(said.contains("cannot stop being a node"), "{said}");
    assert_eq!(here.apply(|n| *n), 1, "the node goes on");
}

#[test]
fn a_callback_cannot_end_its_node() {
    let (_wiring, here, _) = enter();
    stays(&here, || here.apply_then(|n| *n, |_| leave()));
}

#[test]
fn a_closure_cannot_end_its_node() {
    let (_wiring, here, _) = enter();
    stays(&here, || here.apply(|_| leave()));
}

#[test]
fn a_value_that_is_encoded_cannot_end_the_node() {
    let (_wiring, here, there) = enter();
    stays(&here, || there.apply_with_then(|_, _: Leaver| (), Leaver, |()| {}));
}

/// A trust whose property is gone, and one whose property is not.
fn gone<T: 'static>(value: T) -> (Wiring, Trust<T>, Trust<u8>) {
    let (wiring, _, _) = enter();
    let gone = local_trustee().entrust(value);
    ENTERED.with_borrow(|entered| entered.as_ref().expect("a node").clear());
    (wiring, gone, local_trustee().entrust(1))
}

#[test]
fn arguments_for_what_is_gone_cannot_end_the_node() {
    let (_wiring, gone, here) = gone(5);
    stays(&here, || gone.apply_with(|_, _: LeaverAtLast| (), LeaverAtLast));
}

#[test]
fn arguments_for_what_is_gone_cannot_end_the_node_without_a_wait() {
    let (_wiring, gone, here) = gone(5);
    let error = Rc::new(RefCell::new(None));
    let then = {
        let error = error.clone();
        move |result: Result<(), _>| *error.borrow_mut() = result.err()
    };
    gone.try_apply_with_then(|_, _: LeaverAtLast| (), LeaverAtLast, then);
    let said = error.take().expect("the callback gets the panic").to_string();
    assert!(said.contains("cannot stop being a node"), "{said}");
    assert_eq!(here.apply(|n| *n), 1, "the node goes on");
}

#[test]
fn arguments_for_a_latch_that_is_gone_cannot_end_the_node() {
    let (_wiring, gone, here) = gone(Latch::new(5));
    stays(&here, || gone.launch_with_then(|_, _: LeaverAtLast| (), LeaverAtLast, drop));
}

#[test]
fn a_visitor_cannot_end_the_node() {
    let (_wiring, here, _) = enter();
    let visit = |node: &Node, ()| {
        leave();
        node.threads()
    };
    stays(&here, || local_trustee().trustee().visit_node(visit, ()));
}

#[test]
fn a_job_cannot_end_its_node() {
    let (_wiring, here, _) = enter();
    stays(&here, || run_job(Box::new(|_| leave())));
}

/// A scheduler with one fiber, which waits for room for more requests.
fn waiting_for_room(there: Trust<Latch<u8>>) -> fiber::Scheduler {
    let fibers = fiber::Scheduler::new(fiber::Config::default()).expect("a scheduler");
    let sent = Rc::new(Cell::new(0));
    let counter = sent.clone();
    fibers.enter(|| {
        drop(fiber::spawn_local(move || {
            loop {
                there.apply_then(|_| (), |()| {});
                counter.set(counter.get() + 1);
            }
        }));
        fibers.run(1);
    });
    assert!(sent.get() > 0 && fibers.live() == 1, "the fiber has sent, and waits");
    fibers
}

#[test]
fn a_node_cannot_end_while_fibers_wait_for_room() {
    let (_wiring, here, there) = enter();
    let _fibers = waiting_for_room(there);
    stays(&here, leave);
}

/// A value whose encoding fails.
#[derive(Deserialize)]
struct Unfit;

impl Serialize for Unfit {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("unfit")
    }
}

/// A value that waits when it is dropped.
struct Lingerer;

impl Drop for Lingerer {
    fn drop(&mut self) {
        fiber::park();
    }
}

/// A callback begins while a fiber waits inside a closure, which it must not, and ends after it.
#[test]
fn a_node_cannot_end_under_a_callback_that_outlasts_a_closure() {
    let (_wiring, here, there) = enter();
    let trust = here.clone();
    let fibers = fiber::Scheduler::new(fiber::Config::default()).expect("a scheduler");
    let (closure, callback) = fibers.enter(|| {
        let closure = fiber::spawn_local(move || trust.apply(|_| fiber::park()));
        let callback = fiber::spawn_local(move || {
            let lingerer = Lingerer;
            let then = move |_| drop(lingerer);
            let deferred = |_: &mut Latch<u8>, _: Unfit, _: Deferred<()>| ();
            there.apply_deferred_then(deferred, Unfit, then);
        });
        (closure.id(), callback.id())
    });
    fibers.run(2);
    fibers.unpark(closure);
    fibers.run(1);
    assert_eq!(fibers.live(), 1, "the closure has ended, the callback waits");
    stays(&here, leave);
    assert_eq!(here.apply(|n| *n), 1, "the node goes on");
    fibers.unpark(callback);
    fibers.run(1);
    assert_eq!(fibers.live(), 0, "the callback has ended");
    assert_eq!(here.apply(|n| *n), 1, "nothing is left of the closure's context");
}

#[test]
fn a_node_ends_after_its_fibers() {
    let (_wiring, here, there) = enter();
    drop(waiting_for_room(there));
    leave();
    assert!(!here.is_local(), "the thread is no node any more");
}
