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

/// A property on a thread that serves nobody, and a node for this thread.
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
struct Told(Rc<RefCell<Vec<Result<u8, String>>>>);

impl Told {
    fn note(&self) -> impl FnOnce(Result<u8, DelegateError>) + use<> {
        let told = self.clone();
        move |result| told.0.borrow_mut().push(result.map_err(|error| error.to_string()))
    }

    #[track_caller]
    fn is(&self, expected: &[Result<u8, &str>]) {
        let told = std::mem::take(&mut *self.0.borrow_mut());
        assert_eq!(told.len(), expected.len(), "{told:?}");
        for (told, expected) in told.iter().zip(expected) {
            match (told, expected) {
                (Ok(told), Ok(expected)) => assert_eq!(told, expected),
                (Err(told), Err(expected)) => assert!(told.contains(expected), "{told}"),
                _ => panic!("{told:?} instead of {expected:?}"),
            }
        }
    }
}

#[test]
fn requests_under_way_end_when_the_node_closes() {
    let (_wiring, there, node, _) = enter();
    let told = Told::default();
    for _ in 0..500 {
        there.try_apply_then(|n| *n, told.note());
    }
    told.is(&[]);
    node.close();
    told.is(&[Err("the rack has ended"); 500]);
    there.try_apply_then(|n| *n, told.note());
    told.is(&[Err("the rack has ended")]);
}

#[test]
fn requests_to_the_own_thread_run_while_the_node_closes() {
    let (_wiring, there, node, local) = enter();
    let here = local.entrust(1);
    let told = Told::default();
    let inner = told.clone();
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
    told.is(&[Ok(1), Err("fell over")]);
    assert!(node.take_incidents().is_empty(), "who asked has been told");
}

/// Sends a request when it is dropped.
struct Asks(Option<Trust<u8>>, Told);

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
    let told = Told::default();
    let here = local.entrust(1);
    std::mem::forget(local.entrust(Asks(Some(here), told.clone())));
    std::mem::forget(local.entrust(Asks(Some(there), told.clone())));
    node.close();
    node.clear();
    told.is(&[Err("the rack has ended"), Err("there is no property")]);
}
