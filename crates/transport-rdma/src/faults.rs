//! What goes wrong with devices, forced from within: each is an error in words, soon, and nothing
//! hangs. (What goes wrong with processes and connections is in `tests/`.)

use std::env;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use primitive::SharedBytes;
use primitive::sync::Ordering;
use transport_api::{
    Event, HostId, Lane, LossReason, OpError, PeerEvent, RegionError, RegionKey, Rights, Tag,
    Transport,
};

use crate::verbs::Pair;
use crate::{Posted, RdmaConfig, RdmaTransport, common};

/// Within this, everything must happen. The bound on this machine's own is [`RdmaConfig::timeout`].
const SOON: Duration = Duration::from_secs(20);

const PEER: HostId = HostId(1);

/// Polls until the end of the peer is reported.
fn end(lane: &mut dyn Lane) -> PeerEvent {
    let (start, mut end) = (Instant::now(), None);
    while end.is_none() {
        assert!(start.elapsed() < SOON, "the end of the peer is not reported");
        lane.poll(&mut |event| {
            if let Event::Peer(event) = event {
                end = Some(event);
            }
        });
    }
    end.expect("an end")
}

/// The text of the reason for which both sides report each other, once `a` has written to `b`'s
/// region 1.
fn reasons(a: &Arc<RdmaTransport>, b: &Arc<RdmaTransport>, break_it: impl FnOnce()) -> [String; 2] {
    let (mut lane, mut back) = (a.lane(0, PEER).unwrap(), b.lane(0, HostId(0)).unwrap());
    let _region = b.export(RegionKey(1), 64, Rights::ALL.into()).unwrap();
    let remote = a.import(PEER, RegionKey(1), SOON).unwrap();
    lane.signal(&remote, 0, 1).unwrap();
    lane.flush().unwrap();
    let start = Instant::now();
    while _region.memory().load(0, Ordering::Acquire) != 1 {
        assert!(start.elapsed() < SOON, "the signal does not arrive");
    }
    break_it();
    // Either side may not know yet: its operations start, and only the end of the peer is reported.
    lane.write(&remote, 0, &SharedBytes::heap(8)).unwrap();
    lane.fetch_add(&remote, 8, 1, 7).unwrap();
    lane.bulk(0, Tag(1), vec![1; 4 << 20]).unwrap();
    lane.flush().unwrap();
    [end(&mut *lane), end(&mut *back)].map(|event| {
        let PeerEvent::Lost(_, LossReason::Connection(text)) = event else {
            panic!("{event:?} is not a loss")
        };
        text
    })
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn a_key_revoked_in_flight_ends_the_peer() {
    let hosts = common::hosts(2, 1);
    let [a, b] = reasons(&hosts[0], &hosts[1], || {
        // What a peer is asked to forget first, but forced at once.
        hosts[1].host().exported(RegionKey(1)).expect("a region").close();
    });
    assert!(a.contains("the region was revoked, or its remote key has changed"), "{a}");
    assert!(b.contains("has given this host up") || b.contains("queue pair"), "{b}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn a_queue_pair_in_error_ends_the_peer() {
    let hosts = common::hosts(2, 1);
    let [a, b] = reasons(&hosts[0], &hosts[1], || {
        let failed = hosts[0].host().with(0, PEER, |link, _| link.qp.fail());
        failed.expect("a queue pair").expect("an error state");
    });
    assert!(a.contains("the queue pair to it was ended"), "{a}");
    assert!(b.contains("has given this host up") || b.contains("queue pair"), "{b}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn a_peer_whose_queue_pair_is_gone_does_not_answer() {
    let hosts = common::hosts(2, 1);
    let start = Instant::now();
    let [a, b] = reasons(&hosts[0], &hosts[1], || {
        let failed = hosts[1].host().with(0, HostId(0), |link, _| link.qp.fail());
        failed.expect("a queue pair").expect("an error state");
    });
    // Soft-RoCE drops packets to a queue pair in error; devices may refuse them instead.
    assert!(a.contains("the queue pair to it failed") || a.contains("given this host up"), "{a}");
    assert!(!b.is_empty());
    assert!(start.elapsed() < SOON);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn a_full_send_queue_defers_and_loses_nothing() {
    const WRITES: u64 = 3000;
    let config = |host| RdmaConfig { depth: 8, staging_bytes: 4096, ..common::config(host) };
    let hosts = common::join_all(common::carriers(2, 1), config);
    let hosts: Vec<_> = hosts.into_iter().map(|host| host.expect("a host")).collect();
    let mut lane = hosts[0].lane(0, PEER).unwrap();
    let region =
        hosts[1].export(RegionKey(1), 8 * WRITES as usize + 8, Rights::ALL.into()).unwrap();
    let remote = hosts[0].import(PEER, RegionKey(1), SOON).unwrap();
    // Far more than the queue and the staging memory hold, without one poll.
    let word = SharedBytes::heap(8);
    for n in 0..WRITES {
        word.store(0, n + 1, Ordering::Relaxed);
        lane.write(&remote, 8 * n as usize, &word).unwrap();
        if n % 500 == 0 {
            lane.flush().unwrap();
        }
    }
    lane.signal(&remote, 8 * WRITES as usize, 1).unwrap();
    lane.flush().unwrap();
    let start = Instant::now();
    while region.memory().load(8 * WRITES as usize, Ordering::Acquire) != 1 {
        assert!(start.elapsed() < SOON, "the signal does not arrive");
        lane.poll(&mut |event| panic!("{event:?}"));
    }
    for n in 0..WRITES {
        assert_eq!(region.memory().load(8 * n as usize, Ordering::Relaxed), n + 1);
    }
}

/// A revocation that waits for a thread of its host ends with an error when the service thread does,
/// which alone hears of it; so does one that begins later.
#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn a_revocation_without_a_service_thread_ends_and_claims_nothing() {
    let hosts = common::hosts(2, 2);
    let (host, key) = (&hosts[0], RegionKey(1));
    let mut lanes = [0, 1].map(|thread| host.lane(thread, HostId(0)).unwrap());
    for has_ended in [false, true] {
        let _region = host.export(key, 64, Rights::ALL.into()).unwrap();
        let _own = host.import(HostId(0), key, SOON).unwrap();
        host.begin_revoke(0, key, 7).unwrap();
        if !has_ended {
            host.sever();
        }
        let (start, mut end) = (Instant::now(), None);
        while end.is_none() {
            assert!(start.elapsed() < SOON, "the revocation hangs");
            lanes[0].poll(&mut |event| match event {
                Event::Completed { token: 7, .. } => end = Some(Ok(())),
                Event::Failed { token: Some(7), error } => end = Some(Err(error)),
                _ => {}
            });
        }
        let busy = OpError::NotQuiet { key, hosts: vec![HostId(0)] };
        assert_eq!(end, Some(Err(busy)), "its other thread may use the region");
    }
}

/// A thread's completion queue may hold a notification for another thread when the peer's goodbye has
/// come: the lane reports it first.
#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn a_goodbye_follows_notifications_that_another_thread_holds() {
    let hosts = common::hosts(2, 2);
    let _region = hosts[1].export(RegionKey(1), 64, Rights::ALL.into()).unwrap();
    let remote = hosts[0].import(PEER, RegionKey(1), SOON).unwrap();
    let mut sender = hosts[0].lane(1, PEER).unwrap();
    let mut lane = hosts[1].lane(0, HostId(0)).unwrap();
    let other = hosts[1].host().thread_state(1);
    // As if it slept, so that the service thread has no other reason to look after it.
    other.is_asleep.store(true, Ordering::Release);
    let held = other.connections();
    sender.notify(&remote, 0, 8, 0, 77).unwrap();
    sender.flush().unwrap();
    hosts[0].leave();
    let (mut events, start) = (Vec::new(), Instant::now());
    while events.is_empty() && start.elapsed() < Duration::from_secs(2) {
        lane.poll(&mut |event| events.push(event));
    }
    drop(held);
    while !matches!(events.last(), Some(Event::Peer(_))) {
        assert!(start.elapsed() < SOON, "the goodbye is not reported: {events:?}");
        lane.poll(&mut |event| events.push(event));
    }
    let [Event::Notified { value: 77, .. }, Event::Peer(PeerEvent::Left(HostId(0)))] = &events[..]
    else {
        panic!("{events:?}")
    };
}

/// A queue pair to the own host that fails ends no host: what was started on it fails, once.
#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn atomics_and_fences_of_a_failed_queue_pair_to_itself_fail() {
    const OWN: HostId = HostId(0);
    let hosts = common::hosts(2, 1);
    let mut lane = hosts[0].lane(0, OWN).unwrap();
    let _region = hosts[0].export(RegionKey(1), 64, Rights::ALL.into()).unwrap();
    let own = hosts[0].import(OWN, RegionKey(1), SOON).unwrap();
    /// Polls until operation `last` has ended; whether each succeeded.
    fn ends(lane: &mut dyn Lane, last: u64) -> Vec<(u64, bool)> {
        let (start, mut ends) = (Instant::now(), Vec::new());
        while ends.last().is_none_or(|(token, _)| *token != last) {
            assert!(start.elapsed() < SOON, "operation {last} does not end: {ends:?}");
            lane.poll(&mut |event| match event {
                Event::Completed { token, .. } => ends.push((token, true)),
                Event::Failed { token: Some(token), error: OpError::PeerLost(OWN, _) } => {
                    ends.push((token, false));
                }
                other => panic!("{other:?}"),
            });
        }
        ends
    }
    lane.fetch_add(&own, 0, 1, 1).unwrap();
    lane.flush().unwrap();
    assert_eq!(ends(&mut *lane, 1), [(1, true)]);
    lane.fetch_add(&own, 0, 1, 2).unwrap();
    lane.compare_swap(&own, 0, 1, 5, 3).unwrap();
    lane.fence(4).unwrap();
    lane.fence(5).unwrap();
    let failed = hosts[0].host().with(0, OWN, |link, _| link.qp.fail());
    failed.expect("a queue pair").expect("an error state");
    lane.flush().unwrap();
    assert_eq!(ends(&mut *lane, 5), [(2, false), (3, false), (4, false), (5, true)]);
    let refused = lane.fetch_add(&own, 0, 1, 6);
    assert!(matches!(refused, Err(OpError::PeerLost(OWN, _))), "{refused:?}");
    lane.signal(&own, 8, 1).unwrap();
    lane.fence(7).unwrap();
    assert_eq!(ends(&mut *lane, 7), [(7, true)]);
    assert_eq!(hosts[0].host().end_of(OWN), None);
    hosts[0].revoke(RegionKey(1)).unwrap();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn more_inline_bytes_than_the_device_supports_are_lowered() {
    // Soft-RoCE refuses a queue pair with more than some hundred.
    let config = |host| RdmaConfig { inline_bytes: 1 << 20, ..common::config(host) };
    let hosts = common::join_all(common::carriers(2, 1), config);
    let hosts: Vec<_> = hosts.into_iter().map(|host| host.expect("a host")).collect();
    let mut lane = hosts[0].lane(0, PEER).unwrap();
    let region = hosts[1].export(RegionKey(1), 4096, Rights::ALL.into()).unwrap();
    let remote = hosts[0].import(PEER, RegionKey(1), SOON).unwrap();
    lane.write(&remote, 8, &SharedBytes::heap(4088)).unwrap();
    lane.signal(&remote, 0, 1).unwrap();
    lane.flush().unwrap();
    let start = Instant::now();
    while region.memory().load(0, Ordering::Acquire) != 1 {
        assert!(start.elapsed() < SOON, "the signal does not arrive");
        lane.poll(&mut |event| panic!("{event:?}"));
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn a_peer_that_sends_payloads_over_the_carrier_unasked_is_lost() {
    let hosts = common::hosts(2, 1);
    let mut lane = hosts[0].lane(0, PEER).unwrap();
    let mut carrier = hosts[1].host().carrier.lane(0, HostId(0)).unwrap();
    carrier.bulk(0, Tag(1), vec![1; 8]).unwrap();
    let (start, mut event) = (Instant::now(), None);
    while event.is_none() {
        assert!(start.elapsed() < SOON, "it is not reported");
        // It may end meanwhile.
        let _ = carrier.flush();
        carrier.poll(&mut |_| ());
        lane.poll(&mut |next| {
            event.get_or_insert(next);
        });
    }
    let Some(Event::Peer(PeerEvent::Lost(PEER, LossReason::Protocol(what)))) = event else {
        panic!("{event:?}")
    };
    assert!(what.contains("over the carrier"), "{what}");
}

/// Says in the environment of a started test that its locked memory is limited.
const LIMITED: &str = "GOSSAMER_TEST_LIMITED";

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn memory_beyond_the_limit_of_locked_memory_is_refused() {
    if env::var_os(LIMITED).is_some() {
        let hosts = common::hosts(2, 1);
        let refused = hosts[0].export(RegionKey(1), 64 << 20, Rights::ALL.into());
        let Err(RegionError::NoMemory { source, .. }) = refused else { panic!("it was locked") };
        assert!(source.to_string().contains("raise the limit of locked memory"), "{source}");
        // And the key is free.
        hosts[0].export(RegionKey(1), 4096, Rights::ALL.into()).expect("a smaller one");
        return;
    }
    // The privilege of root to lock whatever it likes must go, and then the limit counts.
    let limited = Command::new("setpriv")
        .args(["--bounding-set", "-ipc_lock", "prlimit", "--memlock=8388608"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "--include-ignored", "--nocapture"])
        .arg("faults::memory_beyond_the_limit_of_locked_memory_is_refused")
        .env(LIMITED, "1")
        .output()
        .expect("setpriv of util-linux");
    let said = String::from_utf8_lossy(&limited.stdout);
    let errors = String::from_utf8_lossy(&limited.stderr);
    assert!(limited.status.success() && said.contains("1 passed"), "{said}{errors}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn a_host_has_one_queue_pair_for_each_thread_and_remote_host() {
    let hosts = common::hosts(3, 2);
    assert!(hosts.iter().all(|host| host.queue_pairs() == 2 * (3 - 1)));
    // One more for each thread that changes words of its own host.
    let mut lane = hosts[0].lane(0, HostId(0)).unwrap();
    let _region = hosts[0].export(RegionKey(1), 64, Rights::ALL.into()).unwrap();
    let own = hosts[0].import(HostId(0), RegionKey(1), SOON).unwrap();
    lane.fetch_add(&own, 0, 1, 1).unwrap();
    assert_eq!(hosts[0].queue_pairs(), 2 * (3 - 1) + 1);
    let refused = lane.fetch_add(&own, 4, 1, 1);
    assert_eq!(refused, Err(OpError::Misaligned(4)));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn an_operation_that_is_flushed_is_one_work_request_and_one_doorbell() {
    let hosts = common::hosts(2, 1);
    let mut lane = hosts[0].lane(0, HostId(1)).unwrap();
    let _region = hosts[1].export(RegionKey(1), 64, Rights::ALL.into()).unwrap();
    let remote = hosts[0].import(HostId(1), RegionKey(1), SOON).unwrap();
    let memory = SharedBytes::heap(8);
    type Start<'a> = &'a dyn Fn(&mut dyn Lane) -> Result<(), OpError>;
    let operations: [Start<'_>; 4] = [
        &|lane| lane.write(&remote, 0, &memory),
        &|lane| lane.read(&remote, 0, &memory, 1),
        &|lane| lane.fetch_add(&remote, 8, 1, 2),
        &|lane| lane.compare_swap(&remote, 8, 1, 2, 3),
    ];
    for (number, operation) in operations.into_iter().enumerate() {
        let before = hosts[0].posted();
        operation(&mut *lane).unwrap();
        lane.flush().unwrap();
        let posted = hosts[0].posted() - before;
        assert_eq!(posted, Posted { work_requests: 1, doorbells: 1 }, "operation {number}");
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn settings_that_do_not_fit_the_device_are_refused() {
    let refused = |change: fn(&mut RdmaConfig)| {
        let config = |host| {
            let mut config = common::config(host);
            change(&mut config);
            RdmaConfig { join_timeout: Duration::from_secs(2), ..config }
        };
        let joined = common::join_all(common::carriers(2, 1), config);
        joined.into_iter().map(|host| host.err().expect("no host").to_string()).collect::<Vec<_>>()
    };
    let texts = refused(|config| config.depth = 1 << 24);
    assert!(texts.iter().all(|text| text.contains("depth is 16777216")), "{texts:?}");
    let texts = refused(|config| config.device = Some("mlx9_9".into()));
    assert!(texts.iter().all(|text| text.contains("no RDMA device mlx9_9")), "{texts:?}");
    let texts = refused(|config| config.port = 9);
    assert!(texts.iter().all(|text| text.contains("active port 9")), "{texts:?}");
}
