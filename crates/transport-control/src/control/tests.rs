//! The control planes of a rack on a simulated network, under random orders, delays, losses and
//! hostile messages. What must always hold, [`Network`] checks; here is what each test adds.

use crate::{
    config::{
        ANSWER_GRACE, CLOSING_GRACE, Config, Goodbye, HEARTBEATS_PER_BOUND, LEAVE_GRACE, Reach,
    },
    control::Control,
    message::Message,
    output::{ImportError, Output},
    testing::{Ended, Network, Rack, SimExport, SimMedium},
};
use primitive::limits::PENDING_REQUESTS;
use proptest::{collection::vec, prelude::*};
use std::time::{Duration, Instant};
use transport_api::{HostId, LossReason, PeerEvent, RegionKey};

const BOUND: Duration = Duration::from_millis(800);
const SECOND: Duration = Duration::from_secs(1);
/// Longer than anything that was begun can take.
const LONG: Duration = Duration::from_secs(12);

const RACK: Rack = Rack {
    hosts: 3,
    threads: 2,
    loss_bound: Some(BOUND),
    reach: Reach::Direct,
    goodbye: Goodbye::Message,
    delay: Duration::from_millis(5),
};

const A: HostId = HostId(0);
const B: HostId = HostId(1);
const C: HostId = HostId(2);

fn new_network(rack: Rack, seed: u64) -> Network {
    Network::new(Instant::now(), rack, seed)
}

/// Something that happens in a rack of three hosts.
#[derive(Clone, Debug)]
enum Step {
    Export { host: u32, key: u64, only: Option<u32> },
    Revoke { host: u32, key: u64 },
    Import { host: u32, owner: u32, key: u64, millis: u64 },
    Cancel { host: u32, owner: u32, key: u64 },
    Leave { host: u32 },
    Kill { host: u32 },
    Cut { host: u32, other: u32 },
    Stall { host: u32, millis: u64 },
    Run { micros: u64 },
    Hostile { from: u32, to: u32, bytes: Vec<u8> },
}

fn peaceful() -> BoxedStrategy<Step> {
    let (host, key) = (|| 0..3u32, || 0..3u64);
    prop_oneof![
        4 => (host(), key(), proptest::option::weighted(0.2, host()))
            .prop_map(|(host, key, only)| Step::Export { host, key, only }),
        3 => (host(), key()).prop_map(|(host, key)| Step::Revoke { host, key }),
        6 => (host(), host(), key(), 0..300u64)
            .prop_map(|(host, owner, key, millis)| Step::Import { host, owner, key, millis }),
        1 => (host(), host(), key())
            .prop_map(|(host, owner, key)| Step::Cancel { host, owner, key }),
        6 => (0..20_000u64).prop_map(|micros| Step::Run { micros }),
        1 => (host(), 0..BOUND.as_millis() as u64 / 2)
            .prop_map(|(host, millis)| Step::Stall { host, millis }),
    ]
    .boxed()
}

fn with_losses() -> BoxedStrategy<Step> {
    let host = || 0..3u32;
    prop_oneof![
        20 => peaceful(),
        1 => host().prop_map(|host| Step::Leave { host }),
        1 => host().prop_map(|host| Step::Kill { host }),
        1 => (host(), host()).prop_map(|(host, other)| Step::Cut { host, other }),
        1 => (host(), 0..5000u64).prop_map(|(host, millis)| Step::Stall { host, millis }),
    ]
    .boxed()
}

fn hostile() -> BoxedStrategy<Step> {
    let bytes = prop_oneof![
        crate::message::tests::any_message().prop_map(|message| {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            bytes
        }),
        // Fields that are likely to mean something.
        (1u8..11, 0u8..20, 0u8..4, 0u8..4).prop_map(|(kind, number, key, last)| {
            let mut bytes = vec![kind];
            [number, key, last].iter().for_each(|byte| {
                bytes.extend(u64::from(*byte).to_le_bytes());
            });
            let len = [1, 25, 9, 22, 10, 21, 9, 1, 1, 1][usize::from(kind) - 1];
            bytes.truncate(len);
            bytes
        }),
        vec(any::<u8>(), 0..40),
    ];
    prop_oneof![
        10 => with_losses(),
        4 => (0..3u32, 0..3u32, bytes)
            .prop_map(|(from, to, bytes)| Step::Hostile { from, to, bytes }),
    ]
    .boxed()
}

/// What a run has begun: imports and revocations, by host.
#[derive(Default)]
struct Begun {
    imports: Vec<(HostId, HostId, u64)>,
    revocations: Vec<(HostId, u64)>,
    goodbyes: Vec<(HostId, u64)>,
}

fn play(network: &mut Network, steps: &[Step]) -> Begun {
    let mut begun = Begun::default();
    for step in steps {
        match *step {
            Step::Export { host, key, only } => {
                network.export(HostId(host), key, only.map(HostId));
            }
            Step::Revoke { host, key } => {
                let request = network.revoke(HostId(host), key);
                begun.revocations.extend(request.map(|request| (HostId(host), request)));
            }
            Step::Import { host, owner, key, millis } => {
                let (host, owner) = (HostId(host), HostId(owner));
                let request = network.import(host, owner, key, Duration::from_millis(millis));
                begun.imports.push((host, owner, request));
            }
            Step::Cancel { host, owner, key } => {
                let (host, owner) = (HostId(host), HostId(owner));
                begun.imports.push((host, owner, network.import_and_cancel(host, owner, key)));
            }
            Step::Leave { host } => {
                begun.goodbyes.push((HostId(host), network.leave(HostId(host))));
            }
            Step::Kill { host } => network.kill(HostId(host)),
            Step::Cut { host, other } if host != other => network.cut(HostId(host), HostId(other)),
            Step::Stall { host, millis } => {
                network.stall(HostId(host), Duration::from_millis(millis));
            }
            Step::Run { micros } => network.run(Duration::from_micros(micros)),
            Step::Hostile { from, to, ref bytes } if from != to => {
                network.inject(HostId(from), HostId(to), bytes.clone());
            }
            Step::Cut { .. } | Step::Hostile { .. } => {}
        }
        for host in [A, B, C] {
            assert!(network.control(host).kept_for_peers() <= 4 * PENDING_REQUESTS);
        }
    }
    network.run(LONG);
    begun
}

/// Everything that a host has begun which still runs has ended.
fn all_has_ended(network: &Network, begun: &Begun) {
    let runs = |host: HostId| network.is_alive(host);
    for (host, _, request) in begun.imports.iter().filter(|(host, ..)| runs(*host)) {
        assert!(network.ended(*host, *request).is_some(), "import {request} of {host} has no end");
    }
    for (host, request) in begun.revocations.iter().filter(|(host, _)| runs(*host)) {
        let ended = network.ended(*host, *request);
        assert_eq!(ended, Some(&Ended::Revoked(true)), "revocation {request} of {host}");
    }
    for (host, request) in begun.goodbyes.iter().filter(|(host, _)| runs(*host)) {
        let ended = network.ended(*host, *request);
        assert_eq!(ended, Some(&Ended::Departed), "goodbye {request} of {host}");
    }
}

fn reach() -> impl Strategy<Value = Reach> {
    prop_oneof![Just(Reach::Direct), Just(Reach::ByOwner)]
}

fn goodbye() -> impl Strategy<Value = Goodbye> {
    prop_oneof![Just(Goodbye::Message), Just(Goodbye::DataPath)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn without_losses_no_peer_is_lost_and_every_request_ends(
        seed in any::<u64>(),
        reach in reach(),
        steps in vec(peaceful(), 0..60),
    ) {
        let mut network = new_network(Rack { reach, ..RACK }, seed);
        let begun = play(&mut network, &steps);
        all_has_ended(&network, &begun);
        for (host, peer) in [(A, B), (A, C), (B, A), (B, C), (C, A), (C, B)] {
            prop_assert_eq!(network.gone(host, peer), None);
        }
    }

    #[test]
    fn every_request_ends_under_losses(
        seed in any::<u64>(),
        reach in reach(),
        goodbye in goodbye(),
        steps in vec(with_losses(), 0..80),
    ) {
        let mut network = new_network(Rack { reach, goodbye, ..RACK }, seed);
        let begun = play(&mut network, &steps);
        all_has_ended(&network, &begun);
    }

    #[test]
    fn every_request_ends_under_hostile_messages(
        seed in any::<u64>(),
        goodbye in goodbye(),
        steps in vec(hostile(), 0..80),
    ) {
        let mut network = new_network(Rack { goodbye, ..RACK }, seed);
        let begun = play(&mut network, &steps);
        all_has_ended(&network, &begun);
    }

    #[test]
    fn a_seed_replays_exactly(seed in any::<u64>(), steps in vec(hostile(), 0..60)) {
        let traces = [(); 2].map(|()| {
            let mut network = new_network(RACK, seed);
            play(&mut network, &steps);
            network.trace().to_vec()
        });
        prop_assert_eq!(&traces[0], &traces[1]);
    }

    #[test]
    fn a_silent_peer_is_lost_within_the_bound(
        seed in any::<u64>(),
        before in 0..3000u64,
        stalls in vec(1..700u64, 0..3),
    ) {
        let mut network = new_network(RACK, seed);
        network.run(Duration::from_millis(before));
        network.cut(A, B);
        // The host that judges is held up itself, which does not count as silence of the peer.
        for stall in &stalls {
            network.stall(A, Duration::from_millis(*stall));
            network.run(Duration::from_millis(stall + 50));
        }
        let silent = Duration::from_millis(before);
        network.run(LONG);
        let (lost, end) = network.gone(A, B).expect("the end");
        prop_assert!(matches!(end, PeerEvent::Lost(B, LossReason::Connection(_))), "{:?}", end);
        let held_up = stalls.iter().sum::<u64>();
        // Two intervals beyond the bound: the heartbeat before the silence, and that which judges.
        let most = silent + BOUND + BOUND / 8 * 3 + Duration::from_millis(held_up) + RACK.delay;
        prop_assert!(lost <= most, "lost after {:?}, silent since {:?}", lost, silent);
        prop_assert!(lost + BOUND / 8 >= silent + BOUND, "too early: {:?}", lost);
        prop_assert_eq!(network.gone(A, C), None, "C was never silent");
    }
}

#[test]
fn a_silent_peer_is_lost_also_by_a_host_that_is_always_held_up() {
    const BOUND: Duration = Duration::from_secs(800);
    let begin = Instant::now();
    let config = Config {
        local: A,
        hosts: 2,
        loss_bound: Some(BOUND),
        reach: Reach::ByOwner,
        goodbye: Goodbye::DataPath,
        revocation_timeout: None,
    };
    let mut control = Control::<SimMedium>::new(begin, config);
    control.connected(B, begin);
    let mut poll = |now| {
        while control.poll(now).is_some() {}
        control.end_of(B).cloned()
    };
    // Each time two heartbeats late, which do not count as silence: three pass, and one counts.
    let (late, heartbeats) = (3 * (BOUND / HEARTBEATS_PER_BOUND), HEARTBEATS_PER_BOUND + 1);
    for heartbeat in 0..heartbeats {
        assert_eq!(poll(begin + heartbeat * late), None, "after {heartbeat} heartbeats");
    }
    poll(begin + heartbeats * late);
    assert!(matches!(poll(begin + (heartbeats + 1) * late), Some(PeerEvent::Lost(B, _))));
}

#[test]
fn an_import_waits_for_its_export_and_no_longer_than_it_may() {
    let mut network = new_network(RACK, 1);
    let waits = network.import(A, B, 7, SECOND);
    let early = network.import(A, B, 7, Duration::from_millis(10));
    let own = network.import(A, A, 8, SECOND);
    network.run(SECOND / 2);
    assert_eq!(network.ended(A, waits), None);
    assert_eq!(network.ended(A, early), Some(&Ended::Failed(ImportError::Unknown)));
    assert!(network.export(B, 7, None) && network.export(A, 8, None));
    assert!(!network.export(B, 7, None), "the key is taken");
    network.run(SECOND);
    assert_eq!(network.ended(A, waits), Some(&Ended::Imported(0)));
    assert_eq!(network.ended(A, own), Some(&Ended::Imported(0)));
}

#[test]
fn rights_are_each_hosts_own() {
    let mut network = new_network(RACK, 2);
    network.export(B, 7, Some(A));
    let (allowed, denied) = (network.import(A, B, 7, SECOND), network.import(C, B, 7, SECOND));
    network.run(SECOND / 10);
    assert_eq!(network.ended(A, allowed), Some(&Ended::Imported(0)));
    assert_eq!(network.ended(C, denied), Some(&Ended::Failed(ImportError::Denied)));
}

#[test]
fn an_owner_that_does_not_answer_is_not_waited_for() {
    let mut network = new_network(Rack { loss_bound: None, ..RACK }, 3);
    network.cut(A, B);
    let request = network.import(A, B, 7, SECOND);
    network.run(SECOND + ANSWER_GRACE - RACK.delay);
    assert_eq!(network.ended(A, request), None);
    network.run(2 * RACK.delay);
    assert_eq!(network.ended(A, request), Some(&Ended::Failed(ImportError::TimedOut)));
}

#[test]
fn imports_beyond_the_window_are_held_back_and_end() {
    let mut network = new_network(RACK, 4);
    let all: Vec<_> = (0..PENDING_REQUESTS + 50).map(|_| network.import(A, B, 7, SECOND)).collect();
    network.run(SECOND / 2);
    assert!(network.gone(B, A).is_none(), "A keeps the limit");
    network.export(B, 7, None);
    network.run(LONG);
    let ended = all.iter().filter(|request| network.ended(A, **request).is_some()).count();
    assert_eq!(ended, all.len());
    assert_eq!(network.gone(B, A), None);
}

#[test]
fn a_revocation_waits_for_every_importer_and_for_none_that_is_lost() {
    let mut network = new_network(RACK, 5);
    network.export(B, 7, None);
    let imports = [(A, network.import(A, B, 7, SECOND)), (C, network.import(C, B, 7, SECOND))];
    network.run(SECOND / 10);
    for (host, import) in imports {
        assert_eq!(network.ended(host, import), Some(&Ended::Imported(0)));
    }
    network.stall(C, LONG);
    let revocation = network.revoke(B, 7).expect("a region");
    network.run(BOUND / 2);
    assert_eq!(network.ended(B, revocation), None, "C has not quiesced");
    // The key is free meanwhile, and the next generation is another region.
    assert!(network.export(B, 7, None));
    let next = network.import(A, B, 7, SECOND);
    network.run(2 * BOUND);
    assert_eq!(network.ended(A, next), Some(&Ended::Imported(1)));
    assert!(matches!(network.gone(B, C), Some((_, PeerEvent::Lost(C, _)))));
    assert_eq!(network.ended(B, revocation), Some(&Ended::Revoked(true)));
}

#[test]
fn a_revocation_waits_for_a_peer_whose_connection_has_ended_until_it_is_lost() {
    let (key, now) = (RegionKey(7), Instant::now());
    let mut owner = Control::<SimMedium>::new(
        now,
        Config {
            local: A,
            hosts: 2,
            loss_bound: None,
            reach: Reach::Direct,
            goodbye: Goodbye::Message,
            revocation_timeout: None,
        },
    );
    owner.connected(B, now);
    owner.export(key, |_| SimExport { only: None }).expect("an export");
    owner.handle(now, B, Message::Import { number: 1, key, timeout: 0 }, None);
    let polled = |owner: &mut Control<SimMedium>, now| {
        let outputs = std::iter::from_fn(|| owner.poll(now));
        outputs.filter(|output| matches!(output, Output::Revoked { .. })).count()
    };
    assert_eq!(polled(&mut owner, now), 0);
    owner.closing(now, B);
    owner.revoke(now, key, None, None).expect("a region");
    assert_eq!(polled(&mut owner, now), 0, "its process may run, and use the region");
    assert_eq!(polled(&mut owner, now + CLOSING_GRACE), 1, "it is lost");
}

#[test]
fn a_region_that_its_owner_serves_is_revoked_at_once() {
    let mut network = new_network(Rack { reach: Reach::ByOwner, ..RACK }, 6);
    network.export(B, 7, None);
    network.import(A, B, 7, SECOND);
    network.run(SECOND / 10);
    let revocation = network.revoke(B, 7).expect("a region");
    assert_eq!(network.ended(B, revocation), Some(&Ended::Revoked(true)));
    // Threads of the owner itself must stop, too.
    network.export(B, 7, None);
    network.import(B, B, 7, SECOND);
    let revocation = network.revoke(B, 7).expect("a region");
    assert_eq!(network.ended(B, revocation), None);
    network.run(SECOND / 10);
    assert_eq!(network.ended(B, revocation), Some(&Ended::Revoked(true)));
}

#[test]
fn a_goodbye_is_seen_by_all_and_is_no_loss() {
    for goodbye in [Goodbye::Message, Goodbye::DataPath] {
        let mut network = new_network(Rack { goodbye, ..RACK }, 7);
        network.export(B, 7, None);
        network.import(A, B, 7, SECOND);
        network.run(SECOND / 10);
        let left = network.leave(B);
        network.run(SECOND / 10);
        assert_eq!(network.ended(B, left), Some(&Ended::Departed));
        network.kill(B);
        network.run(LONG);
        for host in [A, C] {
            let (_, end) = network.gone(host, B).expect("the end");
            assert_eq!(*end, PeerEvent::Left(B));
        }
        let late = network.import(A, B, 7, SECOND);
        let ended = network.ended(A, late).expect("at once");
        assert!(matches!(ended, Ended::Failed(ImportError::PeerGone(_))), "{ended:?}");
    }
}

#[test]
fn a_peer_that_does_not_see_a_goodbye_is_not_waited_for_long() {
    let rack = Rack { goodbye: Goodbye::DataPath, loss_bound: None, ..RACK };
    let mut network = new_network(rack, 8);
    network.cut(A, B);
    let left = network.leave(A);
    network.run(LEAVE_GRACE - RACK.delay);
    assert_eq!(network.ended(A, left), None);
    network.run(2 * RACK.delay);
    assert_eq!(network.ended(A, left), Some(&Ended::Departed));
}

#[test]
fn a_peer_that_is_given_up_is_told_why() {
    let mut network = new_network(RACK, 9);
    network.inject(A, B, vec![0xff; 9]);
    network.run(SECOND / 10);
    let (_, end) = network.gone(B, A).expect("the end");
    assert!(matches!(end, PeerEvent::Lost(A, LossReason::Protocol(_))), "{end:?}");
    let (_, end) = network.gone(A, B).expect("the end");
    let PeerEvent::Lost(B, LossReason::Connection(why)) = end else { panic!("{end:?}") };
    assert!(why.contains("host 1 has given this host up: "), "{why}");
    assert!(why.contains("a control message of 9 bytes"), "{why}");
}

#[test]
fn a_peer_that_violates_the_protocol_is_lost() {
    let (number, key) = (77, RegionKey(1));
    let import = |number| Message::Import { number, key, timeout: 10_000 };
    let refusal = crate::message::Refusal::Unknown;
    let many = (0..=PENDING_REQUESTS as u64).map(import).collect::<Vec<_>>();
    let cases = [
        (vec![Message::Quiesced { number }], "an answer to revocation 77"),
        (vec![Message::Refused { number, refusal }], "an answer to import 77"),
        (vec![Message::LeaveSeen], "before this host has left"),
        (vec![import(1), import(1)], "import 1 twice"),
        (many, "more than 4096 unanswered requests"),
    ];
    for (messages, words) in cases {
        let mut network = new_network(RACK, 10);
        for message in messages {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            network.inject(A, B, bytes);
        }
        network.run(SECOND / 10);
        match network.gone(B, A) {
            Some((_, PeerEvent::Lost(A, LossReason::Protocol(what)))) if what.contains(words) => {}
            other => panic!("not lost for {words}: {other:?}"),
        }
    }
}
