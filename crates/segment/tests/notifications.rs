//! Every way to wait for notifications, over shared memory and TCP.
#![cfg(not(loom))]

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use common::{Host, in_fiber, on_each};
use gossamer_segment::{Notification, Notifications, Segment, SegmentError};
use rustix::event::{PollFd, PollFlags};

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

fn check(segment: &Segment, number: usize, told: Notification) {
    let at = number % 16;
    assert_eq!((told.from.0, told.offset, told.len, told.missed), (1, 8 * at, 8, 0));
    let word = segment.get::<u64>(at).expect("inside");
    assert!(word >= number as u64, "notified of {number}, found {word}");
}

/// Exports a segment at host 0, whose thread 1 serves threads that are not attached, and lets `take`
/// take all its notifications while host 1 writes.
fn owner_takes(hosts: &[Host], take: impl FnOnce(&Host, Segment)) {
    thread::scope(|scope| {
        scope.spawn(|| write_from(&hosts[1], "told", NOTES));
        let _server = hosts[0].segments.serve(1).expect("a server");
        take(&hosts[0], export(&hosts[0], "told"));
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
            scope.spawn(|| write_from(&hosts[1], "told", NOTES));
            let _attached = hosts[0].segments.attach(0).expect("attached");
            let segment = export(&hosts[0], "told");
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
            scope.spawn(|| write_from(&hosts[1], "told", NOTES));
            let owner = hosts[0].clone();
            in_fiber(&hosts[0], 0, move || {
                let segment = Rc::new(export(&owner, "told"));
                let taken = Rc::new(Cell::new(0));
                // Two fibers whose waits time out again and again.
                let fibers = [200, 7000].map(|micros| {
                    let (segment, taken) = (segment.clone(), taken.clone());
                    fiber::spawn_local(move || {
                        while taken.get() < NOTES {
                            let told = segment.notified_timeout(Duration::from_micros(micros));
                            if let Some(told) = told.expect("a segment") {
                                taken.set(taken.get() + 1);
                                check(&segment, taken.get(), told);
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
            let told = move |told| sender.send(told).expect("a receiver");
            segment.notifications().for_each(told);
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
                while let Some(told) = notifications.try_next().expect("a segment") {
                    number += 1;
                    check(&segment, number, told);
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
                    let Ok(told) = tokio::time::timeout(Duration::from_micros(300), next).await
                    else {
                        continue;
                    };
                    number += 1;
                    check(&segment, number, told.expect("a notification"));
                }
                let ends = tokio::spawn(segment.notifications().next());
                tokio::task::yield_now().await;
                drop(segment);
                let ended = ends.await.expect("no panic");
                assert!(matches!(ended, Err(SegmentError::Revoked(_))), "{ended:?}");
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
                        while let Ok(told) = notifications.wait() {
                            taken.lock().unwrap().push(told.offset / 8);
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
        let segment = export(&hosts[0], "told");
        let waiting = Arc::new(Mutex::new(0));
        thread::scope(|scope| {
            let there = waiting.clone();
            let wait = move |notifications: Notifications| {
                *there.lock().unwrap() += 1;
                let ended = notifications.wait();
                assert!(matches!(ended, Err(SegmentError::Revoked(_))), "{ended:?}");
                let ended = notifications.try_next();
                assert!(matches!(ended, Err(SegmentError::Revoked(_))), "{ended:?}");
            };
            let (plain, parked) = (segment.notifications(), segment.notifications());
            scope.spawn(move || wait(plain));
            let (host, there) = (hosts[0].clone(), waiting.clone());
            scope.spawn(move || {
                in_fiber(&host, 0, move || {
                    *there.lock().unwrap() += 1;
                    let ended = parked.wait_timeout(Duration::from_secs(3600));
                    assert!(matches!(ended, Err(SegmentError::Revoked(_))), "{ended:?}");
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
        let segment = export(&hosts[0], "told");
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

/// Two owners answer each other's notifications in callbacks; at the end one drops its segment in its
/// callback.
#[test]
fn callbacks_use_segments_and_drop_their_own() {
    const ROUNDS: u64 = 200;
    on_each(2, 1, |hosts| {
        let is_over = AtomicBool::new(false);
        let (sender, received) = mpsc::channel();
        thread::scope(|scope| {
            for (me, host) in hosts.iter().enumerate() {
                let (sender, is_over) = (sender.clone(), &is_over);
                scope.spawn(move || {
                    let attached = host.segments.attach(0).expect("attached");
                    let names = ["ping", "pong"];
                    let own = Arc::new(Mutex::new(Some(export(host, names[me]))));
                    let others = names[1 - me];
                    let other = host.segments.options().timeout(Duration::from_secs(30));
                    let other = other.open(others).expect("the segment of the peer");
                    let notifications =
                        own.lock().unwrap().as_ref().expect("a segment").notifications();
                    if me == 0 {
                        other.at::<u64>(0).write_notify(&1).expect("a write");
                    }
                    notifications.for_each(move |told| {
                        assert_eq!((told.offset, told.len), (0, 8));
                        let mut own = own.lock().unwrap();
                        let Some(segment) = &*own else { return };
                        let word = segment.get::<u64>(0).expect("a word");
                        if word < ROUNDS {
                            other.at::<u64>(0).write_notify(&(word + 1)).expect("a write");
                        } else {
                            // Drops the segment and, with it, this callback.
                            *own = None;
                            sender.send(word).expect("a receiver");
                        }
                    });
                    while !is_over.load(Ordering::Relaxed) {
                        attached.park(Duration::from_millis(10));
                    }
                });
            }
            drop(sender);
            assert_eq!(received.recv(), Ok(ROUNDS));
            is_over.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_callback_that_waits_panics_and_is_dropped() {
    on_each(2, 1, |hosts| {
        thread::scope(|scope| {
            let (ready, is_ready) = mpsc::channel();
            let (done, is_done) = mpsc::channel::<()>();
            scope.spawn(move || {
                let attached = hosts[1].segments.attach(0).expect("attached");
                let _peers = hosts[1].segments.builder("peers").len(8).export().expect("one");
                let told = hosts[1].segments.options().timeout(Duration::from_secs(30));
                let told = told.open("told").expect("a segment");
                is_ready.recv().unwrap();
                for word in [1, 2] {
                    told.at::<u64>(0).write_notify(&word).expect("a write");
                }
                while is_done.try_recv().is_err() {
                    attached.park(Duration::from_millis(1));
                }
            });
            let _attached = hosts[0].segments.attach(0).expect("attached");
            let segment = export(&hosts[0], "told");
            let peers = hosts[0].segments.options().timeout(Duration::from_secs(30));
            let peers = peers.open("peers").expect("a segment");
            let (sender, received) = mpsc::channel();
            segment.notifications().for_each(move |told| {
                sender.send(told).expect("a receiver");
                let _ = peers.fence();
            });
            ready.send(()).unwrap();
            let second = segment.notified().expect("a notification");
            assert_eq!((second.offset, second.missed), (0, 0));
            assert_eq!(received.iter().count(), 1, "the callback was dropped");
            done.send(()).unwrap();
        });
    });
}

/// A callback writes to a host that does not poll: writes fail before many are buffered.
#[test]
fn writes_of_a_callback_are_bounded() {
    common::bounded(|| {
        let hosts = common::tcp(2, 1);
        thread::scope(|scope| {
            let (written, is_written) = mpsc::channel();
            let (done, is_done) = mpsc::channel::<()>();
            let (user, owner) = (&hosts[1], &hosts[0]);
            scope.spawn(move || {
                let attached = user.segments.attach(0).expect("attached");
                let _peers = user.segments.builder("peers").len(64 << 10).export().expect("one");
                let told = user.segments.options().timeout(Duration::from_secs(30));
                let told = told.open("told").expect("a segment");
                told.at::<u64>(0).write_notify(&1).expect("a write");
                // This host does not poll until then.
                is_done.recv().unwrap();
                attached.poll();
            });
            let attached = owner.segments.attach(0).expect("attached");
            let segment = export(owner, "told");
            let peers = owner.segments.options().timeout(Duration::from_secs(30));
            let peers = peers.open("peers").expect("a segment");
            segment.notifications().for_each(move |_| {
                let bytes = vec![7; 64 << 10];
                let refused = (0..100).find_map(|_| peers.write(0, &bytes).err());
                written.send(refused).expect("a receiver");
            });
            let refused = loop {
                match is_written.try_recv() {
                    Ok(refused) => break refused,
                    Err(_) => attached.park(Duration::from_millis(10)),
                }
            };
            assert!(matches!(refused, Some(SegmentError::WouldWait(_))), "{refused:?}");
            done.send(()).unwrap();
        });
    });
}
