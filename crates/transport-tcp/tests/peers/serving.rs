//! Whether a thread polls, sleeps or does neither: what a peer asks of this host is carried out.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gossamer_transport_tcp::{Credentials, TcpTransport};
use primitive::SharedBytes;
use primitive::sync::Ordering;
use transport_api::{
    Event, HostId, Lane, LossReason, Namespace, OpError, RegionError, RegionKey, RemoteRegion,
    Rights, Tag, Transport,
};

use crate::common::{configs, join_all};

const DEADLINE: Duration = Duration::from_secs(60);

/// Two hosts with `threads` threads each.
fn rack(threads: u32) -> [Arc<TcpTransport>; 2] {
    let joined = join_all(configs(2, threads, |_| Credentials::InsecureLoopback));
    let hosts: Vec<_> = joined.into_iter().map(|host| host.expect("a rack")).collect();
    hosts.try_into().ok().expect("two hosts")
}

/// Reads a word at the peer, where a thread must serve the connection.
fn read(lane: &mut dyn Lane, remote: &RemoteRegion) {
    lane.read(remote, 0, &SharedBytes::heap(8), 1).expect("a read");
    lane.flush().expect("a flush");
    let (start, mut done) = (Instant::now(), false);
    while !done {
        lane.poll(&mut |event| done |= matches!(event, Event::Completed { token: 1, .. }));
        assert!(start.elapsed() < DEADLINE, "no answer");
        thread::yield_now();
    }
}

/// It maps the memory of its own host, so it may be in the middle of a copy.
#[test]
fn a_thread_that_never_polls_holds_a_revocation_up_but_not_for_ever() {
    let [rack, _other] = rack(2);
    let key = RegionKey(1);
    let _region = rack.export(key, 64, Rights::ALL.into()).expect("an export");
    let _own = rack.import(HostId(0), key, DEADLINE).expect("an import");
    let [mut lane, _never_polled] =
        [0, 1].map(|thread| rack.lane(thread, HostId(0)).expect("a lane"));
    rack.begin_revoke(0, key, 7).expect("a revocation");
    let (start, mut end) = (Instant::now(), None);
    while end.is_none() && start.elapsed() < DEADLINE {
        lane.poll(&mut |event| end = Some(event));
        thread::sleep(Duration::from_millis(1));
    }
    let busy = OpError::NotQuiet { key, hosts: vec![HostId(0)] };
    match end {
        Some(Event::Failed { token: Some(7), error }) => assert_eq!(error, busy),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_thread_that_stops_polling_holds_nobody_up() {
    let [a, b] = rack(1);
    let _region = a.export(RegionKey(1), 64, Rights::READ.into()).expect("an export");
    let remote = b.import(HostId(0), RegionKey(1), DEADLINE).expect("an import");
    let mut busy = a.lane(0, HostId(1)).expect("a lane");
    let mut parker = a.parker(0).expect("a parker");
    let mut lane = b.lane(0, HostId(0)).expect("a lane");
    for round in 0..40 {
        // It polls for a while, or sleeps, and then has something else to do.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(5) {
            busy.poll(&mut |event| panic!("{event:?}"));
        }
        if round % 3 == 1 {
            parker.park(Duration::from_millis(3), &mut || false);
        }
        if round % 4 == 1 {
            thread::sleep(Duration::from_millis(15));
        }
        read(&mut *lane, &remote);
    }
}

#[test]
fn a_thread_that_sleeps_serves_its_own_connections() {
    let [a, b] = rack(1);
    let region = a.export(RegionKey(1), 64, Rights::ALL.into()).expect("an export");
    let remote = b.import(HostId(0), RegionKey(1), DEADLINE).expect("an import");
    let mut lane = b.lane(0, HostId(0)).expect("a lane");
    let _sleepers_lane = a.lane(0, HostId(1)).expect("a lane");
    let mut parker = a.parker(0).expect("a parker");
    for word in 1..100 {
        lane.signal(&remote, 0, word).expect("a signal");
        lane.flush().expect("a flush");
        // It polls nothing at all.
        let start = Instant::now();
        let mut arrived = || region.memory().load(0, Ordering::Acquire) == word;
        while !arrived() {
            parker.park(DEADLINE / 2, &mut arrived);
            assert!(start.elapsed() < DEADLINE / 2, "the parker did not wake for what arrived");
        }
    }
}

/// What another thread has read for a thread while it did not look keeps the thread from sleeping.
#[test]
fn no_thread_sleeps_over_what_has_arrived_already() {
    let [a, b] = rack(1);
    let mut lane = a.lane(0, HostId(1)).expect("a lane");
    let mut parker = a.parker(0).expect("a parker");
    let mut sender = b.lane(0, HostId(0)).expect("a lane");
    for tag in 0..5 {
        sender.bulk(0, Tag(tag), vec![7; 10]).expect("a payload");
        sender.flush().expect("a flush");
        // Long enough for the service thread to have read it, most times.
        thread::sleep(Duration::from_millis(30));
        let (start, mut arrived) = (Instant::now(), false);
        while !arrived {
            parker.park(DEADLINE, &mut || false);
            lane.poll(&mut |event| arrived |= matches!(event, Event::Bulk { .. }));
        }
        assert!(start.elapsed() < DEADLINE / 2, "the parker slept over payload {tag}");
    }
}

/// A peer that takes nothing does not stop what goes to others over the same connection, and what
/// waits for it arrives whole once it looks.
#[test]
fn a_thread_that_takes_nothing_holds_up_nobody_else() {
    const COUNT: u64 = 30;
    let [a, b] = rack(2);
    let _region = b.export(RegionKey(1), 64, Rights::ALL.into()).expect("an export");
    let remote = a.import(HostId(1), RegionKey(1), DEADLINE).expect("an import");
    let mut lane = a.lane(0, HostId(1)).expect("a lane");
    for tag in 0..COUNT {
        lane.bulk(1, Tag(tag), vec![tag as u8; 300_000]).expect("a payload");
    }
    lane.bulk(0, Tag(99), vec![1; 300_000]).expect("a payload");
    lane.flush().expect("a flush");
    read(&mut *lane, &remote);
    let mut other = b.lane(0, HostId(0)).expect("a lane");
    let until = |receiver: &mut dyn Lane, sender: &mut dyn Lane| {
        let start = Instant::now();
        let mut arrived = None;
        while arrived.is_none() {
            sender.poll(&mut |event| panic!("{event:?}"));
            receiver.poll(&mut |event| {
                let Event::Bulk { tag: Tag(tag), payload, .. } = event else { panic!("{event:?}") };
                assert!(arrived.replace((tag, payload)).is_none(), "more than was asked for");
            });
            assert!(start.elapsed() < DEADLINE, "it does not arrive");
        }
        arrived.expect("a payload")
    };
    assert_eq!(until(&mut *other, &mut *lane), (99, vec![1; 300_000]));
    let mut late = b.lane(1, HostId(0)).expect("a lane");
    let mut arrived = Vec::new();
    let start = Instant::now();
    while arrived.len() < COUNT as usize {
        lane.poll(&mut |event| panic!("{event:?}"));
        late.poll(&mut |event| {
            let Event::Bulk { tag: Tag(tag), payload, .. } = event else { panic!("{event:?}") };
            assert!(payload == vec![tag as u8; 300_000], "payload {tag}");
            arrived.push(tag);
        });
        // Four at once fill its window.
        assert!(start.elapsed() < DEADLINE, "only {arrived:?} arrived");
    }
    assert_eq!(arrived, (0..COUNT).collect::<Vec<_>>());
}

/// Everybody leaves at once, with payloads still under way.
#[test]
fn leaving_at_once_loses_nobody_and_nothing() {
    for _ in 0..5 {
        let hosts = rack(2);
        thread::scope(|scope| {
            for (me, host) in (0..).zip(&hosts) {
                scope.spawn(move || {
                    let mut lanes =
                        [0, 1].map(|thread| host.lane(thread, HostId(1 - me)).expect("a lane"));
                    for (thread, lane) in (0..).zip(&mut lanes) {
                        lane.bulk(thread, Tag(7), vec![me as u8; 500_000]).expect("a payload");
                        lane.flush().expect("a flush");
                    }
                    host.leave();
                    for lane in &mut lanes {
                        let (start, mut tags, mut end) = (Instant::now(), 0, None);
                        while end.is_none() {
                            lane.poll(&mut |event| match event {
                                Event::Bulk { tag: Tag(7), payload, .. } => {
                                    assert_eq!(payload, vec![1 - me as u8; 500_000]);
                                    tags += 1;
                                }
                                other => end = Some(other),
                            });
                            assert!(start.elapsed() < DEADLINE, "no end");
                        }
                        assert_eq!(tags, 1);
                        let left = matches!(
                            end,
                            Some(Event::Peer(transport_api::PeerEvent::Left(host)))
                                if host == HostId(1 - me)
                        );
                        assert!(left, "{end:?}");
                    }
                });
            }
        });
    }
}

#[test]
fn a_lane_tells_what_its_peer_does_not_take() {
    const MANY: usize = 100_000;
    let [sender, receiver] = rack(1);
    let mut lane = sender.lane(0, HostId(1)).expect("a lane");
    assert_eq!(lane.waiting_bulk(Tag(7).namespace()), 0);
    for _ in 0..MANY {
        lane.bulk(0, Tag(7), vec![1; 20]).expect("a payload");
    }
    lane.flush().expect("a flush");
    let waiting = lane.waiting_bulk(Tag(7).namespace());
    assert!(waiting > MANY * 20 / 2, "{waiting} bytes");
    assert_eq!(lane.waiting_bulk(Namespace::SEGMENTS), 0, "none of another layer");
    let (mut back, mut taken, start) =
        (receiver.lane(0, HostId(0)).expect("a lane"), 0, Instant::now());
    while taken < MANY {
        back.poll(&mut |event| taken += usize::from(matches!(event, Event::Bulk { .. })));
        lane.poll(&mut |_| ());
        assert!(start.elapsed() < DEADLINE, "{taken} payloads");
    }
    assert_eq!(lane.waiting_bulk(Tag(7).namespace()), 0);
}

/// A revocation waits for threads of its host alone, also when the service thread has ended.
#[test]
fn a_revocation_without_a_service_thread_waits_for_the_threads_of_its_host() {
    const WHILE: Duration = Duration::from_millis(50);
    let [owner, _other] = rack(2);
    let mut lanes = [0, 1].map(|thread| owner.lane(thread, HostId(0)).expect("a lane"));
    let ends = |lane: &mut dyn Lane, time: Duration| {
        let (start, mut end) = (Instant::now(), None);
        while end.is_none() && start.elapsed() < time {
            lane.poll(&mut |event| match event {
                Event::Completed { token: 7, .. } => end = Some(Ok(())),
                Event::Failed { token: Some(7), error } => end = Some(Err(error)),
                _ => {}
            });
            thread::yield_now();
        }
        end
    };
    for has_ended in [false, true] {
        let _region = owner.export(RegionKey(1), 64, Rights::ALL.into()).expect("an export");
        let _remote = owner.import(HostId(0), RegionKey(1), DEADLINE).expect("an import");
        owner.begin_revoke(0, RegionKey(1), 7).expect("a revocation");
        if !has_ended {
            owner.sever();
        }
        let [first, second] = &mut lanes;
        assert_eq!(ends(&mut **first, WHILE), None, "the other thread may be in an operation");
        second.poll(&mut |_| ());
        assert_eq!(ends(&mut **first, DEADLINE), Some(Ok(())));
    }
}

/// Peers answer a goodbye at once: in some of these racks before the host that leaves does anything
/// more.
#[test]
fn an_import_that_begins_after_the_goodbye_ends() {
    for _ in 0..200 {
        let [leaver, _other] = rack(1);
        let mut lane = leaver.lane(0, HostId(1)).expect("a lane");
        leaver.leave();
        leaver.begin_import(0, HostId(1), RegionKey(1), DEADLINE, 5).expect("an import");
        let (start, mut end) = (Instant::now(), None);
        while end.is_none() && start.elapsed() < DEADLINE / 10 {
            lane.poll(&mut |event| {
                if let Event::Imported { token: 5, result } = event {
                    end = Some(result.map(drop));
                }
            });
            thread::yield_now();
        }
        let Some(Err(RegionError::PeerLost(HostId(1), reason))) = end else { panic!("{end:?}") };
        assert!(!matches!(reason, LossReason::Protocol(_)), "{reason}");
    }
}
