//! Single scenarios, each with what the hosts report at its end.

use std::time::{Duration, Instant};

use primitive::limits::PENDING_REQUESTS;
use transport_api::{LossReason, PeerEvent, RegionKey};

use crate::config::{
    ANSWER_GRACE, CLOSING_GRACE, Config, CutOff, Goodbye, HEARTBEATS_PER_BOUND, LEAVE_GRACE, Reach,
};
use crate::control::Control;
use crate::control::tests::{A, B, BOUND, C, LONG, RACK, SECOND, new_network};
use crate::message::Message;
use crate::output::{ImportError, Output};
use crate::testing::{Ended, Rack, SimExport, SimMedium};

#[test]
fn a_silent_peer_is_lost_also_by_a_host_that_is_always_held_up() {
    const BOUND: Duration = Duration::from_secs(800);
    let begin = Instant::now();
    let config = Config {
        local: A,
        hosts: 2,
        loss_bound: Some(BOUND),
        reach: Reach::ByOwner,
        cut_off: CutOff::AtEnd,
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
            cut_off: CutOff::AtEnd,
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
fn a_peer_that_is_given_up_gets_the_reason() {
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
