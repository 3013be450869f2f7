//! Peers that break the rules of the rack, and destructors that wait where they may: neither gets a
//! thread to panic, to grow without end, or to run two closures on one property at a time.
#![cfg(not(loom))]

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gossamer_trust_core::{
    EnteredNode, Incident, Node, Trust, Trustee, Wiring, WiringError, local_trustee,
};
use primitive::limits::{BATCH_BYTES, BUFFERS, CACHE_LINE};
use primitive::sync::Ordering;
use transport_api::{HostId, Namespace, PeerEvent, RegionKey, Rights, Tag, ThreadId, Transport};
use transport_shm::ShmTransport;

const TIMEOUT: Duration = Duration::from_secs(10);
const WORD: usize = 8;

/// The keys under which hosts share their slots with host 0, and after it with the others.
fn slots(host: u64) -> RegionKey {
    RegionKey::new(Namespace::DELEGATION, 1 << 32 | host)
}

/// Wires up a rack of `hosts` hosts in this process.
fn wired(rack: &[Arc<ShmTransport>]) -> Vec<Wiring> {
    let connecting: Vec<_> = rack
        .iter()
        .map(|host| {
            let host = host.clone();
            thread::spawn(move || Wiring::connect(host, 0, TIMEOUT).expect("a wired host"))
        })
        .collect();
    connecting.into_iter().map(|host| host.join().expect("no panic")).collect()
}

#[test]
fn an_arrival_of_a_client_that_does_not_exist_is_ignored() {
    // As many clients as make the trustee look at arrival words, and rows of words that are longer
    // than there are clients.
    let rack = ShmTransport::in_process(3, 6).expect("a rack");
    let wirings = wired(&rack);
    let node = Node::enter(wirings[2].node(0).expect("a node"));
    for peer in 0..3u64 {
        let region = rack[2].import(HostId(2), slots(peer), TIMEOUT).expect("slots");
        let memory = region.mapped().expect("own memory").clone();
        for word in (0..6 * CACHE_LINE).step_by(WORD) {
            memory.store(word, 77, Ordering::Release);
        }
    }
    for _ in 0..3 {
        node.poll();
    }
}

#[test]
fn slots_of_another_size_are_refused_when_the_rack_is_wired() {
    let rack = ShmTransport::in_process(2, 1).expect("a rack");
    let (liar, honest) = (rack[0].clone(), rack[1].clone());
    let rights = Rights::READ | Rights::WRITE;
    let _offers: Vec<_> = (0..2)
        .map(|host| liar.export(slots(host), 4096, rights.into()).expect("a region"))
        .collect();
    match Wiring::connect(honest, 0, TIMEOUT) {
        Err(error @ WiringError::Layout { host: HostId(0), offered: 4096, .. }) => {
            assert!(error.to_string().contains("not the same build"), "{error}");
        }
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("slots of 4096 bytes were taken"),
    }
}

#[test]
fn a_peer_that_sends_payloads_without_requests_is_lost() {
    let rack = ShmTransport::in_process(2, 1).expect("a rack");
    let wirings = wired(&rack);
    let node = Node::enter(wirings[1].node(0).expect("a node"));
    let mut lane = rack[0].lane(0, HostId(1)).expect("a lane");
    // Each request has a word, and each batch another.
    let most = BUFFERS * (BATCH_BYTES / 8 - 1);
    let lost = |node: &EnteredNode| {
        node.take_incidents().iter().any(|incident| {
            matches!(incident, Incident::Peer(PeerEvent::Lost(HostId(0), reason))
                if reason.to_string().contains("belong to no request"))
        })
    };
    let deadline = Instant::now() + TIMEOUT;
    for sent in 0..2 * most {
        if lost(&node) {
            assert!(sent > most, "as many as there can be requests are in order");
            return;
        }
        lane.bulk(0, Tag::new(Namespace::DELEGATION, 0), vec![0; 100])
            .expect("the victim is there");
        while !node.poll_lanes() {
            assert!(Instant::now() < deadline, "payload {sent} did not arrive");
            thread::yield_now();
        }
    }
    panic!("{} payloads were kept", 2 * most);
}

#[test]
fn requests_that_were_not_handed_over_end_with_their_trustee_and_leave_the_node_whole() {
    let rack = ShmTransport::in_process(2, 1).expect("a rack");
    let wirings = wired(&rack);
    let node = Node::enter(wirings[1].node(0).expect("a node"));
    let trustee = Trustee::from_thread(ThreadId { host: HostId(0), thread: 0 }).expect("it exists");
    let failed = Rc::new(Cell::new(0));
    let send = || {
        let failed = failed.clone();
        trustee.try_visit_then(
            || (),
            move |result| failed.set(failed.get() + u32::from(result.is_err())),
        );
    };
    // One is handed over; the other waits for the next poll.
    send();
    node.poll();
    send();
    let mut lane = rack[0].lane(0, HostId(1)).expect("a lane");
    let deadline = Instant::now() + TIMEOUT;
    while failed.get() == 0 {
        assert!(Instant::now() < deadline, "the trustee is still there");
        let tag = Tag::new(Namespace::DELEGATION, 0);
        lane.bulk(0, tag, vec![0; 100_000]).expect("the victim is there");
        node.poll_lanes();
    }
    assert_eq!(failed.get(), 2);
    // The node looks for a while yet at what it had sent.
    for _ in 0..100 {
        node.poll();
    }
}

/// Waits when it is dropped, where that is allowed.
struct WaitsWhenDropped;

impl Drop for WaitsWhenDropped {
    fn drop(&mut self) {
        fiber::yield_now();
        fiber::yield_now();
    }
}

thread_local! {
    /// What fibers of the test below have seen; delegated closures capture nothing.
    static SEEN: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

fn see(what: &'static str) {
    SEEN.with_borrow_mut(|seen| seen.push(what));
}

/// A closure's work that waits, which it must not, behind the library's back.
fn wait_inside(number: &mut u8) {
    see("begun");
    for _ in 0..5 {
        fiber::yield_now();
    }
    see(if *number == 0 { "alone" } else { "changed meanwhile" });
}

#[test]
fn no_closure_begins_while_a_callback_waits_behind_the_back_of_the_library() {
    let wiring = Wiring::connect(ShmTransport::threads(1).unwrap(), 0, TIMEOUT).expect("a rack");
    let fibers = fiber::Scheduler::new(fiber::Config::default()).expect("a scheduler");
    let node = Node::enter(wiring.node(0).expect("a node"));
    fibers.enter(|| {
        let (first, second) = (local_trustee().entrust(()), local_trustee().entrust(0));
        let clone = second.clone();
        fiber::spawn_local(move || {
            // Two pieces of work are deferred. The first panics, and what its callback drops waits.
            let defer = |_: &mut (), (one, two): (Trust<u8>, Trust<u8>)| {
                let waits = WaitsWhenDropped;
                one.apply_then(|_| panic!("on purpose"), move |()| drop(waits));
                two.apply_then(|n| *n = 5, |()| see("deferred"));
            };
            first.apply_with(defer, (second.clone(), second.clone()));
        });
        fiber::spawn_local(move || {
            let begin = AssertUnwindSafe(|| clone.apply(wait_inside));
            see(if catch_unwind(begin).is_err() { "refused" } else { "begun" });
        });
    });
    for _ in 0..100 {
        fibers.run(1);
    }
    node.poll();
    assert_eq!(SEEN.take(), ["refused", "deferred"]);
}
