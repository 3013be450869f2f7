//! Frames of all sizes, their order, flow control, and sides that sleep.

use std::time::Duration;

use transport_api::conformance::Make;

use crate::conformance::{DEADLINE, Mailboxes, Taken, play, script};
use crate::{FrameHeader, Mailbox, MailboxError, Parts};

/// Bytes of the largest frames: more than one operation of a segment.
const LARGE: usize = 100_000;

/// Lengths of the parts of the frames that a test sends.
fn lens(number: u64) -> [usize; 3] {
    const LENS: [usize; 9] = [0, 1, 7, 8, 9, 64, 1_000, 4_096, 30_001];
    let len = |step: u64| LENS[(number / step) as usize % LENS.len()];
    [len(1), len(9), len(5)]
}

fn all_come_back(make: Make, is_fixed: bool) {
    const COUNT: u64 = 150;
    let receiver = script(move |player| {
        let builder = Mailbox::builder("sizes").banks(2).frames(3).frame_bytes(LARGE);
        let mut inbox =
            player.export_mailbox(if is_fixed { builder.fixed() } else { builder.variable() });
        player.meet();
        for number in 0..COUNT {
            let frame = inbox.next().expect("a frame");
            assert_eq!(Taken::of(&frame), Taken::numbered(number, lens(number)), "{number}");
        }
        let mut largest = vec![0; LARGE];
        inbox.next().expect("the largest frame").copy_payload(&mut largest);
        assert!(largest == super::pattern(LARGE, 7));
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("sizes");
        (0..COUNT).for_each(|number| Taken::numbered(number, lens(number)).send(&mut sender));
        let largest = super::pattern(LARGE, 7);
        let parts = Parts { payload: &largest, ..Parts::default() };
        sender.send(&FrameHeader::default(), parts).expect("the largest frame");
        assert_eq!(sender.sent(), COUNT + 1);
    });
    play(make, [receiver, sender]);
}

/// Frames of variable size arrive as they were sent.
pub fn frames_of_every_size_come_back(make: Make) {
    all_come_back(make, false);
}

/// So do frames of a fixed size.
pub fn fixed_frames_of_every_size_come_back(make: Make) {
    all_come_back(make, true);
}

/// Each sender's frames arrive in order, over many rounds of its banks, and none waits for the others'.
pub fn frames_of_several_senders_keep_their_order(make: Make) {
    const EACH: u64 = 400;
    let receiver = script(|player| {
        let builder = Mailbox::builder("busy").banks(3).frames(2).frame_bytes(64).senders(4);
        let mut inbox = player.export_mailbox(builder);
        player.meet();
        let mut next = [0; 2];
        while next.iter().any(|next| *next < EACH) {
            let taken = Taken::of(&inbox.next().expect("a frame"));
            let (sender, number) = (taken.number() % 2, taken.number() / 2);
            assert_eq!(number, next[sender as usize], "of sender {sender}");
            assert_eq!(taken, Taken::numbered(taken.number(), [8, 9, 0]));
            next[sender as usize] += 1;
        }
        assert_eq!(inbox.senders(), 2);
        // They close once both have sent everything.
        player.meet();
    });
    let sender = |which: u64| {
        script(move |player| {
            player.meet();
            let mut sender = player.open_mailbox("busy");
            (0..EACH).for_each(|n| Taken::numbered(2 * n + which, [8, 9, 0]).send(&mut sender));
            player.meet();
        })
    };
    play(make, [receiver, sender(0), sender(1)]);
}

/// A sender writes to all its banks without an answer, and to none of them again before it was emptied. A
/// flag of one bank alone reaches it, however many there are, since the receiver's thread polls.
pub fn a_full_bank_stops_its_sender(make: Make) {
    [2, 4].into_iter().for_each(|banks| full_banks_stop_their_sender(make, banks));
}

fn full_banks_stop_their_sender(make: Make, banks: u32) {
    let all = 3 * u64::from(banks);
    let receiver = script(move |player| {
        let builder = Mailbox::builder("slow").banks(banks).frames(3).frame_bytes(64);
        let mut inbox = player.export_mailbox(builder);
        player.meet();
        // The sender fills its banks.
        player.meet();
        let mut number = 0;
        // What is taken empties no bank, then one of them, and then all.
        for count in [2, 1, all] {
            for _ in 0..count {
                let taken = Taken::of(&inbox.next().expect("a frame"));
                assert_eq!(taken, Taken::numbered(number, [8, 0, 0]));
                number += 1;
            }
            // Its thread polls, but takes nothing.
            player.meet();
            player.meet();
        }
    });
    let sender = script(move |player| {
        player.meet();
        let mut sender = player.open_mailbox("slow");
        let mut number = 0;
        let mut send_all = |count: u64| {
            let mut try_next = || {
                let next = Taken::numbered(number, [8, 0, 0]);
                let is_sent = sender.try_send(&next.header, next.parts()).expect("no error");
                number += u64::from(is_sent);
                is_sent
            };
            for _ in 0..count {
                player.until("room", &mut try_next);
            }
            for _ in 0..200 {
                assert!(!try_next(), "written to a bank that is full");
                player.attached.poll();
            }
        };
        send_all(all);
        player.meet();
        for count in [0, 3, all] {
            player.meet();
            send_all(count);
            player.meet();
        }
    });
    play(make, [receiver, sender]);
}

/// Both sides sleep at times: each wakes the other.
pub fn a_receiver_and_a_sender_that_sleep_go_on(make: Make) {
    const ROUNDS: u64 = 60;
    let receiver = script(|player| {
        let mut inbox =
            player.export_mailbox(Mailbox::builder("sleepy").banks(1).frames(2).frame_bytes(64));
        player.meet();
        for number in 0..ROUNDS {
            if number % 3 == 0 {
                // Long enough that the sender, whose one bank is full, sleeps.
                std::thread::sleep(Duration::from_millis(2));
            }
            let frame = inbox.next_timeout(DEADLINE / 2).expect("no error").expect("a frame");
            assert_eq!(Taken::of(&frame).number(), number);
        }
        let none = inbox.next_timeout(Duration::from_millis(5)).expect("no error");
        assert!(none.is_none(), "{none:?}");
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("sleepy");
        for number in 0..ROUNDS {
            if number % 7 == 0 {
                // Long enough that the receiver sleeps.
                std::thread::sleep(Duration::from_millis(2));
            }
            Taken::numbered(number, [8, 0, 0]).send(&mut sender);
        }
    });
    play(make, [receiver, sender]);
}

/// A receiver that only polls gets frames without notifications.
pub fn a_receiver_that_never_sleeps_needs_no_wake(make: Make) {
    const COUNT: u64 = 200;
    let receiver = script(|player| {
        let builder = Mailbox::builder("awake").banks(2).frames(2).frame_bytes(64).never_sleeps();
        let mut inbox = player.export_mailbox(builder);
        player.meet();
        for number in 0..COUNT {
            assert_eq!(Taken::of(&inbox.next().expect("a frame")).number(), number);
        }
        let notified = inbox.segment().notifications().try_next().expect("a segment");
        assert!(notified.is_none_or(|it| it.missed == 0), "frames have notified");
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("awake");
        (0..COUNT).for_each(|number| Taken::numbered(number, [0, 0, 8]).send(&mut sender));
    });
    play(make, [receiver, sender]);
}

/// A frame that is too large is refused before anything is written.
pub fn a_frame_that_does_not_fit_is_refused(make: Make) {
    let receiver = script(|player| {
        let mut inbox = player.export_mailbox(Mailbox::builder("small").frame_bytes(60));
        assert_eq!(inbox.frame_bytes(), 64);
        player.meet();
        assert_eq!(Taken::of(&inbox.next().expect("a frame")).number(), 1);
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("small");
        let large = Taken::numbered(0, [1, 49, 8]);
        let refused = sender.send(&large.header, large.parts()).expect_err("too large");
        let MailboxError::TooLarge { len: 72, max: 64, .. } = refused else { panic!("{refused}") };
        let expected = format!(
            "72 bytes do not fit into a frame of segment \"small\" of {}: at most 64",
            sender.receiver()
        );
        assert_eq!(refused.to_string(), expected);
        Taken::numbered(1, [1, 48, 8]).send(&mut sender);
    });
    play(make, [receiver, sender]);
}
