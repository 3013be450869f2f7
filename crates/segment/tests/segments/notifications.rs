//! Every way to wait for notifications, over shared memory and TCP.
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use gossamer_segment::{Notification, Notifications, Segment, SegmentError, Strategy};
use rustix::event::{PollFd, PollFlags};

use crate::common::{self, Host, in_fiber, on_each};

/// Notifications of a round, fewer than the queue holds.
const NOTES: usize = 300;

/// Exports a segment of 16 words.
fn export(owner: &Host, name: &str) -> Segment {
    owner.segments.builder(name).len(128).export().expect("a segment")
}

/// Writes the words 1, 2, ... with notifications from host 1, with a pause now and then, so that the
/// owner sleeps.
fn write_from(user: &Host, name: &str, words: usize) {
    let _attached = user.segments.attach(0).expect("attached");
    let remote = user.segments.options().timeout(Duration::from_secs(30)).open(name);
    let remote = remote.expect("a segment");
    for word in 1..=words as u64 {
        if word % 100 == 1 {
            thread::sleep(Duration::from_millis(20));
        }
        remote.at::<u64>(word as usize % 16).write_notify(&word).expect("a write");
    }
    remote.fence().expect("all have arrived");
}

fn check(segment: &Segment, number: usize, notification: Notification) {
    let at = number % 16;
    assert_eq!(
        (notification.from.0, notification.offset, notification.len, notification.missed),
        (1, 8 * at, 8, 0)
    );
    let word = segment.at::<u64>(at).read().expect("inside");
    assert!(word >= number as u64, "notified of {number}, found {word}");
}

/// Exports a segment at host 0, whose thread 1 serves threads that are not attached, and lets `take`
/// take all its notifications while host 1 writes.
fn owner_takes(hosts: &[Host], take: impl FnOnce(&Host, Segment)) {
    thread::scope(|scope| {
        scope.spawn(|| write_from(&hosts[1], "notified", NOTES));
        let _server = hosts[0].segments.serve(1).expect("a server");
        take(&hosts[0], export(&hosts[0], "notified"));
    });
}

#[test]
fn a_thread_that_is_not_attached_waits() {
    on_each(2, 2, |hosts| {
        owner_takes(hosts, |_, segment| {
            for number in 1..=NOTES {
                check(&segment, number, segment.notified().expect("a notification"));
            }
            let none = segment.notified_timeout(Duration::from_millis(5));
            assert_eq!(none.expect("a segment"), None);
        });
    });
}

/// Notifications that are at hand are taken without a poll, but not for ever: here they never end, and
/// another host's lookup needs a poll.
#[test]
fn notifications_that_keep_coming_do_not_keep_others_waiting() {
    let hosts = &common::shm(2, 1)[..];
    thread::scope(|scope| {
        let _attached = hosts[0].segments.attach(0).expect("attached");
        let segment = export(&hosts[0], "notified");
        let own = hosts[0].segments.open("notified").expect("a segment");
        let asker = scope.spawn(|| {
            let _attached = hosts[1].segments.attach(0).expect("attached");
            let asked = hosts[1].segments.options().uncached().strategy(Strategy::Ask);
            (0..20).try_for_each(|_| asked.lookup("notified").map(drop))
        });
        let notifications = segment.notifications();
        while !asker.is_finished() {
            own.at::<u64>(1).write_notify(&7).expect("a write");
            let taken = notifications.try_next().expect("a segment");
            assert_eq!(taken.map(|taken| (taken.offset, taken.len)), Some((8, 8)));
        }
        asker.join().expect("no panic").expect("answers");
    });
}

/// Past the queue, if a look at the same segment brings it; through the queue, if a look at another one
/// does, or if several come at once. They keep their order.
#[test]
fn the_thread_that_they_arrive_at_takes_them_as_it_looks() {
    on_each(2, 1, |hosts| {
        thread::scope(|scope| {
            scope.spawn(|| write_from(&hosts[1], "notified", NOTES));
            let _attached = hosts[0].segments.attach(0).expect("attached");
            let (segment, other) = (export(&hosts[0], "notified"), export(&hosts[0], "other"));
            let (notifications, others) = (segment.notifications(), other.notifications());
            let next = |from: &Notifications| from.try_next().expect("a segment");
            for number in 1..=NOTES {
                let notification = loop {
                    if let Some(notification) = next(&notifications) {
                        break notification;
                    }
                    if number % 3 == 0 {
                        assert_eq!(next(&others), None);
                    }
                };
                check(&segment, number, notification);
            }
            assert_eq!(next(&notifications), None);
        });
    });
}

#[test]
fn an_attached_thread_waits_while_another_one_polls() {
    on_each(2, 2, |hosts| {
        owner_takes(hosts, |owner, segment| {
            let _attached = owner.segments.attach(0).expect("attached");
            for number in 1..=NOTES {
                check(&segment, number, segment.notified().expect("a notification"));
            }
        });
    });
}

#[test]
fn an_attached_thread_polls_while_it_waits() {
    on_each(2, 1, |hosts| {
        thread::scope(|scope| {
            scope.spawn(|| write_from(&hosts[1], "notified", NOTES));
            let _attached = hosts[0].segments.attach(0).expect("attached");
            let segment = export(&hosts[0], "notified");
            for number in 1..=NOTES {
                check(&segment, number, segment.notified().expect("a notification"));
            }
            let none = segment.notified_timeout(Duration::from_millis(5));
            assert_eq!(none.expect("a segment"), None);
        });
    });
}

#[test]
fn fibers_wait() {
    on_each(2, 1, |hosts| {
        thread::scope(|scope| {
            scope.spawn(|| write_from(&hosts[1], "notified", NOTES));
            let owner = hosts[0].clone();
            in_fiber(&hosts[0], 0, move || {
                let segment = Rc::new(export(&owner, "notified"));
                let taken = Rc::new(Cell::new(0));
                // Two fibers whose waits time out again and again.
                let fibers = [200, 7000].map(|micros| {
                    let (segment, taken) = (segment.clone(), taken.clone());
                    fiber::spawn_local(move || {
                        while taken.get() < NOTES {
                            let notification =
                                segment.notified_timeout(Duration::from_micros(micros));
                            if let Some(notification) = notification.expect("a segment") {
                                taken.set(taken.get() + 1);
                                check(&segment, taken.get(), notification);
                            }
                        }
                    })
                });
                fibers.into_iter().for_each(|fiber| fiber.join().expect("no panic"));
                let none = segment.notified_timeout(Duration::from_millis(5));
                assert_eq!(none.expect("a segment"), None);
            });
        });
    });
}

#[test]
fn a_callback_takes_notifications() {
    on_each(2, 2, |hosts| {
        owner_takes(hosts, |_, segment| {
            let (sender, received) = mpsc::channel();
            let send = move |notification| sender.send(notification).expect("a receiver");
            segment.notifications().set_callback(send).expect("it takes notifications");
            for number in 1..=NOTES {
                check(&segment, number, received.recv().expect("a notification"));
            }
        });
    });
}

#[test]
fn the_file_descriptor_is_readable() {
    on_each(2, 2, |hosts| {
        owner_takes(hosts, |_, segment| {
            let notifications = segment.notifications();
            let mut number = 0;
            while number < NOTES {
                rustix::event::poll(&mut [PollFd::new(&notifications, PollFlags::IN)], None)
                    .expect("a poll");
                while let Some(notification) = notifications.try_next().expect("a segment") {
                    number += 1;
                    check(&segment, number, notification);
                }
            }
        });
    });
}

#[test]
fn a_task_of_tokio_waits() {
    on_each(2, 2, |hosts| {
        owner_takes(hosts, |_, segment| {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_time()
                .build()
                .expect("a runtime");
            let notifications = segment.notifications();
            runtime.block_on(async move {
                let mut number = 0;
                while number < NOTES {
                    let next = notifications.next();
                    // A cancelled wait loses no notification.
                    let Ok(notification) =
                        tokio::time::timeout(Duration::from_micros(300), next).await
                    else {
                        continue;
                    };
                    number += 1;
                    check(&segment, number, notification.expect("a notification"));
                }
                let ends = tokio::spawn(segment.notifications().next());
                tokio::task::yield_now().await;
                drop(segment);
                let ended = ends.await.expect("no panic");
                assert!(matches!(ended, Err(SegmentError::Revoked { .. })), "{ended:?}");
            });
        });
    });
}

#[test]
fn each_notification_goes_to_one_of_several_waiters() {
    on_each(2, 2, |hosts| {
        owner_takes(hosts, |_, segment| {
            let taken = Mutex::new(Vec::new());
            thread::scope(|scope| {
                for _ in 0..3 {
                    let (taken, notifications) = (&taken, segment.notifications());
                    scope.spawn(move || {
                        while let Ok(notification) = notifications.wait() {
                            taken.lock().unwrap().push(notification.offset / 8);
                        }
                    });
                }
                while taken.lock().unwrap().len() < NOTES {
                    thread::yield_now();
                }
                segment.revoke().expect("revoked");
            });
            let mut taken = taken.into_inner().unwrap();
            let mut expected: Vec<_> = (1..=NOTES).map(|number| number % 16).collect();
            taken.sort();
            expected.sort();
            assert_eq!(taken, expected, "each is taken once");
        });
    });
}

#[test]
fn the_end_of_the_segment_wakes_all_waiters() {
    on_each(1, 2, |hosts| {
        let _server = hosts[0].segments.serve(1).expect("a server");
        let segment = export(&hosts[0], "notified");
        let waiting = Arc::new(Mutex::new(0));
        thread::scope(|scope| {
            let there = waiting.clone();
            let wait = move |notifications: Notifications| {
                *there.lock().unwrap() += 1;
                let ended = notifications.wait();
                assert!(matches!(ended, Err(SegmentError::Revoked { .. })), "{ended:?}");
                let ended = notifications.try_next();
                assert!(matches!(ended, Err(SegmentError::Revoked { .. })), "{ended:?}");
            };
            let (plain, parked) = (segment.notifications(), segment.notifications());
            scope.spawn(move || wait(plain));
            let (host, there) = (hosts[0].clone(), waiting.clone());
            scope.spawn(move || {
                in_fiber(&host, 0, move || {
                    *there.lock().unwrap() += 1;
                    let ended = parked.wait_timeout(Duration::from_secs(3600));
                    assert!(matches!(ended, Err(SegmentError::Revoked { .. })), "{ended:?}");
                });
            });
            while *waiting.lock().unwrap() < 2 {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(20));
            drop(segment);
        });
    });
}

#[test]
fn the_end_of_the_rack_wakes_threads_that_are_not_attached() {
    on_each(1, 1, |hosts| {
        let server = hosts[0].segments.serve(0).expect("a server");
        let segment = export(&hosts[0], "notified");
        let notifications = segment.notifications();
        thread::scope(|scope| {
            scope.spawn(|| {
                let ended = notifications.wait();
                assert!(matches!(ended, Err(SegmentError::RackEnded)), "{ended:?}");
            });
            thread::sleep(Duration::from_millis(20));
            drop(server);
        });
        let mut file = [PollFd::new(&notifications, PollFlags::IN)];
        rustix::event::poll(&mut file, None).expect("a poll");
        assert!(matches!(notifications.try_next(), Err(SegmentError::RackEnded)));
    });
}
