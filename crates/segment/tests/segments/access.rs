//! An owner changes what hosts may do to a segment while they use it, over shared memory and TCP.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gossamer_segment::{
    Access, Attached, HostId, RemoteSegment, Rights, Segment, SegmentError, Segments,
};
use transport_shm::ShmTransport;

use crate::common::{Host, bounded, faulty, in_fiber, in_fiber_then, on_each, tcp};

fn export(host: &Host, len: usize) -> Segment {
    host.segments.builder("shared").len(len).export().expect("a segment")
}

fn open(segments: &Segments) -> RemoteSegment {
    let options = segments.options().timeout(Duration::from_secs(30));
    options.open("shared").expect("a segment")
}

/// Polls until `is_over`, as an attached thread must.
fn poll_until(attached: &Attached, is_over: impl Fn() -> bool) {
    while !is_over() {
        attached.park(Duration::from_millis(1));
    }
}

fn is_refused(error: &SegmentError) -> bool {
    matches!(error, SegmentError::Rights { .. } | SegmentError::AccessChanged(_))
}

#[test]
fn no_host_gets_more_than_at_the_export() {
    on_each(2, 1, |hosts| {
        let _attached = hosts[0].segments.attach(0).expect("attached");
        let at_first = Access::read().write_for([HostId(1)]);
        let builder = hosts[0].segments.builder("shared").len(64).access(at_first.clone());
        let segment = builder.export().expect("a segment");
        let refused = segment.set_access(Access::read().write_for([HostId(0)]));
        let Err(SegmentError::Broader { host, asked, allowed, .. }) = &refused else {
            panic!("{refused:?}");
        };
        let both = Rights::READ | Rights::WRITE;
        assert_eq!((*host, *asked, *allowed), (HostId(0), both, Rights::READ));
        assert_eq!(segment.access(), at_first, "nothing has changed");
        segment.set_access(Rights::READ).expect("less");
        segment.set_access(at_first.clone()).expect("what it was");
        assert_eq!(segment.access(), at_first);
        // Rights granted while writes are inhibited take effect when writes are allowed again.
        segment.inhibit_writes().expect("inhibited");
        segment.set_access(Access::none().with(HostId(1), both)).expect("less");
        assert_eq!(segment.access(), Access::none().with(HostId(1), Rights::READ));
        segment.allow_writes().expect("allowed");
        assert_eq!(segment.access(), Access::none().with(HostId(1), both));
    });
}

#[test]
fn hosts_lose_rights_and_get_them_back() {
    on_each(2, 1, |hosts| {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let is_over = &is_over;
            scope.spawn(move || {
                let attached = hosts[1].segments.attach(0).expect("attached");
                let remote = open(&hosts[1].segments);
                // Both sides poll meanwhile, as they would not at a barrier.
                let next = |round: u64| {
                    poll_until(&attached, || {
                        remote.at::<u64>(1).read().is_ok_and(|now| now >= round)
                    });
                };
                next(1);
                let refused = remote.fetch_add(0, 1);
                assert!(matches!(refused, Err(SegmentError::Rights { has: Rights::READ, .. })));
                let refused = remote.write(0, &[1]);
                assert!(matches!(refused, Err(SegmentError::Rights { has: Rights::READ, .. })));
                is_over.store(true, Ordering::Relaxed);
                next(2);
                assert_eq!(remote.fetch_add(0, 5).expect("allowed"), 0);
                remote.fence().expect("nothing is lost");
                is_over.store(true, Ordering::Relaxed);
                poll_until(&attached, || {
                    matches!(
                        remote.at::<u64>(1).read(),
                        Err(SegmentError::Rights { has: Rights::NONE, .. })
                    )
                });
                is_over.store(true, Ordering::Relaxed);
                poll_until(&attached, || {
                    matches!(remote.at::<u64>(1).read(), Err(SegmentError::Revoked { .. }))
                });
                is_over.store(true, Ordering::Relaxed);
            });
            let attached = hosts[0].segments.attach(0).expect("attached");
            let segment = export(&hosts[0], 64);
            let answered = || poll_until(&attached, || is_over.swap(false, Ordering::Relaxed));
            segment.set_access(Rights::READ).expect("changed");
            segment.at(1).write(&1u64).expect("inside");
            answered();
            segment.set_access(Rights::ALL).expect("changed");
            segment.at(1).write(&2u64).expect("inside");
            answered();
            assert_eq!(segment.at::<u64>(0).read().expect("inside"), 5);
            segment.set_access(Access::none()).expect("changed");
            answered();
            segment.revoke().expect("revoked");
            answered();
        });
    });
}

/// Several threads change the access at once: the last change counts, at the owner and at an importer.
#[test]
fn many_change_the_access_at_once() {
    on_each(2, 2, |hosts| {
        let _server = hosts[0].segments.serve(1).expect("a server");
        let segment = export(&hosts[0], 64);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let user = scope.spawn(|| {
                let attached = hosts[1].segments.attach(0).expect("attached");
                let remote = open(&hosts[1].segments);
                while !is_over.load(Ordering::Relaxed) {
                    match remote.at::<u64>(0).write(&1).and_then(|()| remote.fence()) {
                        Ok(()) => {}
                        Err(error) => assert!(is_refused(&error), "{error}"),
                    }
                    attached.poll();
                }
                // The first write may have started before this host imported the last change.
                let last = || remote.at::<u64>(0).write(&1).and_then(|()| remote.fence());
                let _ = last();
                let has = last();
                assert!(matches!(has, Err(SegmentError::Rights { .. })), "{has:?}");
            });
            let changers: Vec<_> = (0..3)
                .map(|number| {
                    let segment = &segment;
                    scope.spawn(move || {
                        for round in 0..20 {
                            match (round + number) % 3 {
                                0 => segment.set_access(Rights::READ),
                                1 => segment.set_access(Rights::ALL),
                                _ => segment.set_access(Rights::READ | Rights::WRITE),
                            }
                            .expect("a change");
                        }
                    })
                })
                .collect();
            changers.into_iter().for_each(|changer| changer.join().expect("no panic"));
            segment.set_access(Rights::READ).expect("a change");
            assert_eq!(segment.access(), Access::read());
            is_over.store(true, Ordering::Relaxed);
            user.join().expect("no panic");
        });
    });
}

#[test]
fn fibers_of_one_thread_change_it_in_turn() {
    on_each(1, 1, |hosts| {
        let host = hosts[0].clone();
        in_fiber(&hosts[0], 0, move || {
            let segment = std::rc::Rc::new(export(&host, 64));
            let fibers: Vec<_> = (0..8)
                .map(|number| {
                    let segment = segment.clone();
                    fiber::spawn_local(move || {
                        for _ in 0..5 {
                            let rights = if number % 2 == 0 { Rights::READ } else { Rights::ALL };
                            segment.set_access(rights).expect("a change");
                        }
                    })
                })
                .collect();
            fibers.into_iter().for_each(|fiber| fiber.join().expect("no panic"));
            segment.set_access(Rights::WRITE).expect("a change");
            let remote = open(&host.segments);
            assert!(remote.at::<u64>(0).read().is_err());
            remote.at::<u64>(0).write(&3).expect("a write");
            remote.fence().expect("there");
            assert_eq!(segment.at::<u64>(0).read().expect("inside"), 3);
        });
    });
}

#[test]
fn a_change_that_fails_says_so_and_can_be_repeated() {
    on_each(1, 1, |hosts| {
        let (host, faults) = faulty(&hosts[0]);
        let fails = faults.no_reexport;
        let _attached = host.segments.attach(0).expect("attached");
        let segment = export(&host, 64);
        let remote = open(&host.segments);
        remote.at::<u64>(0).write(&7).expect("a write");
        fails.store(true, Ordering::Relaxed);
        let failed = segment.set_access(Rights::READ).expect_err("it fails");
        assert!(matches!(failed, SegmentError::NotExported { .. }), "{failed:?}");
        assert_eq!(
            failed.to_string(),
            "segment \"shared\" of host 0 is not exported: no host can use it until its access is \
             changed again"
        );
        assert_eq!(segment.access(), Access::none(), "no host may do anything");
        let again = segment.inhibit_writes().expect_err("it fails again");
        assert!(matches!(again, SegmentError::NotExported { .. }), "{again:?}");
        assert!(!segment.is_write_inhibited(), "it has not changed");
        fails.store(false, Ordering::Relaxed);
        segment.set_access(Rights::READ).expect("a change");
        assert_eq!(segment.access(), Access::read());
        assert_eq!(remote.at::<u64>(0).read().expect("a read"), 7);
        fails.store(true, Ordering::Relaxed);
        segment.set_access(Rights::ALL).expect_err("it fails");
        // The name stays taken until the segment is revoked.
        let taken = host.segments.builder("shared").len(8).export();
        assert!(matches!(taken, Err(SegmentError::NameTaken(_))));
        segment.revoke().expect("nothing to do");
        host.segments.builder("shared").len(8).export().expect("a new segment");
        let gone = remote.at::<u64>(0).read();
        assert!(matches!(gone, Err(SegmentError::Revoked { .. })), "{gone:?}");
    });
}

/// Layers above call these where nothing may wait, such as outside the fibers of a thread that has some.
#[test]
fn an_operation_that_only_tries_does_not_wait_for_a_change() {
    type Try = fn(&RemoteSegment) -> Result<bool, SegmentError>;
    const TRIES: [Try; 2] =
        [|remote| remote.try_signal(0, 7, true), |remote| remote.try_write_notify(0, &[7; 8])];
    on_each(1, 1, |hosts| {
        let (host, faults) = faulty(&hosts[0]);
        let there = host.clone();
        let withdraw = move || {
            let segment = export(&there, 64);
            let remote = open(&there.segments);
            faults.no_reexport.store(true, Ordering::Relaxed);
            // The name stays published, so an operation waits for the next export.
            segment.set_access(Rights::READ).expect_err("it is revoked only");
            (segment, remote, faults)
        };
        in_fiber_then(&host, 0, withdraw, |(segment, remote, faults)| {
            for attempt in TRIES {
                let refused = attempt(&remote);
                assert!(matches!(refused, Err(SegmentError::Revoked { .. })), "{refused:?}");
            }
            drop((segment, faults));
        });
    });
}

/// Nor does it ask whether the owner still publishes a segment that refused an earlier operation.
#[test]
fn an_operation_that_only_tries_asks_no_owner() {
    bounded(|| {
        let hosts = tcp(2, 1);
        let _server = hosts[0].segments.serve(0).expect("a server");
        let segment = export(&hosts[0], 64);
        let user = hosts[1].clone();
        let refused = move || {
            let remote = open(&user.segments);
            segment.revoke().expect("a revocation");
            remote.write(0, &[7; 8]).expect("the owner refuses it later");
            remote.fence().expect_err("it is revoked");
            remote
        };
        in_fiber_then(&hosts[1], 0, refused, |remote| {
            assert!(remote.try_signal(0, 7, true).expect("the owner refuses it later"));
            assert!(remote.try_write_notify(0, &[7; 8]).expect("the owner refuses it later"));
        });
    });
}

/// Kibibytes that this process has pinned. No other test of this program pins any.
fn pinned() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("a line");
    line.trim_end_matches("kB").trim().parse().expect("a number")
}

#[test]
fn pages_are_pinned_and_unpinned() {
    on_each(1, 1, |hosts| {
        let _attached = hosts[0].segments.attach(0).expect("attached");
        let before = pinned();
        let builder = hosts[0].segments.builder("shared").len(64 << 10).pin(true);
        let segment = builder.export().expect("`ulimit -l` of 64 KiB or more");
        assert!(pinned() >= before + 64, "{before} kB before, {} kB pinned", pinned());
        segment.pin().expect("once more");
        segment.unpin().expect("pinned before");
        assert_eq!(pinned(), before);
    });
}

/// In a callback, where nothing may wait, a change panics before it withdraws anything: a revocation
/// whose end no thread waits for would later count as quiet.
#[test]
fn a_change_where_nothing_may_wait_changes_nothing() {
    bounded(change_in_a_callback);
}

fn change_in_a_callback() {
    let hosts = ShmTransport::in_process(1, 1).expect("a rack");
    let segments = Segments::new(hosts[0].clone());
    let attached = segments.attach(0).expect("attached");
    let segment = Arc::new(segments.builder("kept").len(64).export().expect("a segment"));
    let (said, results) = std::sync::mpsc::channel();
    let in_callback = Arc::downgrade(&segment);
    segment
        .notifications()
        .set_callback(move |_| {
            let segment = in_callback.upgrade().expect("it is there");
            let change = || segment.inhibit_writes();
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(change)).is_err();
            said.send((panicked, segment.access())).expect("the test waits");
        })
        .expect("it takes notifications");
    let before = segment.access();
    segments.open("kept").expect("opened").at::<u64>(0).write_notify(&1).expect("a write");
    let (panicked, after) = loop {
        attached.poll();
        if let Ok(result) = results.try_recv() {
            break result;
        }
    };
    assert!(panicked && after == before, "{after:?}");
}
