//! Senders that come and go, mailboxes that end, hosts that are lost.

use std::time::Duration;

use gossamer_segment::SegmentError;
use transport_api::HostId;
use transport_api::conformance::{Make, Rack};

use crate::conformance::{DEADLINE, Mailboxes, Taken, bounded, play, play_in, script};
use crate::{Mailbox, MailboxError, Sender};

/// A sender that is dropped frees its banks for the next one, and nothing that it has sent is lost.
pub fn a_dropped_sender_gives_its_banks_back(make: Make) {
    const SENDERS: u64 = 10;
    const EACH: u64 = 7;
    let receiver = script(|player| {
        let builder = Mailbox::builder("one").banks(2).frames(3).frame_bytes(64).senders(1);
        let mut inbox = player.export_mailbox(builder);
        player.meet();
        for number in 0..SENDERS * EACH {
            let taken = Taken::of(&inbox.next().expect("a frame"));
            assert_eq!(taken, Taken::numbered(number, [3, 0, 0]));
        }
        player.until("the end of the last one", || {
            inbox.poll().expect("no error").is_none() && inbox.senders() == 0
        });
    });
    let sender = script(|player| {
        player.meet();
        for number in 0..SENDERS {
            let mut sender = player.open_mailbox("one");
            let numbers = number * EACH..(number + 1) * EACH;
            numbers.for_each(|number| Taken::numbered(number, [3, 0, 0]).send(&mut sender));
        }
    });
    play(make, [receiver, sender]);
}

/// If all bank sets are taken, an open fails; one that waits gets the next that is free.
pub fn a_full_mailbox_takes_no_more_senders(make: Make) {
    let receiver = script(|player| {
        let mut inbox = player.export_mailbox(Mailbox::builder("pair").frame_bytes(64).senders(2));
        let meeting = player.begin_meeting();
        player.serve_until(&mut inbox, meeting, |_| ());
        let meeting = player.begin_meeting();
        player.serve_until(&mut inbox, meeting, |_| ());
    });
    let sender = script(|player| {
        player.meet();
        let first = player.open_mailbox("pair");
        let _second = player.open_mailbox("pair");
        let full = Sender::open(&player.segments, "pair").map(drop);
        assert!(matches!(full, Err(MailboxError::Full { senders: 2, .. })), "{full:?}");
        drop(first);
        let _third = player.open_mailbox("pair");
        player.meet();
    });
    play(make, [receiver, sender]);
}

/// `close` returns once the receiver has taken all frames, or when the time is over.
pub fn closing_waits_until_all_is_taken(make: Make) {
    let receiver = script(|player| {
        let mut inbox =
            player.export_mailbox(Mailbox::builder("closing").frame_bytes(64).senders(1));
        player.meet();
        // The first sender does not wait long enough.
        player.meet();
        let mut count = 0;
        let meeting = player.begin_meeting();
        player.serve_until(&mut inbox, meeting, |taken| {
            assert_eq!(taken.number(), count);
            count += 1;
        });
        assert_eq!(count, 8);
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("closing");
        (0..3).for_each(|number| Taken::numbered(number, [8, 8, 8]).send(&mut sender));
        let early = sender.close(Duration::from_millis(5));
        assert!(matches!(early, Err(MailboxError::NotTaken(_))), "{early:?}");
        player.meet();
        let mut sender = player.open_mailbox("closing");
        (3..8).for_each(|number| Taken::numbered(number, [8, 8, 8]).send(&mut sender));
        sender.close(DEADLINE / 2).expect("the receiver takes everything");
        player.meet();
    });
    play(make, [receiver, sender]);
}

/// A sender whose mailbox is dropped gets an error, also while it waits.
pub fn a_dropped_mailbox_is_closed(make: Make) {
    let receiver = script(|player| {
        let inbox =
            player.export_mailbox(Mailbox::builder("ends").banks(1).frames(1).frame_bytes(64));
        player.meet();
        player.meet();
        drop(inbox);
        player.meet();
        let mut inbox = player.export_mailbox(Mailbox::builder("ends").frame_bytes(64));
        player.meet();
        let taken = Taken::of(&inbox.next().expect("a frame"));
        assert_eq!(taken.number(), 2);
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("ends");
        Taken::numbered(0, [8, 0, 0]).send(&mut sender);
        player.meet();
        let next = Taken::numbered(1, [8, 0, 0]);
        let closed = sender.send(&next.header, next.parts());
        assert!(matches!(closed, Err(MailboxError::Closed(_))), "{closed:?}");
        player.meet();
        player.meet();
        Taken::numbered(2, [8, 0, 0]).send(&mut player.open_mailbox("ends"));
    });
    play(make, [receiver, sender]);
}

/// A segment without a mailbox is not taken for one, and a name that nobody publishes is not found.
pub fn what_is_no_mailbox_is_not_opened(make: Make) {
    let owner = script(|player| {
        let tiny = player.segments.builder("tiny").len(8).export().expect("a segment");
        let plain = player.segments.builder("plain").len(4_096).export().expect("a segment");
        plain.write(0, b"GSMMAIL2 and nothing that belongs behind it").expect("its memory");
        player.meet();
        player.meet();
        drop((tiny, plain));
    });
    let sender = script(|player| {
        player.meet();
        for name in ["tiny", "plain"] {
            let refused = Sender::open(&player.segments, name).map(drop);
            assert!(matches!(refused, Err(MailboxError::NotAMailbox(_))), "{refused:?}");
        }
        let missing = Sender::open(&player.segments, "nowhere").map(drop);
        let not_found = |it: &_| matches!(it, SegmentError::NotFound { .. });
        assert!(matches!(&missing, Err(MailboxError::Segment(it)) if not_found(it)), "{missing:?}");
        player.meet();
    });
    play(make, [owner, sender]);
}

/// Threads without lanes send and receive; another thread carries out what needs one.
pub fn threads_that_are_not_attached_send_and_receive(make: Make) {
    const COUNT: u64 = 40;
    bounded(move || {
        let rack = make(2, 2);
        let hosts: Vec<_> =
            rack.hosts.iter().map(|host| gossamer_segment::Segments::new(host.clone())).collect();
        let (first, last) = (&hosts[0], &hosts[hosts.len() - 1]);
        let mut servers = vec![first.serve(0).expect("a server")];
        if hosts.len() > 1 {
            servers.push(last.serve(1).expect("a server"));
        }
        let builder = Mailbox::builder("served").banks(2).frames(2).frame_bytes(64);
        let mut inbox = builder.export(first).expect("a mailbox");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut sender = Sender::open(last, "served").expect("an open mailbox");
                (0..COUNT).for_each(|number| Taken::numbered(number, [5, 6, 7]).send(&mut sender));
                sender.close(DEADLINE / 2).expect("the receiver takes everything");
            });
            for number in 0..COUNT {
                let taken = Taken::of(&inbox.next().expect("a frame"));
                assert_eq!(taken, Taken::numbered(number, [5, 6, 7]));
            }
            while inbox.senders() > 0 {
                assert!(inbox.next_timeout(Duration::from_millis(1)).expect("no error").is_none());
            }
        });
    });
}

/// A rack and what ends one of its hosts.
fn breakable(make: Make) -> (Rack, Box<dyn Fn(HostId) + Send + Sync>) {
    let Rack { hosts, kill } = make(2, 2);
    (Rack { hosts, kill: Box::new(|_| ()) }, kill)
}

/// A sender whose receiver dies gets an error, at the latest when it would wait.
pub fn a_sender_learns_that_its_receiver_is_lost(make: Make) {
    bounded(move || {
        let (rack, kill) = breakable(make);
        let victim = script(|player| {
            let _inbox = player.export_mailbox(Mailbox::builder("dies").frame_bytes(64));
            player.meet();
            // The thread outlives its host, which is cut off from the rack.
            player.meet();
        });
        let sender = script(move |player| {
            player.meet();
            let mut sender = player.open_mailbox("dies");
            Taken::numbered(0, [8, 0, 0]).send(&mut sender);
            kill(HostId(0));
            let next = Taken::numbered(1, [8, 0, 0]);
            let lost = loop {
                if let Err(error) = sender.send(&next.header, next.parts()) {
                    break error;
                }
            };
            assert!(lost.is_peer_lost(), "{lost:?}");
            assert!(sender.sent() <= 32, "{} frames into banks of 32", sender.sent());
            player.meet();
        });
        play_in(&rack, [victim, sender]);
    });
}

/// An open that waits for banks of a mailbox whose host dies gets an error.
pub fn an_open_that_waits_learns_that_its_receiver_is_lost(make: Make) {
    bounded(move || {
        let (rack, kill) = breakable(make);
        let victim = script(|player| {
            let builder = Mailbox::builder("full").frame_bytes(64).senders(1);
            let _inbox = player.export_mailbox(builder);
            player.meet();
            player.meet();
        });
        let sender = script(move |player| {
            player.meet();
            let _first = player.open_mailbox("full");
            let options = Sender::options(&player.segments).host(HostId(0)).timeout(Duration::MAX);
            let opened = std::thread::scope(|scope| {
                scope.spawn(|| {
                    // It most likely waits by then. If not, the error is the same.
                    std::thread::sleep(Duration::from_millis(50));
                    kill(HostId(0));
                });
                options.open("full").map(drop)
            });
            let lost = opened.expect_err("the mailbox is full");
            assert!(lost.is_peer_lost(), "{lost:?}");
            player.meet();
        });
        play_in(&rack, [victim, sender]);
    });
}

/// A receiver frees the banks of a sender whose host dies.
pub fn the_banks_of_a_lost_sender_are_freed(make: Make) {
    bounded(move || {
        let (rack, kill) = breakable(make);
        let receiver = script(move |player| {
            let mut inbox =
                player.export_mailbox(Mailbox::builder("bereft").frame_bytes(64).senders(1));
            player.meet();
            assert_eq!(Taken::of(&inbox.next().expect("a frame")).number(), 0);
            assert_eq!(inbox.senders(), 1);
            kill(HostId(1));
            player.until("the loss", || {
                assert!(inbox.poll().expect("no error").is_none());
                inbox.senders() == 0
            });
            // This host may have the banks.
            let mut own = player.open_mailbox("bereft");
            Taken::numbered(1, [8, 0, 0]).send(&mut own);
            assert_eq!(Taken::of(&inbox.next().expect("a frame")).number(), 1);
            player.meet();
        });
        let victim = script(|player| {
            player.meet();
            let mut sender = player.open_mailbox("bereft");
            Taken::numbered(0, [8, 0, 0]).send(&mut sender);
            player.meet();
            // Its goodbye finds nobody.
        });
        play_in(&rack, [receiver, victim]);
    });
}
