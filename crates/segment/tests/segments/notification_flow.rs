//! Writers that notify an owner which takes nothing: they keep little, wait, and go on when it takes
//! something, or end when it is gone.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gossamer_segment::{Attached, RemoteSegment, SegmentError};
use transport_api::conformance::Faults;

use crate::common::{Host, bounded, faulty, in_fiber, in_fiber_then, on_each, shm, tcp};

/// The most notifications that a lane holds back for one thread of the owner.
const LIMIT: usize = 1024;
const MANY: usize = 100_000;
const TIMEOUT: Duration = Duration::from_secs(30);

fn poll_until(attached: &Attached, is_over: impl Fn() -> bool) {
    while !is_over() {
        attached.park(Duration::from_millis(1));
    }
}

fn open(host: &Host, name: &str) -> RemoteSegment {
    host.segments.options().timeout(TIMEOUT).open(name).expect("a segment")
}

fn most(faults: &Faults) -> usize {
    faults.most_waiting.load(Ordering::Relaxed)
}

/// What a writer and its owner tell each other.
#[derive(Default)]
struct Steps {
    /// The writer begins: the owner takes nothing from now on.
    is_ready: AtomicBool,
    /// The owner has taken everything.
    is_taken: AtomicBool,
}

/// Sets a flag when it is dropped, so that a failed assertion ends the other side, too.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Exports "notified" at host 1, whose thread polls until the writer is ready, then takes nothing
/// until that waits, and then takes all notifications.
fn sleepy_owner(host: &Host, steps: &Steps, faults: &Faults) {
    let attached = host.segments.attach(0).expect("attached");
    let segment = host.segments.builder("notified").len(64).export().expect("a segment");
    poll_until(&attached, || steps.is_ready.load(Ordering::Acquire));
    while most(faults) < LIMIT {
        thread::yield_now();
    }
    let (notifications, mut count) = (segment.notifications(), 0);
    while count < MANY as u64 {
        attached.poll();
        while let Some(one) = notifications.try_next().expect("a segment") {
            count += one.missed + 1;
        }
    }
    assert_eq!(count, MANY as u64, "more than there were");
    steps.is_taken.store(true, Ordering::Release);
}

/// Runs `write` at host 0 against a sleepy owner at host 1.
fn notify_many(rack: fn(u32, u32) -> Vec<Host>, write: fn(&Host, Arc<Steps>)) {
    bounded(move || {
        let hosts = rack(2, 1);
        let (user, faults) = faulty(&hosts[0]);
        let steps = Arc::new(Steps::default());
        thread::scope(|scope| {
            scope.spawn(|| sleepy_owner(&hosts[1], &steps, &faults));
            write(&user, steps.clone());
        });
        assert_eq!(most(&faults), LIMIT, "held back");
    });
}

#[test]
fn a_thread_that_notifies_an_owner_that_sleeps_keeps_little() {
    for rack in [shm, tcp] {
        notify_many(rack, |user, steps| {
            let attached = user.segments.attach(0).expect("attached");
            let remote = open(user, "notified");
            steps.is_ready.store(true, Ordering::Release);
            for word in 0..MANY {
                remote.at::<u64>(word % 8).write_notify(&7).expect("a write");
            }
            remote.fence().expect("it is there");
            // What is held back moves while this polls.
            poll_until(&attached, || steps.is_taken.load(Ordering::Acquire));
        });
    }
}

#[test]
fn fibers_that_notify_an_owner_that_sleeps_keep_little() {
    const FIBERS: usize = 50;
    for rack in [shm, tcp] {
        notify_many(rack, |user, steps| {
            let there = user.clone();
            in_fiber(user, 0, move || {
                let remote = open(&there, "notified");
                steps.is_ready.store(true, Ordering::Release);
                let writer = || {
                    let remote = remote.clone();
                    fiber::spawn_local(move || {
                        for word in 0..MANY / FIBERS {
                            remote.at::<u64>(word % 8).write_notify(&7).expect("a write");
                        }
                    })
                };
                let fibers: Vec<_> = (0..FIBERS).map(|_| writer()).collect();
                fibers.into_iter().for_each(|fiber| fiber.join().expect("no panic"));
                remote.fence().expect("it is there");
                while !steps.is_taken.load(Ordering::Acquire) {
                    fiber::sleep(Duration::from_millis(1));
                }
            });
        });
    }
}

/// The error of a writer that notifies an owner which never takes anything. Once the writer waits,
/// `end` is called with the owner.
fn ends_with(rack: fn(u32, u32) -> Vec<Host>, end: fn(&Host, gossamer_segment::Segment)) -> String {
    let hosts = rack(2, 1);
    let (user, faults) = faulty(&hosts[0]);
    let (is_ready, is_over) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    thread::scope(|scope| {
        scope.spawn(|| {
            let attached = hosts[1].segments.attach(0).expect("attached");
            let segment =
                hosts[1].segments.builder("notified").len(64).export().expect("a segment");
            poll_until(&attached, || is_ready.load(Ordering::Acquire));
            let is_over = || is_over.load(Ordering::Acquire);
            while most(&faults) < LIMIT && !is_over() {
                thread::yield_now();
            }
            end(&hosts[1], segment);
            while !is_over() {
                thread::yield_now();
            }
        });
        let _ends = Ends(is_over.clone());
        let _attached = user.segments.attach(0).expect("attached");
        let remote = open(&user, "notified");
        is_ready.store(true, Ordering::Release);
        let error = (0..MANY).find_map(|_| remote.at::<u64>(0).write_notify(&7).err());
        let error = error.expect("an error: the owner takes none");
        assert_eq!(most(&faults), LIMIT);
        match error {
            SegmentError::PeerLost(..) => "lost".into(),
            SegmentError::Revoked { .. } => "revoked".into(),
            other => panic!("{other}"),
        }
    })
}

#[test]
fn a_writer_that_waits_ends_with_its_owner() {
    for rack in [shm, tcp] {
        bounded(move || {
            let ended = ends_with(rack, |owner, _segment| owner.transport.leave());
            assert_eq!(ended, "lost");
        });
    }
}

#[test]
fn a_writer_that_waits_ends_with_the_segment() {
    for rack in [shm, tcp] {
        bounded(move || assert_eq!(ends_with(rack, |_, segment| drop(segment)), "revoked"));
    }
}

/// A thread of the owner that takes nothing holds up only those who notify this thread.
#[test]
fn a_thread_that_sleeps_does_not_hold_up_notifications_of_another() {
    for rack in [shm, tcp] {
        bounded(move || {
            let hosts = rack(2, 2);
            let (user, faults) = faulty(&hosts[0]);
            let owner = &hosts[1];
            let (is_ready, is_over) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
            thread::scope(|scope| {
                scope.spawn(|| {
                    let attached = owner.segments.attach(1).expect("attached");
                    let _asleep = owner.segments.builder("asleep").len(64).export().expect("one");
                    poll_until(&attached, || is_ready.load(Ordering::Acquire));
                    while !is_over.load(Ordering::Acquire) {
                        thread::yield_now();
                    }
                });
                scope.spawn(|| {
                    let attached = owner.segments.attach(0).expect("attached");
                    let awake = owner.segments.builder("awake").len(64).export().expect("one");
                    let is_notified = || awake.notifications().try_next().expect("open").is_some();
                    poll_until(&attached, || is_over.load(Ordering::Acquire) || is_notified());
                    is_over.store(true, Ordering::Release);
                });
                let _ends = Ends(is_over.clone());
                let attached = user.segments.attach(0).expect("attached");
                let (asleep, awake) = (open(&user, "asleep"), open(&user, "awake"));
                is_ready.store(true, Ordering::Release);
                while most(&faults) < LIMIT {
                    asleep.at::<u64>(0).write_notify(&7).expect("a write");
                }
                awake.at::<u64>(0).write_notify(&8).expect("a write");
                poll_until(&attached, || is_over.load(Ordering::Acquire));
            });
        });
    }
}

/// What a waiting writer does to learn whether the segment is still there is no operation of its
/// program: its refusal is no error of a later fence. A block is not written before its notification
/// has room.
#[test]
fn a_writer_that_waits_has_written_nothing_that_could_be_refused() {
    bounded(|| {
        let hosts = tcp(2, 2);
        let (user, faults) = faulty(&hosts[0]);
        let (is_ready, is_full) = (AtomicBool::new(false), AtomicBool::new(false));
        let (owner, is_over) = (&hosts[1], Arc::new(AtomicBool::new(false)));
        thread::scope(|scope| {
            let (sender, segment) = std::sync::mpsc::channel();
            let (is_ready, is_full, over) = (&is_ready, &is_full, is_over.clone());
            scope.spawn(move || {
                let attached = owner.segments.attach(0).expect("attached");
                let notified =
                    owner.segments.builder("notified").len(64).export().expect("a segment");
                sender.send(notified).expect("a receiver");
                // It takes nothing from then on.
                poll_until(&attached, || is_ready.load(Ordering::Acquire));
            });
            scope.spawn(move || {
                let attached = owner.segments.attach(1).expect("attached");
                let notified = segment.recv().expect("a segment");
                let is_over = || over.load(Ordering::Acquire);
                poll_until(&attached, || is_full.load(Ordering::Acquire) || is_over());
                for _ in 0..2 {
                    notified.inhibit_writes().expect("quiet");
                    notified.allow_writes().expect("quiet");
                    let end = Instant::now() + Duration::from_millis(500);
                    poll_until(&attached, || Instant::now() >= end);
                }
                let bytes = notified.at::<u64>(1).read().expect("inside");
                drop(notified);
                poll_until(&attached, is_over);
                assert_eq!(bytes, 0, "it was written before the notification had room");
            });
            let ends = Ends(is_over);
            let _attached = user.segments.attach(0).expect("attached");
            let notified = open(&user, "notified");
            is_ready.store(true, Ordering::Release);
            while most(&faults) < LIMIT {
                notified.at::<u64>(0).write_notify(&7).expect("a write");
            }
            notified.fence().expect("all is there");
            is_full.store(true, Ordering::Release);
            let ended = notified.write_block_notify(0, &[8; 64]);
            let fenced = notified.fence();
            drop(ends);
            assert!(matches!(ended, Err(SegmentError::Revoked { .. })), "{ended:?}");
            fenced.expect("no write of the program was refused");
        });
    });
}

/// A callback cannot wait: it gets an error before it has changed anything.
#[test]
fn a_callback_cannot_pile_up_notifications() {
    on_each(2, 1, |hosts| {
        let (owner, faults) = faulty(&hosts[0]);
        let step = AtomicU32::new(0);
        thread::scope(|scope| {
            let (user, step) = (&hosts[1], &step);
            scope.spawn(move || {
                let attached = user.segments.attach(0).expect("attached");
                let peers = user.segments.builder("peers").len(64).export().expect("a segment");
                let remote = open(user, "notified");
                poll_until(&attached, || step.load(Ordering::Acquire) >= 1);
                // It takes nothing from here on.
                while step.load(Ordering::Acquire) < 2 {
                    thread::yield_now();
                }
                remote.at::<u64>(0).write_notify(&1).expect("a write");
                while step.load(Ordering::Acquire) < 3 {
                    thread::yield_now();
                }
                assert_eq!(peers.at::<u64>(1).read().expect("inside"), 0, "an atomic took effect");
            });
            let attached = owner.segments.attach(0).expect("attached");
            let segment = owner.segments.builder("notified").len(64).export().expect("a segment");
            let peers = open(&owner, "peers");
            step.store(1, Ordering::Release);
            while most(&faults) < LIMIT {
                peers.at::<u64>(0).write_notify(&7).expect("a write");
            }
            let (sender, refused) = std::sync::mpsc::channel();
            segment
                .notifications()
                .set_callback(move |_| {
                    let write = peers.at::<u64>(0).write_notify(&8);
                    let block = peers.write_block_notify(0, &[8; 8]);
                    let add = peers.fetch_add_notify(8, 1).map(drop);
                    sender.send([write, block, add]).expect("a receiver");
                })
                .expect("it takes notifications");
            step.store(2, Ordering::Release);
            let refused = loop {
                match refused.try_recv() {
                    Ok(refused) => break refused,
                    Err(_) => attached.park(Duration::from_millis(10)),
                }
            };
            let would_wait = |result: &Result<(), SegmentError>| {
                matches!(result, Err(SegmentError::WouldWait(_)))
            };
            assert!(refused.iter().all(would_wait), "{refused:?}");
            step.store(3, Ordering::Release);
        });
    });
}

/// Outside a fiber, a thread that has fibers cannot wait: a block with more pieces than may be in flight
/// is refused before the first is written.
#[test]
fn a_block_that_would_wait_outside_a_fiber_is_not_written() {
    const LEN: usize = 2 << 20;
    bounded(|| {
        let hosts = tcp(2, 1);
        thread::scope(|scope| {
            let owner = &hosts[1];
            let owner = scope.spawn(move || {
                let _attached = owner.segments.attach(0).expect("attached");
                let segment = owner.segments.builder("blocks").len(LEN).export().expect("one");
                let first = segment.notified().expect("a notification");
                assert_eq!((first.offset, first.len), (LEN - 8, 8), "of a block that was refused");
                let mut bytes = vec![1; LEN - 8];
                segment.read(0, &mut bytes).expect("inside");
                assert!(bytes.iter().all(|byte| *byte == 0), "a part was written");
            });
            let user = hosts[0].segments.clone();
            let opened = move || {
                let options = user.options().timeout(Duration::from_secs(30));
                options.open("blocks").expect("a segment")
            };
            in_fiber_then(&hosts[0], 0, opened, |remote| {
                let block = vec![7; LEN];
                for ended in [remote.write_block(0, &block), remote.write_block_notify(0, &block)] {
                    assert!(matches!(ended, Err(SegmentError::WouldWait(_))), "{ended:?}");
                }
                remote.write_block_notify(LEN - 8, &[7; 8]).expect("it has room");
                owner.join().expect("no panic");
            });
        });
    });
}
