//! The traffic counts of threads match what they have sent and served.
#![cfg(not(loom))]

use std::rc::Rc;
use std::time::Duration;

use gossamer_trust_core::{Node, Trust, Wiring, local_trustee};
use transport_shm::ShmTransport;

fn turn<R>(node: &Rc<Node>, act: impl FnOnce() -> R) -> R {
    let entered = Node::enter(node.clone());
    let result = act();
    entered.poll();
    result
}

fn turn_without_poll<R>(node: &Rc<Node>, act: impl FnOnce() -> R) -> R {
    let _entered = Node::enter(node.clone());
    act()
}

#[test]
fn requests_and_bytes_are_counted_on_both_sides() {
    // More than fit into the batches that may be under way: some wait, and are moved later.
    const REQUESTS: u64 = 500;
    let wiring =
        Wiring::connect(ShmTransport::threads(2).unwrap(), 0, Duration::from_secs(10)).unwrap();
    let (client, trustee) = (wiring.node(0).unwrap(), wiring.node(1).unwrap());
    let sum: Trust<u64> = turn(&trustee, || local_trustee().entrust(0));
    assert_eq!(client.traffic(), Default::default(), "nothing has gone anywhere");

    turn(&client, || {
        for n in 0..REQUESTS {
            sum.apply_with_then(|sum, n| *sum += n, n, |()| {});
        }
    });
    let sent = client.traffic();
    assert_eq!(sent.unanswered, REQUESTS);
    assert_eq!(turn_without_poll(&client, || sum.outstanding()), REQUESTS as usize);
    assert_eq!(turn_without_poll(&trustee, || sum.outstanding()), 0, "this thread has sent none");
    assert!(sent.requests_out > 0 && sent.requests_out < REQUESTS, "{sent:?}");
    let came = trustee.traffic();
    assert_eq!(came.requests_in, 0);
    assert!(came.unserved > 0, "a batch has come: {came:?}");

    while client.traffic().unanswered > 0 {
        turn(&trustee, || ());
        turn(&client, || ());
    }
    assert_eq!(turn_without_poll(&client, || sum.outstanding()), 0);
    assert_eq!(sum.outstanding(), 0, "outside the rack");
    let (sent, came) = (client.traffic(), trustee.traffic());
    assert_eq!((sent.requests_out, came.requests_in), (REQUESTS, REQUESTS));
    assert_eq!((sent.requests_in, came.requests_out, came.unserved), (0, 0, 0));
    // A head and an argument each, at least.
    assert!(sent.bytes_out >= REQUESTS * 16, "{sent:?}");
    assert_eq!((sent.bytes_out, sent.bytes_in), (came.bytes_in, came.bytes_out));

    // A payload that takes the bulk path is part of it.
    turn(&client, || sum.apply_with_then(|_, _| {}, vec![7u8; 1 << 20], |()| {}));
    for _ in 0..100 {
        turn(&trustee, || ());
        turn(&client, || ());
    }
    assert!(client.traffic().bytes_out >= sent.bytes_out + (1 << 20));
    assert!(trustee.traffic().bytes_in >= came.bytes_in + (1 << 20));

    turn(&trustee, || drop(sum));
    for _ in 0..100 {
        turn(&client, || ());
        turn(&trustee, || ());
    }
}
