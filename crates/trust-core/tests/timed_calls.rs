//! Calls with a timeout wait for room within their time, and leave nothing behind if they find none.
#![cfg(not(loom))]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use fiber::{Config, Scheduler, spawn_local};
use gossamer_trust_core::{DelegateError, Latch, Node, Trust, Wiring, local_trustee};
use transport_shm::ShmTransport;

const HOUR: Duration = Duration::from_secs(3600);
/// More than the batches that may be under way have room for.
const MANY: u64 = 500;

fn turn<R>(node: &Rc<Node>, act: impl FnOnce() -> R) -> R {
    let entered = Node::enter(node.clone());
    let result = act();
    entered.poll();
    result
}

/// A client and a trustee on this thread, which run in turn.
fn two() -> (Wiring, Rc<Node>, Rc<Node>) {
    let transport = ShmTransport::threads(2).unwrap();
    let wiring = Wiring::connect(transport, 0, Duration::from_secs(10)).unwrap();
    let (client, trustee) = (wiring.node(0).unwrap(), wiring.node(1).unwrap());
    (wiring, client, trustee)
}

/// Has `call` time out again and again, while the trustee does not poll.
fn time_out(client: &Rc<Node>, call: impl Fn() -> Result<(), DelegateError> + 'static) {
    let fibers = Scheduler::new(Config::default()).unwrap();
    let entered = Node::enter(client.clone());
    let calls = fibers.enter(|| {
        spawn_local(move || {
            for _ in 0..20 * MANY {
                let ended = call();
                assert!(matches!(ended, Err(DelegateError::TimedOut { .. })), "{ended:?}");
            }
        })
    });
    while !calls.is_finished() {
        fibers.run(64);
        fibers.expire(Instant::now());
        entered.poll();
    }
    calls.join().unwrap();
}

#[test]
fn calls_that_time_out_again_and_again_do_not_pile_up() {
    let (_wiring, client, trustee) = two();
    let sum: Trust<u64> = turn(&trustee, || local_trustee().entrust(0));
    let more = sum.clone();
    time_out(&client, move || more.apply_timeout(|sum| *sum += 1, Duration::ZERO));
    let sent = client.traffic().unanswered;
    assert!(sent > 0 && sent < MANY, "{sent} requests");
    while client.traffic().unanswered > 0 {
        turn(&trustee, || ());
        turn(&client, || ());
    }
    let sum = turn(&trustee, || sum.apply(|sum| *sum));
    // One request was the drop of the fiber's trust.
    assert_eq!(sum + 1, sent, "those that found room have run, and no others");
}

#[test]
fn launches_that_time_out_again_and_again_do_not_pile_up() {
    let (_wiring, client, trustee) = two();
    let latch = turn(&trustee, || local_trustee().entrust(Latch::new(0u64)));
    time_out(&client, move || {
        latch.launch_with_timeout(|sum, more| *sum += more, 1, Duration::ZERO)
    });
    let sent = client.traffic().unanswered;
    assert!(sent > 0 && sent < MANY, "{sent} requests");
}

#[test]
fn a_call_that_finds_room_within_its_time_is_made_in_its_turn() {
    let transport = ShmTransport::threads(2).unwrap();
    let wiring = Wiring::connect(transport, 0, Duration::from_secs(10)).unwrap();
    let client = wiring.node(0).unwrap();
    let (give, get) = mpsc::channel();
    let (serve, serves) = mpsc::channel();
    let wiring = &wiring;
    thread::scope(move |scope| {
        scope.spawn(move || {
            let entered = Node::enter(wiring.node(1).unwrap());
            give.send(local_trustee().entrust(0u64)).unwrap();
            serves.recv().unwrap();
            while serves.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
                entered.poll();
            }
        });
        let sum: Trust<u64> = get.recv().unwrap();
        let fibers = Scheduler::new(Config::default()).unwrap();
        let seen = Rc::new(Cell::new(None));
        let entered = Node::enter(client.clone());
        (0..MANY).for_each(|_| sum.apply_then(|sum| *sum += 1, |()| {}));
        fibers.enter(|| {
            let (gives_up, timed, goes_on) = (sum.clone(), sum.clone(), sum.clone());
            let sees = seen.clone();
            // One that gives up in front of others.
            drop(spawn_local(move || {
                let ended = gives_up.apply_timeout(|sum| *sum += 1000, Duration::ZERO);
                assert!(matches!(ended, Err(DelegateError::TimedOut { .. })), "{ended:?}");
            }));
            drop(spawn_local(move || sees.set(Some(timed.apply_timeout(|sum| *sum, HOUR)))));
            drop(spawn_local(move || goes_on.apply_then(|sum| *sum += 7, |()| {})));
        });
        let turn = || {
            fibers.run(64);
            fibers.expire(Instant::now());
            // What comes wakes fibers of the scheduler that is entered.
            fibers.enter(|| entered.poll());
        };
        while fibers.live() > 2 {
            turn();
        }
        assert_eq!(
            (fibers.live(), client.traffic().unanswered),
            (2, MANY + 3),
            "two wait for room, and a trust was dropped"
        );
        serve.send(()).unwrap();
        while fibers.live() > 0 || client.traffic().unanswered > 0 {
            turn();
        }
        assert_eq!(seen.take().expect("a reply").unwrap(), MANY);
        let total = Rc::new(Cell::new(0));
        let totals = total.clone();
        sum.apply_then(|sum| *sum, move |sum| totals.set(sum));
        while total.get() == 0 {
            entered.poll();
        }
        assert_eq!(total.get(), MANY + 7);
        drop(serve);
    });
}
