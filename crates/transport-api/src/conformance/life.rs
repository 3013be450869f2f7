//! Sleeping and waking, goodbyes and losses, and cells.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use primitive::sync::Ordering;

use crate::conformance::{DEADLINE, Make, Port, Rack, bounded, bytes, filled, together};
use crate::{Cell, Event, HostId, Lane, OpError, PeerEvent, RegionError, RegionKey, Rights, Tag};

/// Each side signals and wakes the opposite one, then sleeps until its answer: a lost wake would hang.
pub fn no_wake_is_lost(make: Make) {
    wake_each_other(make, Port::pair, 0, |lane, thread| {
        lane.flush().expect("a flush");
        lane.wake(thread);
    });
}

/// The same with the wake in front of the flush, which takes it along.
pub fn a_wake_travels_with_its_flush(make: Make) {
    wake_each_other(make, Port::pair, 0, wake_and_flush);
}

/// The same between threads with the same number, which may have a connection of their own.
pub fn a_wake_travels_between_threads_of_one_number(make: Make) {
    wake_each_other(make, Port::pair_of_one_number, 0, wake_and_flush);
}

/// The same behind so many bytes that they leave before the flush.
pub fn a_wake_travels_behind_what_has_left(make: Make) {
    const BYTES: usize = 600 << 10;
    wake_each_other(make, Port::pair, BYTES, wake_and_flush);
    wake_each_other(make, Port::pair_of_one_number, BYTES, wake_and_flush);
}

fn wake_and_flush(lane: &mut dyn Lane, thread: u32) {
    lane.wake(thread);
    lane.flush().expect("a flush");
}

/// Each side writes `behind` bytes, signals, and does what `give` says.
fn wake_each_other(
    make: Make,
    pair: fn(&Rack) -> (Port, Port),
    behind: usize,
    give: fn(&mut dyn Lane, u32),
) {
    let rounds = if behind == 0 { 400 } else { 6 };
    bounded(move || {
        let (mut a, mut b) = pair(&make(2, 2));
        let len = 64 + behind;
        let (of_a, of_b) = (a.export(2, len, Rights::WRITE), b.export(1, len, Rights::WRITE));
        let play = |port: &mut Port, key: u64, own: &crate::Region, first: bool| {
            let mut parker = port.transport.parker(port.thread).expect("a parker");
            let (to, body) = (port.import(key), primitive::SharedBytes::heap(behind.max(8)));
            for round in 1..=rounds {
                let turn = |port: &mut Port| {
                    if behind > 0 {
                        port.lane.write(&to, 64, &body).expect("a write");
                    }
                    port.lane.signal(&to, 0, round).expect("a signal");
                    give(&mut *port.lane, port.peer_thread);
                };
                if first {
                    turn(port);
                }
                let mut arrived = || own.memory().load(0, Ordering::Acquire) == round;
                while !arrived() {
                    port.poll();
                    port.check_peer("a signal");
                    parker.park(DEADLINE, &mut arrived);
                }
                if !first {
                    turn(port);
                }
            }
        };
        together(|| play(&mut a, 1, &of_a, true), || play(&mut b, 2, &of_b, false));
    });
}

/// A thread without lanes wakes a runtime thread by [`Transport::unpark`](crate::Transport::unpark).
pub fn an_unpark_wakes_a_sleeper(make: Make) {
    const ROUNDS: u64 = 500;
    bounded(move || {
        let rack = make(2, 2);
        let transport = &rack.hosts[0];
        let (given, taken) = (AtomicU64::new(0), AtomicU64::new(0));
        together(
            || {
                for round in 1..=ROUNDS {
                    given.store(round, Ordering::Release);
                    transport.unpark(1);
                    while taken.load(Ordering::Acquire) < round {
                        thread::yield_now();
                    }
                }
            },
            || {
                let mut parker = transport.parker(1).expect("a parker");
                for round in 1..=ROUNDS {
                    let mut ready = || given.load(Ordering::Acquire) >= round;
                    while !ready() {
                        parker.park(DEADLINE, &mut ready);
                    }
                    taken.store(round, Ordering::Release);
                }
            },
        );
    });
}

/// A wake that arrives during the last look for work prevents the sleep, even if that look polls.
pub fn a_wake_during_the_last_look_is_kept(make: Make) {
    bounded(move || {
        let (mut a, _b) = Port::pair(&make(2, 2));
        let (transport, thread) = (a.transport.clone(), a.thread);
        let mut parker = transport.parker(thread).expect("a parker");
        parker.park(2 * DEADLINE, &mut || {
            transport.unpark(thread);
            for _ in 0..3 {
                a.poll();
            }
            false
        });
    });
}

/// A sleep without a wake ends at its timeout, and does not begin if `ready` returns true.
pub fn a_sleeper_wakes_by_itself(make: Make) {
    bounded(move || {
        let rack = make(2, 2);
        let mut parker = rack.hosts[0].parker(0).expect("a parker");
        let mut asked = 0;
        parker.park(Duration::from_millis(5), &mut || {
            asked += 1;
            false
        });
        parker.park(DEADLINE * 2, &mut || true);
        parker.park(Duration::ZERO, &mut || false);
        assert_eq!(asked, 1, "`ready` is asked once");
    });
}

/// Takes the end of the peer from the events of `port`.
fn end(port: &mut Port) -> PeerEvent {
    port.until("the end of the peer", |events| {
        let found = events.iter().position(|event| matches!(event, Event::Peer(_)))?;
        match events.remove(found) {
            Event::Peer(event) => Some(event),
            _ => None,
        }
    })
}

/// A rack of two hosts, which tests of a peer's end need.
fn two(make: Make) -> Rack {
    let rack = make(2, 2);
    assert_eq!(rack.hosts.len(), 2, "a rack of one host has no peers to lose: say `one_host`");
    rack
}

/// A host that says goodbye is reported as left, once by each lane, also if its process ends later.
pub fn a_goodbye_is_not_a_loss(make: Make) {
    bounded(move || {
        let rack = two(make);
        let (mut a, b) = Port::pair(&rack);
        let mut second = Port::open(&rack.hosts[0], 1, HostId(1), 1);
        b.transport.leave();
        assert_eq!(end(&mut a), PeerEvent::Left(HostId(1)));
        (rack.kill)(HostId(1));
        assert_eq!(end(&mut second), PeerEvent::Left(HostId(1)));
        thread::sleep(Duration::from_millis(50));
        a.poll();
        assert!(!a.events.iter().any(|event| matches!(event, Event::Peer(_))), "reported once");
        assert!(matches!(a.lane.flush(), Err(OpError::PeerLost(HostId(1), _))));
    });
}

/// Payloads sent before a goodbye are reported before it.
pub fn what_was_sent_before_a_goodbye_arrives(make: Make) {
    bounded(move || {
        let (mut a, mut b) = Port::pair(&two(make));
        for tag in 0..10 {
            b.lane.bulk(0, Tag(tag), vec![tag as u8; 1000]).expect("a payload");
        }
        b.lane.flush().expect("a flush");
        b.transport.leave();
        assert_eq!(end(&mut a), PeerEvent::Left(HostId(1)));
        let tags: Vec<u64> = a.events.iter().filter_map(tag).collect();
        assert_eq!(tags, (0..10).collect::<Vec<_>>());
    });
}

fn tag(event: &Event) -> Option<u64> {
    match event {
        Event::Bulk { tag, .. } => Some(tag.0),
        _ => None,
    }
}

/// A host that ends without a goodbye is reported as lost, with a reason; every operation then fails.
pub fn a_loss_is_reported_and_final(make: Make) {
    bounded(move || {
        let rack = two(make);
        let (mut a, mut b) = Port::pair(&rack);
        let _region = b.export(1, 64, Rights::ALL);
        let remote = a.import(1);
        (rack.kill)(HostId(1));
        let PeerEvent::Lost(HostId(1), reason) = end(&mut a) else { panic!("not a loss") };
        assert!(!reason.to_string().is_empty());
        let lost = Err(OpError::PeerLost(HostId(1), reason));
        assert_eq!(a.lane.write(&remote, 0, &filled(&[1; 8])), lost);
        assert_eq!(a.lane.signal(&remote, 0, 1), lost);
        assert_eq!(a.lane.fetch_add(&remote, 0, 1, 1), lost);
        assert_eq!(a.lane.bulk(0, Tag(0), vec![1]), lost);
        assert_eq!(a.lane.flush(), lost);
        let start = Instant::now();
        let import = a.transport.import(HostId(1), RegionKey(2), DEADLINE);
        assert!(matches!(import, Err(RegionError::PeerLost(HostId(1), _))));
        assert!(start.elapsed() < DEADLINE / 2, "an import from a lost host does not wait");
    });
}

/// The loss of a peer wakes a sleeping thread.
pub fn a_loss_wakes_a_sleeper(make: Make) {
    bounded(move || {
        let rack = two(make);
        let (mut a, _b) = Port::pair(&rack);
        let asleep = AtomicBool::new(false);
        together(
            || {
                let mut parker = a.transport.parker(0).expect("a parker");
                while !a.events.iter().any(|event| matches!(event, Event::Peer(_))) {
                    parker.park(DEADLINE, &mut || {
                        asleep.store(true, Ordering::Release);
                        false
                    });
                    a.poll();
                }
            },
            || {
                while !asleep.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_millis(5));
                (rack.kill)(HostId(1));
            },
        );
    });
}

/// Once its lanes have reported a loss, nothing keeps a thread awake: it sleeps for its whole timeout,
/// several times in a row.
pub fn a_thread_that_knows_of_a_loss_sleeps(make: Make) {
    const SLEEP: Duration = Duration::from_millis(20);
    const IN_A_ROW: u32 = 3;
    bounded(move || {
        let rack = two(make);
        let (mut a, mut b) = Port::pair(&rack);
        let mut parker = a.transport.parker(0).expect("a parker");
        // An event from before the loss must not keep the thread awake either.
        b.lane.bulk(0, Tag(1), vec![1; 100]).expect("a payload");
        b.lane.flush().expect("a flush");
        assert_eq!(a.next_bulk().1, 1);
        (rack.kill)(HostId(1));
        assert!(matches!(end(&mut a), PeerEvent::Lost(HostId(1), _)));
        let (start, mut slept) = (Instant::now(), 0);
        while slept < IN_A_ROW {
            assert!(start.elapsed() < DEADLINE / 2, "something keeps the thread awake");
            let (moved, begun) = (a.poll(), Instant::now());
            parker.park(SLEEP, &mut || false);
            slept = if !moved && begun.elapsed() >= SLEEP { slept + 1 } else { 0 };
        }
    });
}

/// Requests and replies travel in place through a cell.
pub fn a_cell_goes_back_and_forth(make: Make) {
    const ROUNDS: u64 = 1000;
    bounded(move || {
        let (mut client, mut trustee) = Port::pair(&make(2, 2));
        let (key, mirror) = (RegionKey(1), RegionKey(2));
        let offer = Cell::offer(&*trustee.transport, key, 4096).expect("an offer");
        let pass = |port: &mut Port, cell: &Cell, text: &[u8], word: u64| {
            let part = cell.local().slice(64, text.len());
            part.write_from(0, text);
            port.lane.write(cell.remote(), 64, &part).expect("a write");
            port.lane.signal(cell.remote(), 0, word).expect("a signal");
            port.lane.flush().expect("a flush");
        };
        together(
            || {
                let owner = client.peer;
                let cell = Cell::join(&*client.transport, owner, key, mirror, DEADLINE);
                let cell = cell.expect("a cell");
                for round in 0..ROUNDS {
                    let request: Vec<u8> = (0..1000).map(|n| (n + round) as u8).collect();
                    pass(&mut client, &cell, &request, 2 * round + 1);
                    client.until_word(cell.local(), 0, |word| word == 2 * round + 2);
                    let reply = bytes(&cell.local().slice(64, 1000));
                    assert!(reply.iter().zip(&request).all(|(a, b)| *a == !*b), "round {round}");
                }
            },
            || {
                let peer = trustee.peer;
                let cell = offer.accept(&*trustee.transport, peer, mirror, DEADLINE);
                let cell = cell.expect("a cell");
                for round in 0..ROUNDS {
                    trustee.until_word(cell.local(), 0, |word| word == 2 * round + 1);
                    let mut text = bytes(&cell.local().slice(64, 1000));
                    text.iter_mut().for_each(|byte| *byte = !*byte);
                    pass(&mut trustee, &cell, &text, 2 * round + 2);
                }
            },
        );
    });
}
