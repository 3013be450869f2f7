//! The control planes of a rack on a simulated network, under random orders, delays, losses and
//! hostile messages. What must always hold, [`Network`] checks; here is what each test adds.

mod scenarios;
mod stops;

use std::time::{Duration, Instant};

use primitive::limits::PENDING_REQUESTS;
use proptest::collection::vec;
use proptest::prelude::*;
use transport_api::{HostId, LossReason, PeerEvent};

use crate::config::{CutOff, Goodbye, Reach};
use crate::testing::{Ended, Network, Rack};

const BOUND: Duration = Duration::from_millis(800);
const SECOND: Duration = Duration::from_secs(1);
/// Longer than anything that was begun can take.
const LONG: Duration = Duration::from_secs(12);

const RACK: Rack = Rack {
    hosts: 3,
    threads: 2,
    loss_bound: Some(BOUND),
    reach: Reach::Direct,
    cut_off: CutOff::AtEnd,
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

    /// [`Network`] checks that no host that runs uses a region that is quiet.
    #[test]
    fn every_revocation_ends_also_if_lost_peers_may_run(
        seed in any::<u64>(),
        goodbye in goodbye(),
        steps in vec(with_losses(), 0..80),
    ) {
        // Between processes that share memory no connection is cut while both run: a host that has
        // left and is connected answers, however late.
        let steps: Vec<_> =
            steps.into_iter().filter(|step| !matches!(step, Step::Cut { .. })).collect();
        let rack = Rack { cut_off: CutOff::AtStop, goodbye, ..RACK };
        let mut network = new_network(rack, seed);
        let begun = play(&mut network, &steps);
        for (host, request) in begun.revocations.iter().filter(|(host, _)| network.is_alive(*host)) {
            let ended = network.ended(*host, *request);
            prop_assert!(matches!(ended, Some(Ended::Revoked(_))), "revocation {request} of {host}");
        }
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
