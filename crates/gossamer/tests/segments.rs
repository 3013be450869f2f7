//! Segments in racks of every kind: exported and opened by fibers, used by threads outside the rack,
//! and what becomes of those that wait when the rack ends.

mod common;

use std::sync::mpsc;
use std::thread;

use common::{KINDS, Kind, panic_in, run, wait_until, within_deadline};
use gossamer::segment::Name;
use gossamer::{Access, HostId, Notify, RemoteSegment, Rights, Segment, SegmentError, spawn_on};

/// Kinds with two hosts.
fn pairs() -> impl Iterator<Item = Kind> {
    KINDS.into_iter().filter(|kind| *kind != Kind::Threads)
}

#[test]
fn fibers_of_every_thread_share_a_segment() {
    within_deadline("fibers_of_every_thread_share_a_segment", || {
        for kind in KINDS {
            run(kind, || {
                let owner = Segment::builder("sums").len(4096).export().unwrap();
                let add = || {
                    let me = gossamer::local_trustee().trustee().number() as usize;
                    let sums = RemoteSegment::open("sums").unwrap();
                    sums.at::<u64>(me).write(&(me as u64 + 1)).unwrap();
                    (0..10).for_each(|_| assert!(sums.fetch_add(1024, 1).is_ok()));
                    sums.fence().unwrap();
                    sums.at::<u64>(me).read().unwrap()
                };
                let fibers: Vec<_> = gossamer::threads().map(|t| spawn_on(t, add)).collect();
                let count = fibers.len() as u64;
                for (number, fiber) in fibers.into_iter().enumerate() {
                    assert_eq!(fiber.join().unwrap(), number as u64 + 1);
                    assert_eq!(owner.get::<u64>(number).unwrap(), number as u64 + 1);
                }
                assert_eq!(owner.get::<u64>(128).unwrap(), 10 * count);
                owner.revoke().unwrap();
                let gone = RemoteSegment::open("sums");
                assert!(matches!(gone, Err(SegmentError::NotFound { .. })), "{gone:?}");
            })
            .unwrap_or_else(|error| panic!("{kind:?}: {error:?}"));
        }
    });
}

#[test]
fn access_is_by_host_and_notifications_park_the_fiber() {
    within_deadline("access_is_by_host_and_notifications_park_the_fiber", || {
        for kind in pairs() {
            run(kind, || {
                let owner = Segment::builder("prices")
                    .len(64 << 10)
                    .access(Access::read().write_for([HostId(1)]))
                    .notify(Notify::Conditional)
                    .export()
                    .unwrap();
                let here = RemoteSegment::open_at(HostId(0), "prices").unwrap();
                assert_eq!(here.rights(), Rights::READ);
                let refused = here.write(0, &[1]).unwrap_err();
                assert!(matches!(refused, SegmentError::Rights { .. }), "{refused}");
                let far = gossamer::threads().last().unwrap();
                let writer = spawn_on(far, || {
                    let prices = RemoteSegment::open("prices").unwrap();
                    prices.at::<u64>(8).write(&7).unwrap();
                    prices.at::<u64>(9).write_notify(&8).unwrap();
                    prices.fence().unwrap();
                });
                let told = owner.notified().unwrap();
                assert_eq!((told.from, told.offset, told.len), (HostId(1), 72, 8));
                assert_eq!((owner.get::<u64>(8).unwrap(), owner.get::<u64>(9).unwrap()), (7, 8));
                writer.join().unwrap();
            })
            .unwrap_or_else(|error| panic!("{kind:?}: {error:?}"));
        }
    });
}

#[test]
fn threads_outside_the_rack_use_segments_in_order() {
    within_deadline("threads_outside_the_rack_use_segments_in_order", || {
        for kind in KINDS {
            run(kind, || {
                let far = gossamer::threads().last().unwrap();
                let (export, word) = (|| Segment::builder("far").len(4096).export().unwrap(), 3);
                let owner = far.entrust_with(move |()| export(), ());
                let segments = gossamer::segments();
                let outside = thread::spawn(move || {
                    let near = segments.builder("near").len(64).export().unwrap();
                    near.put(0, &1u64).unwrap();
                    let far = segments.open("far").unwrap();
                    // The last of the writes is what stays.
                    (0..=1000u64).for_each(|n| far.at::<u64>(word).write(&n).unwrap());
                    far.fence().unwrap();
                    assert_eq!(segments.open("near").unwrap().at::<u64>(0).read().unwrap(), 1);
                    far.fetch_add(24, 5).unwrap()
                });
                wait_until("the thread", || outside.is_finished());
                assert_eq!(outside.join().unwrap(), 1000);
                assert_eq!(owner.apply(|owner| owner.get::<u64>(3).unwrap()), 1005);
            })
            .unwrap_or_else(|error| panic!("{kind:?}: {error:?}"));
        }
    });
}

#[test]
fn what_waits_ends_with_the_rack() {
    within_deadline("what_waits_ends_with_the_rack", || {
        for kind in KINDS {
            let (send, ended) = mpsc::channel();
            let (segments, outside) = run(kind, move || {
                let segments = gossamer::segments();
                let (begun, is_begun) = mpsc::channel();
                let inside = send.clone();
                drop(gossamer::spawn(move || {
                    struct Unwound(mpsc::Sender<&'static str>);
                    impl Drop for Unwound {
                        fn drop(&mut self) {
                            let _ = self.0.send("the fiber");
                        }
                    }
                    let _unwound = Unwound(inside);
                    let owner = Segment::builder("never").len(64).export().unwrap();
                    begun.send(()).unwrap();
                    unreachable!("nobody notifies it: {:?}", owner.notified());
                }));
                let there = segments.clone();
                let outside = thread::spawn(move || {
                    let wait = std::time::Duration::from_secs(3600);
                    let ended = there.options().timeout(wait).open("nothing").unwrap_err();
                    let _ = send.send("the thread");
                    ended
                });
                wait_until("the fiber", || is_begun.try_recv().is_ok());
                (segments, outside)
            })
            .unwrap_or_else(|error| panic!("{kind:?}: {error:?}"));
            let late = outside.join().unwrap();
            assert!(matches!(late, SegmentError::RackEnded), "{late}");
            let both = [ended.recv().unwrap(), ended.recv().unwrap()];
            assert!(both.contains(&"the fiber") && both.contains(&"the thread"), "{both:?}");
            let late = segments.open("never").unwrap_err();
            assert!(matches!(late, SegmentError::RackEnded), "{late}");
            let late = segments.builder("late").len(64).export().unwrap_err();
            assert!(matches!(late, SegmentError::RackEnded), "{late}");
        }
    });
}

#[test]
fn outside_a_rack_segments_say_so() {
    assert!(matches!(RemoteSegment::open("prices"), Err(SegmentError::NotAttached)));
    let export = Segment::builder("prices").len(64).export();
    assert!(matches!(export, Err(SegmentError::NotAttached)), "{export:?}");
    let message = panic_in(gossamer::segments);
    assert!(message.contains("inside `Rack::run`"), "{message}");
    assert!(Name::new("not a name").is_err());
}
