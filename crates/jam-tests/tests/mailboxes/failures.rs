//! Calls that fail, and what sender and receiver learn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gossamer::jam::mailbox::{
    FailureKind, FrameError, JamSender, MailboxError, ReactiveMailbox, SendError,
};
use gossamer::jam::{LoadedJam, Mode, Package, Policy, Sendable};
use gossamer_jam_tests::jams::faulty::FAULTY;
use gossamer_jam_tests::jams::indirect_put::{self, INDIRECT_PUT, PutArgs};
use gossamer_jam_tests::jams::slot::SLOT;
use gossamer_jam_tests::{Table, UNSEEN};
use transport_api::HostId;
use transport_api::conformance::{Make, Rack};

use crate::play::{Jams, WITHIN, bounded, play, play_in, script, small};

type Price = LoadedJam<&'static mut indirect_put::Table, u64, (), u64>;

pub(crate) fn unseen(name: &str) -> Price {
    let package = Package::parse(UNSEEN).expect("a package");
    Price::from_blob(package.blob(name).expect("its blob")).expect("its types")
}

/// Panics end the jam: the message is at the receiver, the kind at the sender; both go on.
pub(crate) fn failures_are_counted_and_reported(make: Make) {
    let receiver = script(|player| {
        let mut inbox = player.export_mailbox(small("faulty"));
        player.meet();
        let mut messages = Vec::new();
        player.serve_each(&mut inbox, |_, outcome| {
            let Err(failure) = outcome.into_result() else { return };
            let FrameError::Panicked(panicked) = &failure.reason else { panic!("{failure:?}") };
            assert_eq!(
                (failure.sender, failure.jam),
                (HostId(1), *FAULTY.code().unwrap().digest())
            );
            messages.push((failure.number, panicked.message.clone(), panicked.line));
        });
        let stats = inbox.stats();
        assert_eq!((stats.ran(), stats.failed(), messages.len()), (4, 4, 4));
        assert_eq!(stats.failed_by(FailureKind::Panicked), 4);
        assert_eq!(messages[0], (1, "as it was told".to_owned(), 19));
        assert_eq!((messages[1].0, &*messages[1].1), (2, "table panic 3"));
        assert_eq!(messages[2], (5, "as it was told".to_owned(), 19), "the Local Function");
        assert_eq!((messages[3].0, &*messages[3].1), (6, "table panic 3"));
        assert!(messages[1].2 > 0 && messages[1].2 == messages[3].2, "{messages:?}");
        assert_eq!(stats.last_failure().expect("one").number, 6);
        assert_eq!(inbox.get::<Table>().expect("the table").panics, 2);
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("faulty");
        for mode in [Mode::Automatic, Mode::Local] {
            for how in [0, 1, 3, 0] {
                sender.send(&FAULTY.in_mode(mode), how, &[]).expect("a call");
            }
        }
        let report = sender.flush(WITHIN).expect("all are dealt with");
        assert_eq!((report.handled, report.failed), (8, 4));
        assert_eq!(report.last_failure, Some((6, FailureKind::Panicked)));
    });
    play(make, [receiver, sender]);
}

/// What a mailbox with a laxer policy has linked does not run for a stricter one.
pub(crate) fn each_mailbox_has_its_policy(make: Make) {
    const POLICIES: [Policy; 3] = [Policy::AnyPeer, Policy::Signed, Policy::Nothing];
    let is_reported = Arc::new(AtomicBool::new(false));
    let reported = is_reported.clone();
    let receiver = script(move |player| {
        let mut boxes = POLICIES.map(|policy| {
            let mailbox =
                small(&format!("{policy:?}")).export(&player.segments).expect("a mailbox");
            ReactiveMailbox::new(mailbox).with(Table::new(64)).with_policy(policy)
        });
        player.meet();
        // Nine times: the first mailbox links the jam, whichever comes first.
        for _ in 0..3 {
            for inbox in &mut boxes {
                let mut count = 0;
                player.until("calls", || {
                    count += usize::from(inbox.poll().expect("a frame").is_some());
                    count == 3
                });
            }
        }
        player.until("the reports", || {
            // Nothing comes.
            assert!(boxes.iter_mut().all(|inbox| inbox.poll().expect("no error").is_none()));
            is_reported.load(Ordering::Acquire)
        });
        let seen = boxes.each_ref().map(|inbox| {
            let stats = inbox.stats();
            (stats.ran(), stats.failed_by(FailureKind::Policy), stats.failed())
        });
        assert_eq!(seen, [(9, 0, 0), (6, 3, 3), (0, 9, 9)]);
        // Where nothing runs, no sender is asked for code.
        assert_eq!((boxes[2].stats().arrived(), boxes[2].stats().fetched()), (0, 0));
        // Each may change between two frames.
        boxes[2].set_policy(Policy::AnyPeer);
        player.meet();
        player.serve(&mut boxes[2]);
        assert_eq!(boxes[2].stats().ran(), 1);
    });
    let sender = script(move |player| {
        player.meet();
        let price = unseen("price");
        let mut senders = POLICIES.map(|policy| player.open_mailbox(&format!("{policy:?}")));
        for _ in 0..3 {
            for sender in &mut senders {
                sender.send(&price, 1, &[]).expect("a call");
                sender.send(&SLOT, 1, &[]).expect("a call");
                sender.send(&SLOT.in_mode(Mode::Local), 1, &[]).expect("a call");
            }
        }
        for (sender, failed) in senders.iter_mut().zip([0, 3, 9]) {
            let report = sender.flush(WITHIN).expect("all are dealt with");
            assert_eq!((report.handled, report.failed), (9, failed));
            let last = report.last_failure.map(|(_, kind)| kind);
            assert_eq!(last, (failed > 0).then_some(FailureKind::Policy));
        }
        reported.store(true, Ordering::Release);
        player.meet();
        senders[2].send(&price, 1, &[]).expect("a call");
        assert_eq!(senders[2].flush(WITHIN).expect("it runs").failed, 9);
    });
    play(make, [receiver, sender]);
}

/// A refusal is remembered until the policy changes: the sender is not asked for the code of each frame.
#[allow(dead_code, reason = "a guest is slow: not all of its cases run there")]
pub(crate) fn refused_code_is_read_once(make: Make) {
    const CALLS: u64 = 24;
    let receiver = script(|player| {
        let mut inbox = player.export_mailbox(small("refused"));
        player.meet();
        player.until("refused calls", || {
            let _refused = inbox.poll().expect("a frame");
            inbox.stats().failed_by(FailureKind::Policy) == CALLS
        });
        // Again once a second: not on a machine that anything else leaves to this.
        let fetched = inbox.stats().fetched();
        assert!((1..=CALLS / 2).contains(&fetched), "{fetched} of {CALLS}");
        let first = inbox.stats().last_failure().expect("a failure").reason.clone();
        assert!(matches!(first, FrameError::Refused(_)), "the reason is remembered: {first:?}");
        inbox.set_policy(Policy::AnyPeer);
        player.meet();
        player.serve(&mut inbox);
        assert_eq!((inbox.stats().ran(), inbox.stats().failed()), (1, CALLS));
    });
    let sender = script(|player| {
        player.meet();
        let (price, mut sender) = (unseen("price"), player.open_mailbox("refused"));
        let price = price.in_mode(Mode::Cached);
        (0..CALLS).for_each(|_| sender.send(&price, 1, &[]).expect("a call"));
        player.meet();
        sender.send(&price, 1, &[]).expect("a call");
        assert_eq!(sender.close(WITHIN).expect("it runs").failed, CALLS);
    });
    play(make, [receiver, sender]);
}

pub(crate) fn what_cannot_be_sent_is_refused(make: Make) {
    let receiver = script(|player| {
        let mut inbox = player.export_mailbox(small("room").frame_bytes(128));
        player.meet();
        player.serve(&mut inbox);
        assert_eq!((inbox.stats().ran(), inbox.stats().failed()), (2, 0));
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("room");
        let args = PutArgs { key: 0, offset: 0 };
        let code = INDIRECT_PUT.code().expect("its code").bytes().len();
        match sender.send(&INDIRECT_PUT, args, &[0; 113]) {
            Err(SendError::TooLarge { jam, args: 16, payload: 113, code: 0, max: 128 }) => {
                assert_eq!(jam, "indirect_put");
            }
            other => panic!("{other:?}"),
        }
        match sender.send(&INDIRECT_PUT.in_mode(Mode::Injected), args, &[]) {
            Err(SendError::TooLarge { args: 16, payload: 0, code: found, .. }) if found == code => {
            }
            other => panic!("{other:?}"),
        }
        sender.send(&INDIRECT_PUT, args, &[0; 112]).expect("the largest call that fits");
        sender.flush(WITHIN).expect("it runs");
        // A sender that keeps no code has it along, or cannot send by digest.
        let mut without = JamSender::with_code_bytes(player.open_raw("room"), 0).expect("a sender");
        match without.try_send(&INDIRECT_PUT.in_mode(Mode::Cached), args, &[]) {
            Err(SendError::NoRoom { bytes, .. }) if bytes == code => {}
            other => panic!("{other:?}"),
        }
        match without.try_send(&INDIRECT_PUT, args, &[]) {
            Err(SendError::TooLarge { code: found, .. }) if found == code => {}
            other => panic!("{other:?}"),
        }
        assert!(without.try_send(&SLOT.in_mode(Mode::Local), 1, &[]).expect("a call"));
        assert_eq!((sender.sent(), without.sent()), (1, 1));
        without.flush(WITHIN).expect("it runs");
    });
    play(make, [receiver, sender]);
}

/// A receiver that has dropped the mailbox says so, and what it has run before.
pub(crate) fn a_sender_learns_that_its_mailbox_is_closed(make: Make) {
    let receiver = script(|player| {
        let mut inbox = player.export_mailbox(small("closed"));
        player.meet();
        player.until("a call", || inbox.poll().expect("a frame").is_some());
        drop(inbox);
        player.outlast_others();
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("closed");
        [1, 2].into_iter().for_each(|key| sender.send(&SLOT, key, &[]).expect("a call"));
        match sender.flush(WITHIN) {
            Err(SendError::Mailbox(MailboxError::Closed(_))) => {}
            other => panic!("{other:?}"),
        }
        assert!(sender.report().handled <= 1);
    });
    play(make, [receiver, sender]);
}

/// The host of a sender dies whose calls need code of it: they fail, and calls of others run.
pub(crate) fn a_lost_sender_stops_no_other(make: Make) {
    bounded(move || {
        let Rack { hosts, kill } = make(3, 3);
        let rack = Rack { hosts, kill: Box::new(|_| ()) };
        let receiver = script(move |player| {
            let mut inbox = player.export_mailbox(small("survives"));
            player.meet();
            player.meet();
            kill(HostId(1));
            player.serve_each(&mut inbox, |_, outcome| match outcome.into_result() {
                Ok(()) => {}
                Err(failure) => {
                    let seen = (failure.sender, failure.reason.kind());
                    assert_eq!(seen, (HostId(1), FailureKind::NoCode), "{failure:?}");
                }
            });
            assert!(inbox.stats().ran() >= 40, "{:?}", inbox.stats());
            player.until("the loss", || {
                let _rest = inbox.poll().expect("no error");
                inbox.mailbox().senders() == 0
            });
        });
        let victim = script(|player| {
            player.meet();
            let mut sender = player.open_mailbox("survives");
            for key in 0..6 {
                sender.send(&SLOT.in_mode(Mode::Cached), key, &[]).expect("a call");
            }
            // The thread outlives its host, which is cut off from the rack.
            player.meet();
        });
        let other = script(|player| {
            player.meet();
            player.meet();
            let mut sender = player.open_mailbox("survives");
            (0..40).for_each(|key| sender.send(&SLOT, key, &[]).expect("a call"));
            let report = sender.close(WITHIN).expect("all calls run");
            assert_eq!((report.handled, report.failed), (40, 0));
        });
        play_in(&rack, [receiver, victim, other]);
    });
}

pub(crate) fn a_sender_learns_that_its_receiver_is_lost(make: Make) {
    bounded(move || {
        let rack = make(2, 2);
        let kill = std::sync::Mutex::new(Some(rack.kill));
        let rack = transport_api::conformance::Rack { kill: Box::new(|_| ()), ..rack };
        let is_reported = Arc::new(AtomicBool::new(false));
        let reported = is_reported.clone();
        let receiver = script(move |player| {
            let mut inbox = player.export_mailbox(small("lost"));
            player.meet();
            player.until("the call", || inbox.poll().expect("a frame").is_some());
            player.until("the report", || {
                let _nothing = inbox.poll().expect("no frame");
                is_reported.load(Ordering::Acquire)
            });
            player.meet();
            player.outlast_others();
        });
        let sender = script(move |player| {
            player.meet();
            let mut sender = player.open_mailbox("lost");
            sender.send(&SLOT, 1, &[]).expect("a call");
            sender.flush(WITHIN).expect("it runs");
            reported.store(true, Ordering::Release);
            player.meet();
            let kill = kill.lock().unwrap().take().expect("the rack");
            kill(HostId(0));
            let error = loop {
                if let Err(error) = sender.send(&SLOT, 1, &[]) {
                    break error;
                }
            };
            let is_lost = |error: &MailboxError| error.is_peer_lost();
            assert!(matches!(&error, SendError::Mailbox(error) if is_lost(error)), "{error:?}");
            match sender.close(WITHIN) {
                Err(SendError::Mailbox(error)) if error.is_peer_lost() => {}
                other => panic!("{other:?}"),
            }
        });
        play_in(&rack, [receiver, sender]);
    });
}
