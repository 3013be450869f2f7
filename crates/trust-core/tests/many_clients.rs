//! A rack with so many threads that trustees look at arrival words instead of every client's slot:
//! requests of the first and the last clients are served, in order, and all that wait at once.
#![cfg(not(loom))]

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use gossamer_trust_core::{Node, Trust, Wiring, local_trustee};
use primitive::limits::DIRECT_POLL_CLIENTS;
use transport_shm::ShmTransport;

/// Threads of the rack, one more than are polled directly.
const THREADS: u32 = DIRECT_POLL_CLIENTS as u32 + 1;
/// Requests of each client: several batches.
const REQUESTS: u32 = 500;

/// Runs `act` as the thread of `node`, then polls it.
fn turn<R>(node: &Rc<Node>, act: impl FnOnce() -> R) -> R {
    let entered = Node::enter(node.clone());
    let result = act();
    entered.poll();
    result
}

#[test]
fn requests_of_very_many_clients_arrive() {
    let rack = ShmTransport::threads(THREADS).unwrap();
    let wiring = Wiring::connect(rack, 0, Duration::from_secs(10)).expect("a wired rack");
    let node = |thread| wiring.node(thread).expect("a node");
    let trustee = node(0);
    let clients = [1, 2, THREADS / 2, THREADS - 2, THREADS - 1].map(|n| (n, node(n)));
    let log: Trust<Vec<(u32, u32)>> = turn(&trustee, || local_trustee().entrust(Vec::new()));

    let replies = Rc::new(Cell::new(0));
    for round in 0..REQUESTS {
        for (number, client) in &clients {
            let replies = replies.clone();
            let note = |log: &mut Vec<(u32, u32)>, entry| log.push(entry);
            let replied = move |()| replies.set(replies.get() + 1);
            turn(client, || log.apply_with_then(note, (*number, round), replied));
        }
        // Seldom, so that several batches wait in a slot and others after them.
        if round % 7 == 0 {
            turn(&trustee, || ());
        }
    }
    for _ in 0..10 * REQUESTS {
        turn(&trustee, || ());
        clients.iter().for_each(|(_, client)| turn(client, || ()));
    }
    assert_eq!(replies.get(), REQUESTS * clients.len() as u32);

    let entries = turn(&trustee, || log.apply(std::mem::take));
    for (number, _) in &clients {
        let theirs = entries.iter().filter(|(client, _)| client == number).map(|(_, round)| *round);
        assert!(theirs.eq(0..REQUESTS), "the requests of client {number} came in order, once");
    }
    turn(&trustee, || drop(log));
}

/// What waits is known without a poll, whichever client has sent it, and counted once.
#[test]
fn a_trustee_with_very_many_clients_knows_what_waits() {
    let rack = ShmTransport::threads(THREADS).unwrap();
    let wiring = Wiring::connect(rack, 0, Duration::from_secs(10)).expect("a wired rack");
    let node = |thread| wiring.node(thread).expect("a node");
    let trustee = node(0);
    let sum: Trust<u64> = turn(&trustee, || local_trustee().entrust(0));
    let waits = || (trustee.has_work(), trustee.traffic().unserved);
    for number in [1, THREADS / 2, THREADS - 1] {
        let client = node(number);
        assert_eq!(waits(), (false, 0));
        turn(&client, || (0..3).for_each(|_| sum.apply_then(|sum| *sum += 1, |()| {})));
        assert_eq!(waits(), (true, 3));
        // A second batch, which the arrival word alone does not tell from the first.
        turn(&client, || sum.apply_then(|sum| *sum += 1, |()| {}));
        turn(&trustee, || ());
        assert_eq!(waits(), (true, 1), "the next poll serves it");
        turn(&trustee, || ());
        turn(&client, || ());
    }
    assert_eq!(waits(), (false, 0));
    assert_eq!(turn(&trustee, || sum.apply(|sum| *sum)), 12);
    turn(&trustee, || drop(sum));
}

#[test]
fn requests_after_a_pause_of_any_length_arrive() {
    let rack = ShmTransport::threads(2).unwrap();
    let wiring = Wiring::connect(rack, 0, Duration::from_secs(10)).expect("a wired rack");
    let [client, trustee] = [0, 1].map(|thread| wiring.node(thread).expect("a node"));
    let count: Trust<u64> = turn(&trustee, || local_trustee().entrust(0));
    let replies = Rc::new(Cell::new(0));
    for pause in 0..100 {
        let replies = replies.clone();
        let replied = move |()| replies.set(replies.get() + 1);
        turn(&client, || count.apply_then(|count| *count += 1, replied));
        turn(&trustee, || ());
        (0..=pause).for_each(|_| turn(&client, || ()));
    }
    assert_eq!(replies.get(), 100);
    turn(&trustee, || drop(count));
}
