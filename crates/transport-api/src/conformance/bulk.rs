//! Bulk payloads and notifications.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::thread;

use primitive::SharedBytes;
use primitive::limits::MESSAGE_BYTES;
use primitive::sync::Ordering;

use crate::conformance::{Make, Port, bounded, bulk_in, bytes, filled, together};
use crate::{Event, Namespace, OpError, RegionKey, Rights, Tag, ThreadId, WAITING_OVERHEAD};

/// The length of the largest payload.
const LARGEST: usize = 5 << 20;
/// A prime: as many payloads of a length differ, if that has more than a few bytes.
const SEEDS: usize = 4093;
/// From one seed to the next, so that these are not the same bytes, shifted by one.
const STRIDE: usize = 1021;

/// A payload whose bytes derive from `seed`: a part of bytes that are made once, since a byte at a time would
/// take most of these tests where they are not optimised.
fn payload(seed: u64, len: usize) -> Vec<u8> {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        (0..LARGEST + SEEDS).map(|n| (n.wrapping_mul(31) ^ n >> 8 ^ n >> 16) as u8).collect()
    });
    BYTES[seed as usize * STRIDE % SEEDS..][..len].to_vec()
}

/// Payloads that are empty, tiny, of odd length, and larger than any buffer on the way.
pub fn payloads_of_every_size_arrive_whole(make: Make) {
    const SIZES: [usize; 9] = [0, 1, 7, 8, 9, 4096, 65_537, 1 << 20, LARGEST];
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let from = ThreadId { host: a.transport.local(), thread: 0 };
        together(
            || {
                for (tag, size) in (0..).zip(SIZES) {
                    a.lane.bulk(1, Tag(tag), payload(tag, size)).expect("a payload");
                    a.lane.flush().expect("a flush");
                }
                a.until("an answer", |events| {
                    events
                        .iter()
                        .find(|e| matches!(e, Event::Bulk { tag: Tag(99), .. }))
                        .map(|_| ())
                });
            },
            || {
                for (tag, size) in (0..).zip(SIZES) {
                    let (sender, seen, bytes) = b.next_bulk();
                    assert_eq!((sender, seen), (from, tag));
                    assert!(bytes == payload(tag, size), "a payload of {size} bytes");
                }
                b.lane.bulk(0, Tag(99), Vec::new()).expect("a payload");
                b.lane.flush().expect("a flush");
            },
        );
    });
}

/// Three threads of host A send to two of host B at once; the payloads of each pair keep their order.
pub fn payloads_keep_their_order_among_many(make: Make) {
    const EACH: u64 = 60;
    let size = |sender: u32, n: u64| (n * 7919 % 50_000) as usize * (sender as usize + 1) / 3;
    bounded(move || {
        let rack = make(2, 5);
        let (first, last) = (rack.hosts[0].clone(), rack.hosts[rack.hosts.len() - 1].clone());
        thread::scope(|scope| {
            for sender in 0..3 {
                let mut port = Port::open(&first, sender, last.local(), 3);
                scope.spawn(move || {
                    for n in 0..EACH {
                        for to in [3, 4] {
                            let bytes = payload(n + u64::from(sender), size(sender, n));
                            port.lane.bulk(to, Tag(n), bytes).expect("a payload");
                        }
                        port.lane.flush().expect("a flush");
                        port.poll();
                    }
                    (0..2).for_each(|_| drop(port.next_bulk()));
                });
            }
            for receiver in [3, 4] {
                let mut port = Port::open(&last, receiver, first.local(), 0);
                scope.spawn(move || {
                    let mut next: HashMap<u32, u64> = HashMap::new();
                    for _ in 0..3 * EACH {
                        let (from, tag, bytes) = port.next_bulk();
                        let expected = next.entry(from.thread).or_default();
                        assert_eq!(tag, *expected, "from {from}");
                        *expected += 1;
                        let seed = tag + u64::from(from.thread);
                        assert!(
                            bytes == payload(seed, size(from.thread, tag)),
                            "{tag} from {from}"
                        );
                    }
                    for sender in 0..3 {
                        port.lane.bulk(sender, Tag(0), Vec::new()).expect("a payload");
                    }
                    port.lane.flush().expect("a flush");
                    port.poll();
                });
            }
        });
    });
}

/// The sender starts far more payloads than any buffer holds before the receiver first polls.
pub fn payloads_wait_for_room_without_blocking(make: Make) {
    const COUNT: u64 = 40;
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        for tag in 0..COUNT {
            a.lane.bulk(1, Tag(tag), payload(tag, 256 << 10)).expect("a payload");
        }
        a.lane.flush().expect("a flush");
        for tag in 0..COUNT {
            let received = b.until("a payload", |events| {
                a.poll();
                let found = events.iter().position(|e| matches!(e, Event::Bulk { .. }))?;
                Some(events.remove(found))
            });
            let Event::Bulk { tag: Tag(seen), payload: bytes, .. } = received else {
                unreachable!()
            };
            assert_eq!(seen, tag);
            assert!(bytes == payload(tag, 256 << 10), "payload {tag}");
        }
    });
}

/// A payload wakes a receiver that sleeps on its parker; free space wakes a sender that waits for it.
pub fn a_bulk_payload_wakes_its_receiver(make: Make) {
    const ROUNDS: u64 = 8;
    // The last payload is small, so that its sender need not stay until it has room.
    let sent = |round: u64| payload(round, if round == ROUNDS { 0 } else { 3 << 20 });
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let exchange = |port: &mut Port, parity: u64| {
            let mut parker = port.transport.parker(port.thread).expect("a parker");
            for round in 0..=ROUNDS {
                if round % 2 == parity {
                    port.lane.bulk(port.peer_thread, Tag(round), sent(round)).expect("a payload");
                    port.lane.flush().expect("a flush");
                    continue;
                }
                let (_, tag, bytes) = port.until_woken("a bulk payload", &mut *parker, bulk_in);
                assert!(tag == round && bytes == sent(round), "round {round}");
            }
        };
        together(|| exchange(&mut a, 0), || exchange(&mut b, 1));
    });
}

/// A receiver that takes a notification sees its data.
pub fn a_notification_follows_its_data(make: Make) {
    const ROUNDS: u32 = 500;
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let (data, back) = (b.export(1, 8192, Rights::WRITE), a.export(2, 64, Rights::WRITE));
        let (to, answer) = (a.import(1), b.import(2));
        let from = ThreadId { host: a.transport.local(), thread: 0 };
        together(
            || {
                for round in 1..=ROUNDS {
                    let bytes = filled(&[round as u8; 3000]);
                    a.lane.write_notify(&to, 40, &bytes, 1, round).expect("a notification");
                    a.lane.flush().expect("a flush");
                    a.until_word(back.memory(), 0, |word| word == u64::from(round));
                }
            },
            || {
                for round in 1..=ROUNDS {
                    let event = b.until("a notification", |events| events.pop());
                    let Event::Notified { from: who, key, at, len, value } = event else {
                        panic!("{event:?} is no notification")
                    };
                    assert_eq!((who, key, at, len, value), (from, RegionKey(1), 40, 3000, round));
                    let seen = bytes(&data.memory().slice(40, 3000));
                    assert!(seen.iter().all(|byte| *byte == round as u8), "round {round}");
                    b.lane.signal(&answer, 0, round.into()).expect("a signal");
                    b.lane.flush().expect("a flush");
                }
            },
        );
    });
}

/// A notification contains the length of the write, short or long.
pub fn a_notification_says_how_much(make: Make) {
    const LENGTHS: [usize; 7] = [0, 1, 8, 63, 4096, 65_537, 300_000];
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let _data = b.export(1, 1 << 20, Rights::WRITE);
        let to = a.import(1);
        for (length, at) in LENGTHS.into_iter().zip((0..).step_by(24)) {
            a.lane.write_notify(&to, at, &filled(&vec![1; length]), 1, 7).expect("a notification");
            a.lane.flush().expect("a flush");
            let event = b.until("a notification", |events| {
                a.poll();
                events.pop()
            });
            let Event::Notified { at: seen, len, .. } = event else {
                panic!("{event:?} is no notification")
            };
            assert_eq!((seen, len), (at as u64, length as u64));
        }
    });
}

/// A notification alone wakes a receiver that sleeps on its parker.
pub fn a_notification_wakes_its_receiver(make: Make) {
    const ROUNDS: u32 = 300;
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let _regions = (b.export(1, 64, Rights::WRITE), a.export(2, 64, Rights::WRITE));
        let exchange = |port: &mut Port, key: u64, first: bool| {
            let mut parker = port.transport.parker(port.thread).expect("a parker");
            let to = port.import(key);
            for round in 0..ROUNDS {
                if round > 0 || !first {
                    let notified = |events: &mut Vec<Event>| {
                        let found =
                            events.iter().position(|e| matches!(e, Event::Notified { .. }))?;
                        Some(events.remove(found))
                    };
                    let event = port.until_woken("a notification", &mut *parker, notified);
                    let expected = round - u32::from(first);
                    assert!(matches!(event, Event::Notified { value, .. } if value == expected));
                }
                let word = filled(&[1; 8]);
                port.lane
                    .write_notify(&to, 8, &word, port.peer_thread, round)
                    .expect("a notification");
                port.lane.flush().expect("a flush");
            }
        };
        together(|| exchange(&mut a, 1, true), || exchange(&mut b, 2, false));
    });
}

/// An owner that does not poll: the data arrives all the same, which a fence tells; the lane says how
/// many notifications it holds back, and hands them on, in order, once they are taken.
pub fn notifications_wait_for_their_receiver_and_are_counted(make: Make) {
    /// More than any transport takes in advance.
    const MOST: u32 = 40_000;
    /// Those between two fences: few enough that no transport holds any back once their fence is complete,
    /// except for their receiver.
    const BLOCK: u32 = 1_000;
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let data = b.export(1, 64, Rights::ALL);
        let to = a.import(1);
        assert_eq!(a.lane.waiting_notifications(1), 0);
        let word = SharedBytes::heap(8);
        let mut count = 0;
        // What waits behind a fence that is complete waits for its receiver.
        while count < MOST && a.lane.waiting_notifications(1) == 0 {
            for _ in 0..BLOCK {
                word.store(0, u64::from(count) + 1, Ordering::Relaxed);
                a.lane.write_notify(&to, 8, &word, 1, count).expect("a notification");
                a.lane.flush().expect("a flush");
                count += 1;
                if count % 64 == 0 {
                    a.poll();
                }
            }
            a.lane.fence(count.into()).expect("a fence");
            a.lane.flush().expect("a flush");
            assert_eq!(a.completion(count.into()), Ok(0));
        }
        assert_eq!(data.memory().load(8, Ordering::Acquire), u64::from(count), "the data is there");
        let waiting = a.lane.waiting_notifications(1);
        assert!((1..=count as usize).contains(&waiting), "{waiting} wait");
        assert_eq!(a.lane.waiting_notifications(0), 0, "none for another thread");
        assert_eq!(a.lane.waiting_notifications(2), 0, "no such thread");
        let mut expected = 0;
        b.until("all notifications", |events| {
            a.poll();
            for event in events.drain(..) {
                let is_next = matches!(event, Event::Notified { value, .. } if value == expected);
                assert!(is_next, "{event:?} instead of notification {expected}");
                expected += 1;
            }
            (expected == count).then_some(())
        });
        assert_eq!(a.lane.waiting_notifications(1), 0);
    });
}

/// The same with bulk payloads: each counts with its bytes, in its own name space.
pub fn payloads_that_wait_are_counted(make: Make) {
    const COUNT: u64 = 40;
    const LEN: usize = 256 << 10;
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let tag = |number| Tag::new(Namespace::SEGMENTS, number);
        assert_eq!(a.lane.waiting_bulk(Namespace::SEGMENTS), 0);
        for number in 0..COUNT {
            a.lane.bulk(1, tag(number), payload(number, LEN)).expect("a payload");
        }
        a.lane.flush().expect("a flush");
        let waiting = a.lane.waiting_bulk(Namespace::SEGMENTS);
        let most = COUNT as usize * (LEN + WAITING_OVERHEAD);
        assert!((LEN..=most).contains(&waiting), "{waiting} bytes wait");
        assert_eq!(a.lane.waiting_bulk(Namespace::BARE), 0, "nothing of another layer");
        for number in 0..COUNT {
            let seen = b.until("a payload", |events| {
                a.poll();
                let found = events.iter().position(|e| matches!(e, Event::Bulk { .. }))?;
                Some(events.remove(found))
            });
            assert!(matches!(seen, Event::Bulk { tag: t, .. } if t == tag(number)), "{seen:?}");
        }
        assert_eq!(a.lane.waiting_bulk(Namespace::SEGMENTS), 0);
    });
}

/// Payloads that are too large, and payloads and notifications to a thread that does not exist.
pub fn bad_payloads_are_refused(make: Make) {
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let no_thread = OpError::NoSuchThread(2, b.transport.local());
        assert_eq!(a.lane.bulk(2, Tag(0), Vec::new()), Err(no_thread.clone()));
        let large = vec![0; MESSAGE_BYTES + 1];
        let too_large = OpError::TooLarge(MESSAGE_BYTES + 1, MESSAGE_BYTES);
        assert_eq!(a.lane.bulk(1, Tag(0), large), Err(too_large));
        let _region = b.export(1, 64, Rights::WRITE);
        let to = a.import(1);
        assert_eq!(a.lane.write_notify(&to, 0, &filled(&[0; 8]), 2, 0), Err(no_thread));
    });
}
