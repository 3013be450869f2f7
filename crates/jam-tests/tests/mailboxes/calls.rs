//! Calls that run: in every mode, in order, also where code is evicted.

use std::thread;

use gossamer::jam::mailbox::{FailureKind, JamSender, ReactiveMailbox};
use gossamer::jam::{Mode, Policy, Sendable, receiver};
use gossamer_jam_tests::jams::indirect_put::{INDIRECT_PUT, PutArgs};
use gossamer_jam_tests::jams::nothing::NOTHING;
use gossamer_jam_tests::jams::scaled_sum::SCALED_SUM;
use gossamer_jam_tests::jams::slot::SLOT;
use gossamer_jam_tests::jams::weighted_sum::WEIGHTED_SUM;
use gossamer_jam_tests::{Other, Table, table_slot};
use gossamer_segment::Segments;
use transport_api::conformance::Make;

use crate::failures::unseen;
use crate::play::{Jams, WITHIN, bounded, play, script, small};

const MODES: [Mode; 4] = [Mode::Automatic, Mode::Cached, Mode::Injected, Mode::Local];

/// Evicts what is linked in this process.
fn evict() {
    receiver().set_policy(Policy::Signed);
}

/// Checks that keys from 0 on have come in order: each has got the place after the one before.
fn check_order(inbox: &mut ReactiveMailbox, keys: u64) {
    let table = inbox.get_mut::<Table>().expect("the table");
    for key in 0..keys {
        assert_eq!(table_slot(table, key), key * 64, "key {key} of {keys}");
    }
}

pub(crate) fn calls_of_every_mode_run_in_order(make: Make) {
    const CALLS: u64 = 400;
    let receiver = script(|player| {
        let mut inbox = player.export_mailbox(small("modes"));
        player.meet();
        player.serve(&mut inbox);
        check_order(&mut inbox, CALLS);
        let stats = inbox.stats();
        assert_eq!((stats.ran(), stats.failed()), (CALLS + 12, 0));
        let bytes = inbox.get::<Table>().expect("the table").bytes();
        for key in 0..CALLS as usize {
            assert_eq!(bytes[key * 64 + 2..][..key % 60], vec![key as u8; key % 60], "key {key}");
        }
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("modes");
        for key in 0..CALLS {
            let mode = MODES[key as usize / 3 % MODES.len()];
            let payload = vec![key as u8; key as usize % 60];
            let args = PutArgs { key, offset: 2 };
            sender.send(&INDIRECT_PUT.in_mode(mode), args, &payload).expect("a call");
        }
        // Jams without a property, with other elements, with nothing at all.
        for mode in MODES {
            sender.set_mode(mode);
            sender.send(&SCALED_SUM, 3, &[1, 2, 3]).expect("a call");
            sender.send(&WEIGHTED_SUM, 3, &[1, 2, 3]).expect("a call");
            sender.send(&NOTHING, (), &[]).expect("a call");
        }
        let report = sender.close(WITHIN).expect("all calls run");
        assert_eq!((report.handled, report.failed), (CALLS + 12, 0));
    });
    play(make, [receiver, sender]);
}

/// The code of calls that have only a digest is read at their sender, in the order of the calls.
pub(crate) fn evicted_code_is_read_at_its_sender(make: Make) {
    const CALLS: u64 = 100;
    let receiver = script(|player| {
        let mut inbox = player.export_mailbox(small("evicted"));
        player.meet();
        player.serve_each(&mut inbox, |_, outcome| {
            outcome.into_result().expect("a jam runs");
            evict();
        });
        check_order(&mut inbox, CALLS);
        let stats = inbox.stats();
        assert_eq!((stats.ran(), stats.failed()), (CALLS, 0));
        assert!(stats.fetched() > CALLS / 2, "{stats:?}");
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("evicted");
        for key in 0..CALLS {
            // Two jams, so that the sender keeps the code of both.
            let sent = match key % 3 {
                0 => sender.send(&SLOT, key, &[]),
                1 => sender.send(&SLOT.in_mode(Mode::Cached), key, &[]),
                _ => sender.send(&INDIRECT_PUT, PutArgs { key, offset: 0 }, &[1]),
            };
            sent.expect("a call");
        }
        let report = sender.close(WITHIN).expect("all calls run");
        assert_eq!((report.handled, report.failed), (CALLS, 0));
    });
    play(make, [receiver, sender]);
}

/// What a sender that was dropped has sent still runs, where the receiver has the code.
pub(crate) fn a_dropped_sender_leaves_calls_that_need_no_code(make: Make) {
    let receiver = script(|player| {
        let mut inbox = player.export_mailbox(small("dropped"));
        player.meet();
        player.meet();
        let (mut ran, mut failed) = (0, 0);
        player.until("the calls", || {
            match inbox.poll().expect("a frame").map(|outcome| outcome.into_result()) {
                Some(Ok(())) => ran += 1,
                Some(Err(failure)) => {
                    // Other tests of this program evict code.
                    assert_eq!(failure.reason.kind(), FailureKind::NoCode, "{failure:?}");
                    failed += 1;
                }
                None => {}
            }
            ran + failed == 4
        });
        assert!(ran >= 2, "{ran} have code along");
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("dropped");
        for key in 0..4 {
            let mode = if key < 2 { Mode::Injected } else { Mode::Automatic };
            sender.send(&SLOT.in_mode(mode), key, &[]).expect("a call");
        }
        drop(sender);
        player.meet();
    });
    play(make, [receiver, sender]);
}

/// The mode of a call counts more than its sender's, also if it is the default of senders.
pub(crate) fn a_call_has_its_own_mode(make: Make) {
    let receiver = script(|player| {
        let mut inbox = player.export_mailbox(small("own-mode"));
        player.meet();
        let mut ended = Vec::new();
        player.serve_each(&mut inbox, |_, outcome| {
            ended.push(outcome.into_result().map_err(|failure| failure.reason.kind()));
        });
        let (local, own) = (Err(FailureKind::NotLocal), Err(FailureKind::Policy));
        assert_eq!(ended, [local, own, local]);
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("own-mode");
        // The program has no Local Function of this jam, and does not admit its code.
        let price = unseen("price");
        sender.set_mode(Mode::Local);
        sender.send(&price, 1, &[]).expect("a call");
        sender.send(&price.in_mode(Mode::Automatic), 1, &[]).expect("a call");
        sender.send(&price, 1, &[]).expect("a call");
        let report = sender.close(WITHIN).expect("all calls end");
        assert_eq!((report.handled, report.failed), (3, 3));
    });
    play(make, [receiver, sender]);
}

pub(crate) fn several_senders_keep_their_order(make: Make) {
    const EACH: u64 = 150;
    let receiver = script(|player| {
        let mut inbox = player.export_mailbox(small("several"));
        player.meet();
        player.serve(&mut inbox);
        let table = inbox.get_mut::<Table>().expect("the table");
        for sender in 1..=2 {
            let places = (0..EACH).map(|key| table_slot(table, sender << 32 | key));
            assert!(places.collect::<Vec<_>>().is_sorted(), "the calls of sender {sender}");
        }
        assert_eq!(inbox.stats().ran(), 2 * EACH);
    });
    let sender = |number: u64| {
        script(move |player| {
            player.meet();
            let mut sender = player.open_mailbox("several");
            for key in 0..EACH {
                let mode = MODES[key as usize % MODES.len()];
                sender.send(&SLOT.in_mode(mode), number << 32 | key, &[]).expect("a call");
            }
            let report = sender.flush(WITHIN).expect("all calls run");
            assert_eq!((report.handled, report.failed), (EACH, 0));
        })
    };
    play(make, [receiver, sender(1), sender(2)]);
}

pub(crate) fn several_properties_are_found_by_name(make: Make) {
    let receiver = script(|player| {
        let mailbox = small("properties").export(&player.segments).expect("a mailbox");
        let mut inbox = ReactiveMailbox::new(mailbox).with(Other);
        assert!(inbox.get::<Table>().is_none());
        player.meet();
        // A jam that works on none, and one whose property is not there.
        player.until("a call", || {
            let outcome = inbox.poll().expect("a frame");
            outcome.is_some_and(|outcome| outcome.into_result().is_ok())
        });
        player.until("a call", || {
            let Some(outcome) = inbox.poll().expect("a frame") else { return false };
            let failure = outcome.into_result().expect_err("there is no table");
            assert_eq!(failure.reason.kind(), FailureKind::Property, "{failure:?}");
            true
        });
        let mut inbox = inbox.with(Table::new(64));
        player.serve(&mut inbox);
        let mut table = inbox.take::<Table>().expect("the table");
        assert!(inbox.take::<Table>().is_none() && inbox.get::<Other>().is_some());
        assert_eq!((table_slot(&mut table, 7), table_slot(&mut table, 9)), (0, 64));
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("properties");
        sender.send(&NOTHING, (), &[]).expect("a call");
        sender.send(&SLOT, 3, &[]).expect("a call");
        let report = sender.flush(WITHIN).expect("both are dealt with");
        assert_eq!(report.last_failure, Some((1, FailureKind::Property)));
        sender.send(&SLOT, 7, &[]).expect("a call");
        assert_eq!(sender.flush(WITHIN).expect("it runs").failed, 1);
    });
    play(make, [receiver, sender]);
}

/// Threads that are attached to no rack receive and send, while others serve the segments.
pub(crate) fn threads_that_are_not_attached_run_jams(make: Make) {
    const CALLS: u64 = 60;
    bounded(move || {
        let rack = make(2, 2);
        let hosts: Vec<_> = rack.hosts.iter().map(|host| Segments::new(host.clone())).collect();
        let _servers = [0, 1].map(|host| hosts[host].serve(host as u32).expect("a server"));
        let mailbox = small("served").export(&hosts[0]).expect("a mailbox");
        let mut inbox = ReactiveMailbox::new(mailbox).with(Table::new(64));
        thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let sender = JamSender::open(&hosts[1], "served", WITHIN);
                let mut sender = sender.expect("an open mailbox");
                (0..CALLS).for_each(|key| sender.send(&SLOT, key, &[]).expect("a call"));
                let report = sender.close(WITHIN).expect("all calls run");
                assert_eq!((report.handled, report.failed), (CALLS, 0));
            });
            inbox.run_while(|_| !sender.is_finished()).expect("it runs");
        });
        check_order(&mut inbox, CALLS);
    });
}

/// A call whose code does not fit beside its payload goes by digest at once.
pub(crate) fn code_that_does_not_fit_is_read_at_its_sender(make: Make) {
    let receiver = script(|player| {
        let mut inbox = player.export_mailbox(small("tight").frame_bytes(64));
        player.meet();
        player.serve(&mut inbox);
        check_order(&mut inbox, 3);
        assert_eq!((inbox.stats().ran(), inbox.stats().arrived()), (3, 0));
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("tight");
        (0..3).for_each(|key| sender.send(&SLOT, key, &[]).expect("a call"));
        sender.close(WITHIN).expect("all calls run");
    });
    play(make, [receiver, sender]);
}
