//! Frames of every kind through rings of every state, valid or not.

use std::cmp::Ordering::{Greater, Less};
use std::sync::Arc;

use primitive::sync::Ordering;
use proptest::prelude::*;
use transport_api::{HostId, Notice, NoticeEnd, NoticeOutbox, RegionKey, Tag, WAITING_OVERHEAD};

use super::*;

fn ring(bytes: usize) -> (Sender, Receiver, SharedBytes) {
    let memory = SharedBytes::heap(RING_HEADER + bytes);
    let place = Place::new(&memory, 0, bytes);
    let back = SharedBytes::heap(NOTICE_SLOTS_BYTES);
    let sends = Arc::new(NoticeEnd::new(place.slots(), back.clone(), Greater));
    let receives = Arc::new(NoticeEnd::new(back, place.slots(), Less));
    let outbox = NoticeOutbox::new(sends, (1, HostId(0)), SharedBytes::heap(8), drop);
    (Sender::new(place.clone(), outbox), Receiver::new(place, receives), memory)
}

fn notice(n: u32) -> Notice {
    let key = RegionKey(n.into());
    Notice { key, at: !key.0 & ((1 << 48) - 1), len: (1 << 48) - 1 - key.0, value: !n }
}

#[test]
fn a_sender_without_room_is_woken_when_there_is_some() {
    let (mut sender, mut receiver, _) = ring(64);
    sender.push(Frame::Bulk { tag: 1, len: 100 }, vec![3; 100]);
    assert_eq!(sender.advance(), Ok(true));
    assert!(sender.is_waiting(), "100 bytes do not fit");
    sender.push(Frame::Notify(notice(1)), Vec::new());
    assert_eq!(sender.waiting().notifications(), 1);
    assert_eq!(sender.waiting().bulk_bytes(Tag(1).namespace()), 100 + WAITING_OVERHEAD);
    let progress = receiver.advance(&mut |_| ()).expect("a valid ring");
    assert!(progress.moved && progress.wake_sender);
    assert_eq!(sender.advance(), Ok(true));
    let mut whole = Vec::new();
    while whole.is_empty() {
        sender.advance().expect("a valid ring");
        let mut take = |arrival| {
            if let Arrival::Bulk { payload, .. } = arrival {
                whole = payload;
            }
        };
        receiver.advance(&mut take).expect("a valid ring");
    }
    assert_eq!(whole, vec![3; 100]);
    while sender.is_waiting() {
        receiver.advance(&mut |_| ()).expect("a valid ring");
        sender.advance().expect("a valid ring");
    }
    assert_eq!(sender.waiting().notifications(), 0);
    assert_eq!(sender.waiting().bulk_bytes(Tag(1).namespace()), 0);
}

/// A receiver consumes no more than was written, and takes nothing back.
#[test]
fn a_head_outside_of_what_was_written_is_an_error() {
    for head in [0_u64.wrapping_sub(8), 8, 128] {
        let (mut sender, _, memory) = ring(128);
        // Three frames of 40 bytes, and no room for the header of a fourth.
        for _ in 0..4 {
            sender.push(Frame::Bulk { tag: 0, len: 8 }, vec![0; 8]);
        }
        assert_eq!(sender.advance(), Ok(true));
        memory.store(HEAD, 40, Ordering::Relaxed);
        assert_eq!(sender.advance(), Ok(true), "there is room for the fourth");
        for _ in 0..4 {
            sender.push(Frame::Bulk { tag: 0, len: 8 }, vec![0; 8]);
        }
        let _ = sender.advance();
        memory.store(HEAD, head, Ordering::Relaxed);
        assert!(sender.advance().is_err() == (head != 128), "head {head}");
    }
}

proptest! {
    #[test]
    fn frames_arrive_as_they_were_sent(
        lens in proptest::collection::vec(proptest::option::of(0usize..300), 1..20),
        turns in proptest::collection::vec(any::<bool>(), 0..200),
    ) {
        let (mut sender, mut receiver, _) = ring(128);
        let mut expected = Vec::new();
        for (n, len) in (0u32..).zip(&lens) {
            let bytes: Vec<u8> = (0..len.unwrap_or(0)).map(|i| i as u8 ^ n as u8).collect();
            let tag = u64::from(n);
            sender.push(match len {
                Some(len) => Frame::Bulk { tag, len: *len },
                None => Frame::Notify(notice(n)),
            }, bytes.clone());
            expected.push((tag, len.map(|_| bytes)));
        }
        let mut arrived = Vec::new();
        let all = turns.into_iter().chain((0..1000).map(|n| n % 2 == 0));
        for send in all {
            if send {
                sender.advance().expect("a valid ring");
            } else {
                receiver.advance(&mut |arrival| arrived.push(match arrival {
                    Arrival::Bulk { tag, payload } => (tag, Some(payload)),
                    Arrival::Notify(arrived) => {
                        assert_eq!(arrived, notice(arrived.key.0 as u32));
                        (arrived.key.0, None)
                    }
                })).expect("a valid ring");
            }
        }
        prop_assert_eq!(arrived, expected);
    }

    /// However they are taken: by a poll of the slots alone, or by a look at everything.
    #[test]
    fn notifications_arrive_in_order_out_of_slots_and_ring(
        turns in proptest::collection::vec((any::<bool>(), 0u32..200), 1..60),
    ) {
        let (mut sender, mut receiver, _) = ring(1 << 12);
        let (mut sent, mut taken) = (0, 0);
        let mut check = |arrival| match arrival {
            Arrival::Notify(arrived) => {
                assert_eq!(arrived, notice(taken));
                taken += 1;
            }
            Arrival::Bulk { .. } => panic!("no payload was sent"),
        };
        for (send, count) in turns.into_iter().chain((0..1000).map(|n| (false, n))) {
            if send {
                for _ in 0..count {
                    if !sender.notify(notice(sent)).expect("a valid ring") {
                        sender.push(Frame::Notify(notice(sent)), Vec::new());
                        sender.advance().expect("a valid ring");
                    }
                    sent += 1;
                }
            } else if count % 2 == 0 {
                receiver.take_slots(&mut check).expect("a valid ring");
            } else {
                receiver.advance(&mut check).expect("a valid ring");
                sender.advance().expect("a valid ring");
            }
        }
        prop_assert_eq!(taken, sent);
        // With nothing in the ring, slots are used again.
        prop_assert_eq!(sender.notify(notice(sent)), Ok(true));
    }

    #[test]
    fn an_invalid_ring_is_an_error_and_never_a_panic(
        tail in prop_oneof![0u64..20, any::<u64>()],
        head in prop_oneof![0u64..20, (0u64..20).prop_map(|n| n.wrapping_neg()), any::<u64>()],
        words in proptest::collection::vec(prop_oneof![0u64..4, any::<u64>()], 16),
    ) {
        let (mut sender, mut receiver, memory) = ring(128);
        memory.store(TAIL, tail.wrapping_mul(8), Ordering::Relaxed);
        memory.store(HEAD, head, Ordering::Relaxed);
        for (n, word) in words.into_iter().enumerate() {
            memory.store(RING_HEADER + n * 8, word, Ordering::Relaxed);
            // The first slots in use, with the numbers that are expected, or `taken` and others.
            let number = (n as u64 / 4 + 1) << 32;
            let at = SLOTS + if n < 8 { 256 + 32 + n * 8 } else { n * 8 };
            memory.store(at, if n % 4 == 3 { number | word >> 32 } else { word }, Ordering::Relaxed);
            memory.store(NOTICED, word, Ordering::Relaxed);
        }
        for _ in 0..4 {
            let _ = receiver.advance(&mut |_| ());
            sender.push(Frame::Bulk { tag: 0, len: 10 }, vec![0; 10]);
            sender.push(Frame::Notify(notice(0)), Vec::new());
            let _ = sender.advance();
            let _ = sender.notify(notice(1));
        }
    }
}
