//! A fiber that is unwound while the result of its call lies ready drops that result.
#![cfg(not(loom))]

use std::cell::Cell;
use std::time::Duration;

use fiber::{Config, Scheduler, spawn_local};
use gossamer_trust_core::{Node, Wiring, local_trustee};
use serde::{Deserialize, Serialize};
use transport_shm::ShmTransport;

thread_local! {
    static DROPPED: Cell<u32> = const { Cell::new(0) };
}

/// Counts when it is dropped.
#[derive(Serialize, Deserialize)]
struct Counted(String);

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.set(DROPPED.get() + 1);
    }
}

#[test]
fn a_result_that_a_cancelled_fiber_did_not_take_is_dropped() {
    let transport = ShmTransport::threads(2).expect("a rack");
    let wiring = Wiring::connect(transport, 0, Duration::from_secs(10)).expect("a wired rack");
    let (client, trustee) = (wiring.node(0).expect("a node"), wiring.node(1).expect("a node"));
    let entered = Node::enter(trustee.clone());
    let name = local_trustee().entrust(String::from("name"));
    drop(entered);
    let fibers = Scheduler::new(Config::default()).expect("a scheduler");
    let entered = Node::enter(client.clone());
    fibers.enter(|| drop(spawn_local(move || drop(name.apply(|name| Counted(name.clone()))))));
    fibers.run(1);
    entered.poll();
    drop(entered);
    let entered = Node::enter(trustee);
    entered.poll();
    drop(entered);
    assert_eq!(DROPPED.get(), 1, "the trustee's own");
    let entered = Node::enter(client);
    fibers.enter(|| entered.poll());
    assert_eq!(
        (DROPPED.get(), fibers.live()),
        (1, 1),
        "the result has come, and the fiber has not gone on"
    );
    drop(fibers);
    assert_eq!(DROPPED.get(), 2);
}
