//! The traffic counts of threads match what they have sent and served.
#![cfg(not(loom))]

use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gossamer_trust_core::{Node, Trust, Trustee, Wiring, local_trustee};
use transport_api::conformance::Altered;
use transport_api::{HostId, ThreadId, Transport};
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
    // An argument each, at least.
    assert!(sent.bytes_out >= REQUESTS * 8, "{sent:?}");
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

/// Two hosts in this process, over a transport that `change` may alter.
fn two_hosts(change: fn(Arc<dyn Transport>) -> Arc<dyn Transport>) -> Vec<Wiring> {
    let hosts = ShmTransport::in_process(2, 1).unwrap();
    let connecting = hosts.into_iter().map(|host| {
        thread::spawn(move || Wiring::connect(change(host), 0, Duration::from_secs(10)).unwrap())
    });
    let connecting: Vec<_> = connecting.collect();
    connecting.into_iter().map(|wiring| wiring.join().unwrap()).collect()
}

/// Has the thread of `client` make requests of the other host's, and polls once.
fn request(client: &Rc<Node>, requests: usize) {
    turn(client, || {
        let other = Trustee::from_thread(ThreadId { host: HostId(1), thread: 0 }).unwrap();
        (0..requests).for_each(|_| other.try_visit_then(|| (), |result| result.unwrap()));
    });
}

/// Polls both until everything is answered.
fn settle(client: &Rc<Node>, server: &Rc<Node>) {
    while client.traffic().unanswered > 0 {
        turn(server, || ());
        turn(client, || ());
    }
}

#[test]
fn bytes_alone_bound_a_batch_where_memory_is_not_mapped() {
    let handed_over = |hosts: Vec<Wiring>| {
        let (client, server) = (hosts[0].node(0).unwrap(), hosts[1].node(0).unwrap());
        request(&client, 1000);
        let handed_over = client.traffic().requests_out;
        settle(&client, &server);
        assert_eq!(server.traffic().requests_in, 1000);
        handed_over
    };
    assert!(handed_over(two_hosts(|host| host)) < 100, "two batches of some tens");
    assert_eq!(handed_over(two_hosts(Altered::unmapped)), 1000);
}

#[test]
fn a_small_batch_waits_for_a_large_one_but_not_for_long() {
    let hosts = two_hosts(Altered::unmapped);
    let (client, server) = (hosts[0].node(0).unwrap(), hosts[1].node(0).unwrap());
    let sent = || client.traffic().requests_out;
    request(&client, 1);
    assert_eq!(sent(), 1, "nothing is under way");
    settle(&client, &server);
    request(&client, 100);
    request(&client, 1);
    assert_eq!(sent(), 101);
    // It travels with what is made when the large one is answered.
    turn(&server, || ());
    request(&client, 99);
    turn(&client, || ());
    assert_eq!(sent(), 201);
    request(&client, 1);
    assert_eq!(sent(), 201);
    let polls = (1..100).find(|_| {
        turn(&client, || ());
        sent() == 202
    });
    assert!(polls.is_some_and(|polls| polls < 10), "{polls:?}");
    settle(&client, &server);
}
