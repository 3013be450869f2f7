//! Notifications: sent only on request, after their data, in order, once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use transport_api::conformance::Make;

use crate::conformance::{Player, bytes, pattern, play, script};
use crate::{HostId, Notification, Notify, RemoteSegment, Segment, SegmentError};

/// Polls until a notification has arrived, and takes it.
fn next(player: &Player, of: &Segment) -> Notification {
    let (notifications, mut notification) = (of.notifications(), None);
    player.until("a notification", || {
        notification = notifications.try_next().expect("a segment");
        notification.is_some()
    });
    notification.expect("it was waited for")
}

/// Takes all notifications that have arrived.
fn rest(of: &Segment) -> Vec<Notification> {
    let notifications = of.notifications();
    std::iter::from_fn(|| notifications.try_next().expect("a segment")).collect()
}

/// A notification names the writer's host and the bytes written. Notifications arrive in order, and
/// none before its data.
pub fn a_notification_follows_its_data(make: Make) {
    const COUNT: usize = 200;
    const LEN: usize = 700;
    let owner = script(|owner| {
        let segment = owner.export("followed", COUNT * LEN);
        owner.meet();
        // Player 1 is on host 1, if there is one.
        let writer = HostId(owner.segments.hosts().min(2) - 1);
        for n in 0..COUNT {
            let notification = segment.notified().expect("a notification");
            let len = LEN - n;
            let expected = Notification { from: writer, offset: n * LEN, len, missed: 0 };
            assert_eq!(notification, expected);
            let mut data = vec![0; len];
            segment.read(notification.offset, &mut data).expect("its own memory");
            assert!(data == pattern(len, n as u32), "notification {n} was ahead of its data");
        }
        owner.meet();
        assert_eq!(rest(&segment), []);
        owner.meet();
    });
    let user = script(|user| {
        user.meet();
        let segment = user.open("followed");
        assert_eq!(segment.notify_mode(), Notify::Conditional);
        for n in 0..COUNT {
            let len = LEN - n;
            segment.write_notify(n * LEN, &pattern(len, n as u32)).expect("a write");
        }
        user.meet();
        user.meet();
    });
    play(make, [owner, user]);
}

/// Every operation in its plain form.
fn every_operation(on: &RemoteSegment) {
    on.write(8, &[1; 8]).expect("a write");
    on.at::<u32>(4).write(&2).expect("a write");
    on.write_block(24, &[3; 40]).expect("a block");
    on.compare_swap(64, 0, 1).expect("a swap");
    on.fetch_add(72, 1).expect("an addition");
    on.read(0, &mut [0; 80]).expect("a read");
    on.read_block(0, &mut [0; 80]).expect("a block");
}

/// Every operation in the form that requests a notification.
fn every_operation_notifying(on: &RemoteSegment) {
    on.write_notify(8, &[1; 8]).expect("a write");
    on.at::<u32>(4).write_notify(&2).expect("a write");
    on.write_block_notify(24, &[3; 40]).expect("a block");
    on.compare_swap_notify(64, 9, 1).expect("a swap that finds another value");
    on.fetch_add_notify(72, 1).expect("an addition");
}

/// Notifications are sent never, always, or when the writer requests one, as the export says.
pub fn the_segment_says_when_its_owner_is_notified(make: Make) {
    const NAMES: [(&str, Notify); 3] = [
        ("never", Notify::Never),
        ("always", Notify::Always),
        ("conditional", Notify::Conditional),
    ];
    let owner = script(|owner| {
        let segments = NAMES.map(|(name, notify)| {
            let builder = owner.segments.builder(name).len(80).notify(notify);
            builder.export().expect("a segment")
        });
        let last = owner.export("last", 8);
        owner.meet();
        next(owner, &last);
        let notified = segments.each_ref().map(|segment| {
            let notifications = rest(segment);
            assert!(notifications.iter().all(|notification| notification.missed == 0));
            notifications
                .iter()
                .map(|notification| (notification.offset, notification.len))
                .collect::<Vec<_>>()
        });
        let each = [(8, 8), (16, 4), (24, 40), (64, 8), (72, 8)];
        assert_eq!(notified, [vec![], [each, each].concat(), each.to_vec()]);
        // Nothing will ever arrive at the first, so a wait for it is an error at once.
        let [never, others @ ..] = &segments;
        let is_never = |error: &SegmentError| matches!(error, SegmentError::NeverNotified(_));
        let wait = never.notified().expect_err("it takes none");
        assert!(is_never(&wait), "{wait}");
        let wait = never.notified_timeout(Duration::ZERO).expect_err("it takes none");
        assert!(is_never(&wait), "{wait}");
        let callback = never.notifications().set_callback(drop).expect_err("it takes none");
        assert!(is_never(&callback), "{callback}");
        let descriptor = never.notifications().descriptor().map(drop).expect_err("it takes none");
        assert_eq!(descriptor.kind(), io::ErrorKind::InvalidInput);
        for segment in others {
            assert_eq!(segment.notified_timeout(Duration::ZERO).expect("a segment"), None);
        }
        for segment in &segments {
            assert_eq!(segment.at::<u64>(9).read().expect("a word"), 2);
            assert_eq!(segment.at::<u64>(8).read().expect("a word"), 1);
        }
        owner.meet();
    });
    let user = script(|user| {
        user.meet();
        for (name, notify) in NAMES {
            let segment = user.open(name);
            assert_eq!(segment.notify_mode(), notify);
            every_operation(&segment);
            every_operation_notifying(&segment);
        }
        // Arrives after all of these: they use the same lane.
        user.open("last").write_notify(0, &[1]).expect("a write");
        user.meet();
    });
    play(make, [owner, user]);
}

/// A block that is sent in several parts notifies its owner once, after its last part.
pub fn a_block_notifies_once(make: Make) {
    const LEN: usize = 550_001;
    let owner = script(|owner| {
        let segment = owner.export("block", LEN + 5);
        owner.meet();
        for seed in 0..2 {
            let notification = next(owner, &segment);
            assert_eq!((notification.offset, notification.len, notification.missed), (5, LEN, 0));
            assert!(bytes(&segment)[5..] == pattern(LEN, seed), "block {seed}");
            owner.meet();
            owner.linger();
            assert_eq!(rest(&segment), []);
            owner.meet();
        }
    });
    let user = script(|user| {
        user.meet();
        let segment = user.open("block");
        for seed in 0..2 {
            segment.write_block_notify(5, &pattern(LEN, seed)).expect("a block");
            user.meet();
            user.meet();
        }
    });
    play(make, [owner, user]);
}

/// A write of no bytes notifies, too.
pub fn no_bytes_notify_too(make: Make) {
    let owner = script(|owner| {
        let segment = owner.export("bare", 64);
        owner.meet();
        for at in [0, 7, 64] {
            let notification = segment.notified().expect("a notification");
            assert_eq!((notification.offset, notification.len), (at, 0));
        }
        let notification = segment.notified().expect("a notification");
        assert_eq!((notification.offset, notification.len), (3, 0));
        assert_eq!(bytes(&segment), [0; 64]);
        owner.meet();
    });
    let user = script(|user| {
        user.meet();
        let segment = user.open("bare");
        for at in [0, 7, 64] {
            segment.write_notify(at, &[]).expect("a notification");
        }
        segment.write_block_notify(3, &[]).expect("a notification");
        let outside = segment.write_notify(65, &[]);
        assert!(matches!(outside, Err(SegmentError::OutOfBounds { .. })), "{outside:?}");
        user.meet();
    });
    play(make, [owner, user]);
}

/// If the owner takes no notifications, those that exceed the queue are counted as missed; the last
/// one is always kept.
pub fn untaken_notifications_are_counted(make: Make) {
    const COUNT: usize = 1_500;
    let owner = script(|owner| {
        let segment = owner.export("missed", COUNT);
        let last = owner.export("last", 8);
        owner.meet();
        next(owner, &last);
        let notifications = rest(&segment);
        assert!(notifications.len() < COUNT, "they are not kept without bound");
        let mut expected = 0;
        for Notification { offset, len, missed, .. } in notifications {
            expected += missed as usize;
            assert_eq!((offset, len), (expected, 1), "in order");
            expected += 1;
        }
        assert_eq!(expected, COUNT, "each was taken or counted, and the last one was not dropped");
        owner.meet();
        let again = next(owner, &segment);
        assert_eq!((again.offset, again.missed), (5, 0));
    });
    let user = script(|user| {
        user.meet();
        let segment = user.open("missed");
        for at in 0..COUNT {
            segment.write_notify(at, &[1]).expect("a write");
        }
        user.open("last").write_notify(0, &[1]).expect("a write");
        user.meet();
        segment.write_notify(5, &[1]).expect("a write");
    });
    play(make, [owner, user]);
}

/// Two owners take turns; each sleeps until the other one's notification wakes it.
pub fn a_sleeping_owner_is_notified(make: Make) {
    const ROUNDS: u64 = 100;
    let turn = |own: Segment, theirs: RemoteSegment, is_first: bool| {
        for round in 0..ROUNDS {
            if is_first {
                theirs.at::<u64>(0).write_notify(&round).expect("a write");
            }
            let notification = own.notified().expect("a notification");
            assert_eq!((notification.offset, notification.len), (0, 8));
            assert_eq!(own.at::<u64>(0).read().expect("a word"), round);
            if !is_first {
                theirs.at::<u64>(0).write_notify(&round).expect("a write");
            }
        }
    };
    let first = script(move |first| {
        let own = first.export("first", 8);
        first.meet();
        turn(own, first.open("second"), true);
    });
    let second = script(move |second| {
        let own = second.export("second", 8);
        second.meet();
        turn(own, second.open("first"), false);
    });
    play(make, [first, second]);
}

/// A callback runs on the thread that takes the notification, and may send one to another segment.
pub fn a_callback_may_notify_again(make: Make) {
    const ROUNDS: u64 = 100;
    let owner = script(|owner| {
        let question = owner.export("question", 8);
        owner.meet();
        let answer = owner.open("answer");
        let (asked, counter) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (count, memory) = (counter.clone(), question.memory().clone());
        let last = asked.clone();
        question
            .notifications()
            .set_callback(move |notification| {
                assert_eq!((notification.offset, notification.len), (0, 8));
                let word = memory.load(0, primitive::sync::Ordering::Acquire);
                last.store(word, Ordering::Relaxed);
                count.fetch_add(1, Ordering::Relaxed);
                answer.at::<u64>(0).write_notify(&(word + 1)).expect("a write");
            })
            .expect("it takes notifications");
        owner.meet();
        owner.meet();
        assert_eq!(counter.load(Ordering::Relaxed), ROUNDS);
        assert_eq!(asked.load(Ordering::Relaxed), 2 * ROUNDS);
        assert_eq!(rest(&question), [], "the callback has taken them");
    });
    let user = script(|user| {
        let answer = user.export("answer", 8);
        user.meet();
        let question = user.open("question");
        user.meet();
        for round in 1..=ROUNDS {
            question.at::<u64>(0).write_notify(&(2 * round)).expect("a write");
            let notification = answer.notified().expect("a notification");
            assert_eq!((notification.offset, notification.len), (0, 8));
            assert_eq!(answer.at::<u64>(0).read().expect("a word"), 2 * round + 1);
        }
        user.meet();
    });
    play(make, [owner, user]);
}

/// Notifications of an earlier, longer export may arrive after the new export: they are not delivered
/// out of its bounds, and the writer's host is not dropped for them.
pub fn a_notification_of_an_earlier_export_costs_nothing(make: Make) {
    const ROUNDS: usize = 10;
    let owner = script(|owner| {
        for _ in 0..ROUNDS {
            let long = owner.export("shrinks", 4_000);
            owner.meet();
            next(owner, &long);
            drop(long);
            let short = owner.export("shrinks", 8);
            // Late notifications of the long export arrive here.
            owner.meet();
            owner.linger();
            for notification in rest(&short) {
                assert!(notification.offset + notification.len <= 8, "{notification:?}");
            }
        }
        owner.meet();
        let last = owner.export("last", 8);
        owner.meet();
        next(owner, &last);
    });
    let user = script(|user| {
        for _ in 0..ROUNDS {
            user.meet();
            let segment = user.open("shrinks");
            for _ in 0..200 {
                // Fails once the owner has revoked it.
                let _ = segment.write_notify(3_990, &[1; 10]);
            }
            user.meet();
            let _ = segment.fence();
        }
        user.meet();
        user.meet();
        // The owner has not dropped this host as a violator.
        user.open("last").write_notify(0, &[1]).expect("a write");
    });
    play(make, [owner, user]);
}

/// A wait for a notification ends with [`SegmentError::Revoked`] when the segment ends.
pub fn waiting_ends_with_the_segment(make: Make) {
    let owner = script(|owner| {
        for is_revoked in [false, true] {
            let segment = owner.export("ending", 8);
            let notifications = segment.notifications();
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| notifications.wait());
                owner.linger();
                if is_revoked {
                    segment.revoke().expect("a revocation");
                } else {
                    drop(segment);
                }
                let ended = waiting.join().expect("no panic");
                assert!(matches!(ended, Err(SegmentError::Revoked { .. })), "{ended:?}");
            });
            let after = notifications.try_next();
            assert!(matches!(after, Err(SegmentError::Revoked { .. })), "{after:?}");
        }
    });
    play(make, [owner]);
}
