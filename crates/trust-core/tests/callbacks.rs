//! The callback of `try_apply_then` is called once, also when its request is cut short by the end
//! of its node.
#![cfg(not(loom))]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use gossamer_trust_core::{
    DelegateError, EnteredNode, LocalTrustee, Node, Trust, Wiring, local_trustee,
};
use transport_shm::ShmTransport;

/// A property on a thread that never polls, and a node for this thread.
fn enter() -> (Wiring, Trust<u8>, EnteredNode, LocalTrustee) {
    let wiring = Wiring::connect(ShmTransport::threads(2).unwrap(), 0, Duration::from_secs(10));
    let wiring = wiring.expect("a wired rack");
    let other = Node::enter(wiring.node(1).expect("a node"));
    let there = local_trustee().entrust(2);
    drop(other);
    let node = Node::enter(wiring.node(0).expect("a node"));
    (wiring, there, node, local_trustee())
}

/// What callbacks were called with.
#[derive(Clone, Default)]
struct Callback(Rc<RefCell<Vec<Result<u8, String>>>>);

impl Callback {
    fn note(&self) -> impl FnOnce(Result<u8, DelegateError>) + use<> {
        let calls = self.clone();
        move |result| calls.0.borrow_mut().push(result.map_err(|error| error.to_string()))
    }

    #[track_caller]
    fn is(&self, expected: &[Result<u8, &str>]) {
        let calls = std::mem::take(&mut *self.0.borrow_mut());
        assert_eq!(calls.len(), expected.len(), "{calls:?}");
        for (call, expected) in calls.iter().zip(expected) {
            match (call, expected) {
                (Ok(result), Ok(expected)) => assert_eq!(result, expected),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
                _ => panic!("{call:?} instead of {expected:?}"),
            }
        }
    }
}

#[test]
fn requests_under_way_end_when_the_node_closes() {
    let (_wiring, there, node, _) = enter();
    let callback = Callback::default();
    for _ in 0..500 {
        there.try_apply_then(|n| *n, callback.note());
    }
    callback.is(&[]);
    node.close();
    callback.is(&[Err("the rack has ended"); 500]);
    there.try_apply_then(|n| *n, callback.note());
    callback.is(&[Err("the rack has ended")]);
}

#[test]
fn requests_to_the_own_thread_run_while_the_node_closes() {
    let (_wiring, there, node, local) = enter();
    let here = local.entrust(1);
    let callback = Callback::default();
    let inner = callback.clone();
    there.try_apply_then(
        |n| *n,
        move |result| {
            assert!(result.is_err());
            here.try_apply_then(|n| *n, inner.note());
            here.try_apply_then(|_| panic!("fell over"), inner.note());
            inner.is(&[]);
        },
    );
    node.close();
    callback.is(&[Ok(1), Err("fell over")]);
    assert!(node.take_incidents().is_empty(), "the callback got the failure");
}

/// Sends a request when it is dropped.
struct Asks(Option<Trust<u8>>, Callback);

impl Drop for Asks {
    fn drop(&mut self) {
        if let Some(trust) = &self.0 {
            trust.try_apply_then(|n| *n, self.1.note());
        }
    }
}

#[test]
fn requests_of_destructors_end_when_the_node_is_cleared() {
    let (_wiring, there, node, local) = enter();
    let callback = Callback::default();
    let here = local.entrust(1);
    std::mem::forget(local.entrust(Asks(Some(here), callback.clone())));
    std::mem::forget(local.entrust(Asks(Some(there), callback.clone())));
    node.close();
    node.clear();
    callback.is(&[Err("the rack has ended"), Err("there is no property")]);
}
