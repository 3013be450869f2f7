//! What one side may be owed, what is held back until then, and what that must not hold up.

use super::*;
use crate::machine::asking::ANSWER_WINDOW;

#[test]
fn a_small_grant_travels_with_the_next_message_and_a_large_one_alone() {
    let (mut a, mut b) = (End::new(1), End::new(0));
    a.machine.bulk(0, 0, vec![1; 100]);
    exchange(&mut a, &mut b, &[usize::MAX]);
    b.machine.taken(0, bulk::cost_of(100));
    assert!(b.machine.outgoing().is_empty(), "a message of its own");
    b.machine.wake(0);
    exchange(&mut a, &mut b, &[usize::MAX]);
    a.machine.outbound.granted(0, 1).expect_err("it was granted");
    // A quarter of the window is much.
    let large = bulk::WINDOW as usize / 4;
    a.machine.bulk(0, 0, vec![1; large]);
    exchange(&mut a, &mut b, &[usize::MAX]);
    b.machine.taken(0, bulk::cost_of(large));
    exchange(&mut a, &mut b, &[usize::MAX]);
    a.machine.outbound.granted(0, 1).expect_err("it was granted");
}

/// Reads that are worth more than the window wait at the side that asks, with all behind them.
#[test]
fn no_side_is_owed_more_answers_than_the_window() {
    let (mut a, mut b) = (End::new(1), End::new(0));
    let large = SharedBytes::heap(4 << 20);
    let exported = Exported::new((RegionKey(9), 0), Rights::ALL.into(), large.clone());
    b.fake.regions.push(Arc::new(exported));
    let name = Name { key: RegionKey(9), generation: 0 };
    let into = SharedBytes::heap(large.len());
    large.store(8, 77, Ordering::Relaxed);
    a.machine.read(name, 0, &into, 1);
    a.machine.signal(name, 8, 78);
    a.send(&mut b, usize::MAX).expect("no violation");
    assert!(b.machine.answers.len() <= ANSWER_WINDOW);
    assert_eq!(large.load(8, Ordering::Relaxed), 77, "the signal waits behind the read");
    exchange(&mut a, &mut b, &[usize::MAX]);
    assert_eq!((into.load(8, Ordering::Relaxed), large.load(8, Ordering::Relaxed)), (77, 78));
    assert_eq!(a.take_events().len(), 1);

    // One that does not keep to it is sent away before it is answered at length.
    let mut bytes = Vec::new();
    Header { word: BODY_BYTES as u64, ..on(Kind::Read, name, 0) }.encode(0, &mut bytes);
    let refused = (0..100).find_map(|_| b.feed(&bytes).err()).expect("a refusal");
    assert!(refused.to_string().contains("takes no answers"), "{refused}");
    // Failures of operations without a token are not all reported.
    let mut bytes = Vec::new();
    let mut c = End::new(0);
    Header { word: 1, ..on(Kind::Write, REVOKED, 0) }.encode(0, &mut bytes);
    (0..100_000).for_each(|_| c.feed(&bytes).expect("no violation"));
    assert!(c.machine.answers.len() < 2 * ANSWER_WINDOW);
}

/// A region of 64 KiB that `end` exports to be read, as large as a read may be in one part.
fn export_block(end: &mut End) -> Name {
    let name = Name { key: RegionKey(9), generation: 0 };
    let memory = SharedBytes::heap(BODY_BYTES);
    let exported = Exported::new((name.key, name.generation), Rights::ALL.into(), memory);
    end.fake.regions.push(Arc::new(exported));
    name
}

/// A side whose reads never end, so that some are held back at any time.
#[test]
fn reads_without_end_hold_up_neither_notifications_nor_payloads() {
    let (mut a, mut b) = (End::new(1), End::new(0));
    let (name, into) = (export_block(&mut b), SharedBytes::heap(BODY_BYTES));
    let read = |a: &mut End| a.machine.read(name, 0, &into, 1);
    (0..24).for_each(|_| read(&mut a));
    a.machine.signal(ALL, 0, 7);
    a.machine.announce(ALL, 0, 8, 2, 5);
    a.machine.bulk(0, 6, vec![6; 10]);
    let mut arrived = Vec::new();
    for _ in 0..24 {
        a.send(&mut b, usize::MAX).expect("no violation");
        for (thread, event) in b.fake.events.drain(..) {
            if let Event::Notified { .. } = event {
                assert_eq!(b.fake.regions[0].memory.load(0, Ordering::Acquire), 7, "its data");
            }
            arrived.push(thread);
        }
        // Two answers, or one and parts of two others.
        b.send(&mut a, 2 * BODY_BYTES).expect("no violation");
        for _ in a.take_events() {
            read(&mut a);
        }
        assert!(a.machine.asking.started() > a.machine.asking.released(), "none is held back");
    }
    assert_eq!(arrived, [0, 2], "the payload waits for nothing, the notification for its data");
}

/// A side that is always asked for more than it puts in front of the socket at a time.
#[test]
fn answers_without_end_hold_up_neither_notifications_nor_payloads() {
    let (mut a, mut b) = (End::new(1), End::new(0));
    let (name, into) = (export_block(&mut b), SharedBytes::heap(BODY_BYTES));
    let read = |a: &mut End| a.machine.read(name, 0, &into, 1);
    (0..16).for_each(|_| read(&mut a));
    let mut arrived = Vec::new();
    b.machine.announce(ALL, 0, 8, 2, 5);
    b.machine.bulk(0, 6, vec![6; 10]);
    for _ in 0..24 {
        a.send(&mut b, usize::MAX).expect("no violation");
        b.send(&mut a, 2 * BODY_BYTES).expect("no violation");
        for (thread, event) in std::mem::take(&mut a.fake.events) {
            match event {
                Event::Completed { .. } => read(&mut a),
                _ => arrived.push(thread),
            }
        }
    }
    arrived.sort_unstable();
    assert_eq!(arrived, [0, 2]);
}
