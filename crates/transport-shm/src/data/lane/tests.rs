//! Lanes whose ends, slots and rings are in states that racks reach by chance only.

use std::time::{Duration, Instant};

use primitive::sync::Ordering;
use transport_api::park_word::{AWAKE, BUSY, PARKED};
use transport_api::{NoticeInbox, Notification, Transport};

use super::*;
use crate::ShmTransport;

fn end(lane: &mut dyn Lane) -> PeerEvent {
    let start = std::time::Instant::now();
    let mut end = None;
    while end.is_none() {
        lane.poll(&mut |event| {
            if let Event::Peer(event) = event {
                end = Some(event);
            }
        });
        assert!(start.elapsed().as_secs() < 20, "the end goes unnoticed");
    }
    end.expect("an end")
}

#[test]
fn a_request_after_the_end_keeps_no_thread_awake() {
    let rack = ShmTransport::in_process(2, 1).expect("a rack");
    let mut lane = rack[0].lane(0, HostId(1)).expect("a lane");
    rack[1].sever();
    assert!(matches!(end(&mut *lane), PeerEvent::Lost(HostId(1), _)));
    // As the thread that notes the end does for all threads, perhaps only now.
    let host = rack[0].host();
    host.own().ask(0, HostId(1));
    assert!(!host.has_events(0));
}

fn lane(rack: &[Arc<ShmTransport>], host: usize, thread: u32) -> ShmLane {
    let queues = &rack[host].host().event_queues;
    let event_queue = queues.open(thread, HostId(1 - host as u32)).expect("a lane");
    ShmLane::new(rack[host].host().clone(), event_queue)
}

fn notice(n: u32) -> Notice {
    Notice { key: transport_api::RegionKey(7), at: 8, len: 16, value: n }
}

/// The sending threads and the values of the notifications that a poll reports.
fn notified(lane: &mut ShmLane) -> Vec<(u32, u32)> {
    let mut all = Vec::new();
    lane.poll(&mut |event| match event {
        Event::Notified { from, value, .. } => all.push((from.thread, value)),
        other => panic!("{other:?}"),
    });
    all
}

#[test]
fn a_polled_slot_asks_for_no_attention_and_is_not_slept_over() {
    let rack = ShmTransport::in_process(2, 1).expect("a rack");
    let (mut writer, mut owner) = (lane(&rack, 0, 0), lane(&rack, 1, 0));
    let host = rack[1].host().clone();
    writer.notify(0, notice(1));
    assert!(owner.is_asked() && host.has_events(0));
    assert_eq!(notified(&mut owner), [(0, 1)]);
    for n in 2..200 {
        assert!(!host.has_events(0));
        writer.notify(0, notice(n));
        assert!(!owner.is_asked() && host.has_events(0));
        if n % 3 == 0 {
            // Another look takes it, too.
            host.own().ask(0, HostId(0));
        }
        assert_eq!(notified(&mut owner), [(0, n)]);
    }
    drop(owner);
    writer.notify(0, notice(200));
    assert!(!host.has_events(0), "a lane that is gone keeps no thread awake");
}

/// A peer maps the park words of others, and may write anything there.
#[test]
fn a_false_park_word_makes_a_wake_late_and_loses_nothing() {
    let rack = ShmTransport::in_process(2, 1).expect("a rack");
    let (mut writer, mut owner) = (lane(&rack, 0, 0), lane(&rack, 1, 0));
    let host = rack[1].host().clone();
    let memory = host.own().park_word_memory(0);
    let word = memory.word32(0);
    for (number, claim) in (0..).zip([AWAKE, PARKED, BUSY, BUSY + 1, u32::MAX]) {
        // While the thread is awake: it may be woken for nothing.
        word.store(claim, Ordering::Release);
        writer.notify(0, notice(2 * number));
        assert_eq!(notified(&mut owner), [(0, 2 * number)], "word {claim}");
        // While it sleeps: it may go on sleeping, up to the end that it has set itself.
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while !host.has_events(0) {
                    host.park(0, Duration::from_millis(20), &mut || false);
                }
            });
            let start = Instant::now();
            while word.load(Ordering::Acquire) != PARKED {
                assert!(start.elapsed().as_secs() < 20, "it does not sleep");
                std::thread::yield_now();
            }
            word.store(claim, Ordering::Release);
            writer.notify(0, notice(2 * number + 1));
            while !sleeper.is_finished() {
                assert!(start.elapsed().as_secs() < 20, "word {claim}: it sleeps on");
                std::thread::yield_now();
            }
        });
        assert_eq!(notified(&mut owner), [(0, 2 * number + 1)], "word {claim}");
    }
}

#[test]
fn a_slot_is_taken_without_a_poll_unless_something_else_waits() {
    let rack = ShmTransport::in_process(2, 1).expect("a rack");
    let (mut writer, mut owner) = (lane(&rack, 0, 0), lane(&rack, 1, 0));
    let (before, _) = watched(&owner).expect("nothing to poll for");
    writer.notify(0, notice(1));
    assert!(watched(&owner).is_none(), "its sender is not polled yet");
    assert_ne!(word(&owner), before);
    assert_eq!(notified(&mut owner), [(0, 1)]);
    let host = rack[1].host().clone();
    for n in 2..200 {
        let (before, inbox) = watched(&owner).expect("nothing to poll for");
        let inbox = inbox.expect("a sender that is polled");
        assert_eq!(inbox.take(), Ok(None));
        writer.notify(0, notice(n));
        let is_asked = n % 3 == 0;
        assert_eq!(word(&owner), before, "a slot that is polled needs no request");
        if is_asked {
            host.own().ask(0, HostId(0));
        }
        let Notification { from, key, at, len, value } =
            inbox.take().expect("a valid slot").expect("a notification");
        assert_eq!((from.host, from.thread), (HostId(0), 0));
        assert_eq!(Notice { key, at, len, value }, notice(n));
        assert!(host.has_events(0), "the parker learns of it by the next poll");
        assert_eq!(watched(&owner).is_none(), is_asked);
        if is_asked || n % 5 == 0 {
            assert_eq!(notified(&mut owner), []);
            assert!(!host.has_events(0), "{n} is taken");
        }
    }
    owner.fence(7).expect("a fence");
    assert!(watched(&owner).is_none(), "a completion waits");
}

/// The word that a lane watches, and the inbox, if it has one; `None` if there is something to poll for.
fn watched(lane: &ShmLane) -> Option<(u64, Option<NoticeInbox>)> {
    let (mut words, mut inboxes) = (Vec::new(), Vec::new());
    let is_all = lane.watch(&mut |watch| match watch {
        Watch::Word(memory, at) => words.push(memory.load(at, Ordering::Relaxed)),
        Watch::Inbox(inbox) => inboxes.push(inbox.clone()),
    });
    assert_eq!(words.len(), 1);
    is_all.then(|| (words[0], inboxes.pop()))
}

fn word(lane: &ShmLane) -> u64 {
    lane.own.memory().load(lane.attention.0, Ordering::Relaxed)
}

#[test]
fn a_write_that_notifies_at_once_does_all_or_nothing() {
    const LEN: usize = 64;
    let rack = ShmTransport::in_process(2, 1).expect("a rack");
    let (mut writer, mut owner) = (lane(&rack, 0, 0), lane(&rack, 1, 0));
    let key = transport_api::RegionKey(7);
    let export = |rights: Rights| rack[1].export(key, LEN, rights.into()).expect("a region");
    let timeout = std::time::Duration::from_secs(20);
    let import = |host: usize| rack[host].import(HostId(1), key, timeout).expect("an import");
    let region = export(Rights::READ | Rights::WRITE);
    let (remote, foreign) = (import(0), import(1));
    let outboxes = writer.outboxes();
    assert_eq!(outboxes.len(), 1, "one for each thread of the peer");
    let write = |remote: &RemoteRegion, at, bytes: &[u8]| {
        outboxes[0].write_notify(remote.window().expect("mapped memory"), at, bytes)
    };
    let bytes = 5u64.to_ne_bytes();
    assert!(write(&remote, 8, &bytes));
    assert_eq!(region.memory().load(8, Ordering::Relaxed), 5);
    assert_eq!(notified(&mut owner), [(0, 0)]);
    assert!(write(&remote, 17, &[1; 9]) && write(&remote, 33, &bytes), "any bytes");
    assert_eq!(notified(&mut owner), [(0, 0), (0, 0)]);

    assert!(!write(&foreign, 8, &[9; 8]), "another transport's import");
    assert!(!write(&remote, LEN - 4, &[9; 8]), "outside");
    assert!(!write(&remote, LEN, &[9; 8]), "outside");
    assert!(!write(&remote, 8, &[9; LEN]), "outside");
    // A notification that does not go into a slot, and is older.
    Lane::notify(&mut writer, &remote, 0, 8, 0, 6).expect("a notification");
    assert!(!write(&remote, 8, &[9; 8]), "an earlier one is in the ring");
    assert_eq!(notified(&mut owner), [(0, 6)]);
    let from = primitive::SharedBytes::heap(8);
    Lane::write_notify(&mut writer, &remote, 0, &from, 0, 7).expect("a write");
    assert_eq!(notified(&mut owner), [(0, 7)]);
    assert!(write(&remote, 16, &bytes), "the lane has seen that it was taken");
    assert_eq!(notified(&mut owner), [(0, 0)]);
    let slots = transport_api::NOTICE_SLOTS as usize;
    let sent = (0..).take_while(|_| write(&remote, 16, &bytes)).count();
    assert!((slots / 2..=slots).contains(&sent), "{sent} find a free slot");
    assert!(!write(&remote, 8, &[9; 8]), "no slot is free");
    assert_eq!(notified(&mut owner).len(), sent);
    drop(region);
    assert!(!write(&remote, 8, &[9; 8]), "revoked");
    let region = export(Rights::READ);
    assert!(!write(&import(0), 8, &[9; 8]), "not allowed");
    assert_eq!(region.memory().load(8, Ordering::Relaxed), 0);
    assert_eq!(notified(&mut owner), []);
    drop(region);
    let region = export(Rights::ALL);
    let remote = import(0);
    assert!(write(&remote, 8, &bytes), "exported again");
    assert_eq!(notified(&mut owner), [(0, 0)]);
    drop(writer);
    assert!(!write(&remote, 8, &[9; 8]), "the lane is gone");
    assert_eq!(region.memory().load(8, Ordering::Relaxed), 5);
}

#[test]
fn senders_beyond_those_that_are_polled_are_heard_and_replace_idle_ones() {
    const WRITERS: u32 = 20;
    let rack = ShmTransport::in_process(2, WRITERS).expect("a rack");
    let mut writers: Vec<_> = (0..WRITERS).map(|thread| lane(&rack, 0, thread)).collect();
    let mut owner = lane(&rack, 1, 0);
    for n in 0..3 {
        for (thread, writer) in (0..).zip(&mut writers) {
            writer.notify(0, notice(n));
            assert_eq!(notified(&mut owner), [(thread, n)]);
        }
    }
    assert_eq!(owner.polled.len(), 16);
    let last = WRITERS - 1;
    for n in 3..60 {
        writers[last as usize].notify(0, notice(n));
        assert_eq!(notified(&mut owner), [(last, n)]);
    }
    assert!(owner.polled.iter().any(|polled| polled.thread == last), "others are idle");
    for (thread, writer) in (0..).zip(&mut writers) {
        writer.notify(0, notice(60));
        assert_eq!(notified(&mut owner), [(thread, 60)]);
    }
    // The last look at a slot that is polled no more.
    assert_eq!(notified(&mut owner), []);
    assert!(!rack[1].host().has_events(0));
}

#[test]
fn a_peer_that_breaks_a_polled_slot_is_lost() {
    let rack = ShmTransport::in_process(2, 1).expect("a rack");
    let (mut writer, mut owner) = (lane(&rack, 0, 0), lane(&rack, 1, 0));
    writer.notify(0, notice(1));
    assert_eq!(notified(&mut owner), [(0, 1)]);
    let host = rack[1].host();
    let slots = host.layout.ring(0, HostId(0), 0) + crate::memory::ring::SLOTS;
    // The second slot: words that are no notification, with the number that is expected.
    let second = slots + 256 + 2 * 32;
    host.own().memory().store(second, 99, Ordering::Relaxed);
    host.own().memory().store(second + 24, 2 << 32, Ordering::Release);
    let lost = end(&mut owner);
    assert!(matches!(lost, PeerEvent::Lost(HostId(0), LossReason::Protocol(_))), "{lost:?}");
    assert!(!host.has_events(0));
}

#[test]
fn a_peer_that_breaks_a_ring_is_lost_to_all_and_learns_it() {
    let rack = ShmTransport::in_process(2, 2).expect("a rack");
    let mut lanes = [0, 1].map(|thread| rack[0].lane(thread, HostId(1)).expect("a lane"));
    let mut back = rack[1].lane(0, HostId(0)).expect("a lane");
    let host = rack[1].host();
    let ring = host.layout.ring(0, HostId(1), 1);
    host.memory_of(HostId(0)).memory().store(ring, 8 << 40, Ordering::Release);
    host.memory_of(HostId(0)).ask(0, HostId(1));
    for lane in &mut lanes {
        let lost = end(&mut **lane);
        assert!(matches!(lost, PeerEvent::Lost(HostId(1), LossReason::Protocol(_))), "{lost:?}");
        assert!(lane.bulk(0, Tag(0), Vec::new()).is_err());
    }
    let lost = end(&mut *back);
    assert!(matches!(lost, PeerEvent::Lost(HostId(0), LossReason::Connection(_))), "{lost:?}");
}

#[test]
fn a_park_word_says_when_a_thread_of_the_peer_need_not_be_woken() {
    let rack = ShmTransport::in_process(2, 1).expect("a rack");
    let (waker, mut owner) = (lane(&rack, 0, 0), lane(&rack, 1, 0));
    assert!(waker.park_word(1).is_none(), "no such thread");
    let word = waker.park_word(0).expect("this system has membarrier");
    assert!(!word.is_busy(), "it has only begun");
    let mut own_lane = rack[1].lane(0, HostId(1)).expect("a lane");
    for _ in 0..10_000 {
        owner.poll(&mut |_| ());
        own_lane.poll(&mut |_| ());
    }
    assert!(word.is_busy());
    let mut seen = true;
    let mut parker = rack[1].parker(0).expect("a parker");
    parker.park(std::time::Duration::ZERO, &mut || {
        seen = word.is_busy();
        true
    });
    assert!(!seen && !word.is_busy(), "it may sleep, and must be woken");
}
