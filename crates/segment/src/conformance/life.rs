//! Lost hosts, threads that are not attached, and owners that sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use transport_api::HostId;
use transport_api::conformance::Make;

use crate::conformance::{DEADLINE, Player, bounded, pattern, places, play, play_in, script};
use crate::table::Strategy;
use crate::{RemoteSegment, SegmentError, Segments};

/// When a host ends without a goodbye, its segments and names are gone, and those of other hosts stay.
pub fn a_lost_host_is_reported_and_its_names_go(make: Make) {
    bounded(move || {
        let rack = make(3, 3);
        let kill = rack.kill;
        let rack = transport_api::conformance::Rack { hosts: rack.hosts, kill: Box::new(|_| ()) };
        let survivor = script(move |survivor| {
            let _own = survivor.export("survives", 8);
            survivor.meet();
            let segment = survivor.open("dies");
            assert_eq!(segment.owner(), HostId(1));
            segment.write(0, &[1]).expect("a write");
            segment.fence().expect("a fence");
            kill(HostId(1));
            survivor.until("the loss", || {
                let fence = segment.fence();
                let is_lost = matches!(fence, Err(SegmentError::PeerLost(HostId(1), _)));
                assert!(is_lost || fence.is_ok(), "{fence:?}");
                is_lost
            });
            if !segment.is_mapped() {
                let read = segment.read(0, &mut [0; 8]);
                assert!(matches!(read, Err(SegmentError::PeerLost(..))), "{read:?}");
                let write = segment.write(0, &[0; 8]);
                assert!(matches!(write, Err(SegmentError::PeerLost(..))), "{write:?}");
            }
            let written = segment.write_notify(0, &[1]);
            assert!(matches!(written, Err(SegmentError::PeerLost(..))), "{written:?}");
            let gone = survivor.segments.open("dies").map(drop);
            assert!(matches!(gone, Err(SegmentError::NotFound { .. })), "{gone:?}");
            for strategy in [Strategy::Probe, Strategy::Ask] {
                let at_host = survivor.segments.options().host(HostId(1)).strategy(strategy);
                for at_host in [at_host.clone().uncached(), at_host.timeout(DEADLINE)] {
                    let gone = at_host.open("dies").map(drop);
                    assert!(matches!(gone, Err(SegmentError::PeerLost(..))), "{gone:?}");
                }
            }
            assert_eq!(survivor.segments.refresh().expect("a refresh"), 0);
            assert_eq!(survivor.open("survives").owner(), HostId(0));
        });
        let victim = script(|victim| {
            let _segment = victim.export("dies", 8);
            victim.meet();
            // The thread outlives its host, which is cut off from the rack.
            victim.until("the end", || victim.is_awaited());
        });
        play_in(&rack, [survivor, victim]);
    });
}

/// Waits for `done` on a thread that is not attached.
fn wait_for(done: impl Fn() -> bool) {
    while !done() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Threads without lanes export, open, write, read, receive notifications and revoke.
pub fn threads_that_are_not_attached_use_segments(make: Make) {
    const EACH: usize = 60;
    const LEN: usize = 2_000;
    bounded(move || {
        let rack = make(2, 2);
        let places = places(&rack);
        let (first, last) = (&places[0], &places[places.len() - 1]);
        let _servers: Vec<_> = if places.len() > 1 {
            vec![first.serve(0).expect("a server"), last.serve(1).expect("a server")]
        } else {
            vec![first.serve(1).expect("a server")]
        };
        let segment = first.builder("served").len(3 * LEN + 8).export().expect("a segment");
        let remote = last.open("served").expect("an open segment");
        let work = |number: usize| {
            let (at, remote) = (8 + number * LEN, remote.clone());
            for round in 0..EACH {
                let sent = pattern(LEN, (number * EACH + round) as u32);
                remote.write_block(at, &sent).expect("a block");
                let mut back = vec![0; LEN];
                remote.read(at, &mut back).expect("a read");
                assert!(back == sent, "thread {number}, round {round}");
                remote.fetch_add(0, 1).expect("an addition");
                let again = last.open("served").expect("an open segment");
                assert_eq!(again.generation(), 0);
            }
            remote.fence().expect("a fence");
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..3).map(|number| scope.spawn(move || work(number))).collect();
            workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        });
        assert_eq!(segment.at::<u64>(0).read().expect("a word"), 3 * EACH as u64);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| segment.notified().expect("a notification"));
            remote.write_notify(16, &[1; 3]).expect("a write");
            let notification = waiting.join().expect("no panic");
            assert_eq!(
                (notification.from, notification.offset, notification.len),
                (last.local(), 16, 3)
            );
        });
        let outside = remote.read(3 * LEN + 1, &mut [0; 8]);
        assert!(matches!(outside, Err(SegmentError::OutOfBounds { .. })), "{outside:?}");
        segment.revoke().expect("a revocation");
        let refused = remote.read(0, &mut [0; 8]);
        assert!(matches!(refused, Err(SegmentError::Revoked { .. })), "{refused:?}");
    });
}

/// While one thread of a process waits for a name, the server works for other threads: one of them
/// exports the name.
pub fn an_open_that_waits_keeps_nobody_waiting(make: Make) {
    bounded(move || {
        let rack = make(1, 1);
        let place = &places(&rack)[0];
        let _server = place.serve(0).expect("a server");
        let is_looking = AtomicBool::new(false);
        thread::scope(|scope| {
            let opened = scope.spawn(|| {
                is_looking.store(true, Ordering::Release);
                place.options().timeout(DEADLINE * 2).open("late")
            });
            wait_for(|| is_looking.load(Ordering::Acquire));
            thread::sleep(Duration::from_millis(30));
            let _segment = place.builder("late").len(24).export().expect("a segment");
            let opened = opened.join().expect("no panic").expect("an open segment");
            assert_eq!(opened.len(), 24);
        });
    });
}

/// A server cannot start on a thread that does not exist, nor beside another one; a failed start leaves
/// no trace. When the server ends, operations fail.
pub fn a_server_that_cannot_start_can_be_started_again(make: Make) {
    bounded(move || {
        let rack = make(1, 2);
        let place = &places(&rack)[0];
        let wrong = place.serve(2).map(drop);
        assert!(matches!(wrong, Err(SegmentError::Lane(_))), "{wrong:?}");
        let not_attached = place.builder("early").len(8).export().map(drop);
        assert!(matches!(not_attached, Err(SegmentError::NotAttached)), "{not_attached:?}");
        let server = place.serve(0).expect("a server");
        let second = place.serve(1).map(drop);
        assert!(matches!(second, Err(SegmentError::Served)), "{second:?}");
        let segment = place.builder("served").len(8).export().expect("a segment");
        let remote = place.open("served").expect("an open segment");
        remote.write(0, &[1]).expect("a write");
        drop(server);
        let ended = [remote.write(0, &[1]), place.open("served").map(drop), segment.revoke()];
        for ended in ended {
            assert!(matches!(ended, Err(SegmentError::RackEnded)), "{ended:?}");
        }
    });
}

/// On a thread that is not attached, in a process without a server, every operation fails.
pub fn operations_need_an_attached_thread(make: Make) {
    let refused = |place: &Segments, remote: &RemoteSegment| {
        let results = [
            place.open("attached").map(drop),
            place.builder("more").len(8).export().map(drop),
            place.refresh().map(drop),
            remote.write(0, &[1]),
            remote.write_block(0, &[1]),
            remote.read(0, &mut [0; 8]),
            remote.fetch_add(0, 1).map(drop),
            remote.fence(),
        ];
        for result in results {
            assert!(matches!(result, Err(SegmentError::NotAttached)), "{result:?}");
        }
    };
    let only = script(move |only: &Player| {
        let segment = only.export("attached", 8);
        let remote = only.open("attached");
        let place = &only.segments;
        thread::scope(|scope| {
            scope.spawn(|| refused(place, &remote)).join().expect("no panic");
        });
        assert_eq!(segment.at::<u64>(0).read().expect("a word"), 0);
        let again = only.segments.attach(0).map(drop);
        assert!(matches!(again, Err(SegmentError::AlreadyAttached)), "{again:?}");
        let elsewhere = thread::scope(|scope| {
            scope.spawn(|| place.attach(0).map(drop)).join().expect("no panic")
        });
        assert!(matches!(elsewhere, Err(SegmentError::Lane(_))), "{elsewhere:?}");
        remote.write(0, &[1]).expect("this thread is still attached");
    });
    play(make, [only]);
}

/// The owner sleeps while another host writes and reads. Where memory is mapped or a device moves the
/// data, nothing wakes the owner, and it uses almost no processor time.
pub fn a_write_without_notification_takes_no_time_of_the_owner(make: Make) {
    const WRITES: u64 = 5_000;
    let is_over = Arc::new(AtomicBool::new(false));
    let end = is_over.clone();
    let owner = script(move |owner| {
        let segment = owner.export("quiet", 4_096);
        owner.meet();
        let (mut wakes, begin) = (0, time_of_thread());
        while !is_over.load(Ordering::Acquire) {
            owner.attached.park(DEADLINE);
            wakes += 1;
        }
        let took = time_of_thread() - begin;
        let transport = &owner.segments.0.transport;
        // On other transports the owner's process moves the data itself.
        if transport.maps(HostId(transport.hosts().min(2) - 1)) || transport.queue_pairs() > 0 {
            // If writes woke the owner, they would do so thousands of times.
            assert!(wakes < WRITES / 10, "it woke {wakes} times");
            assert!(took < Duration::from_secs(1), "it used {took:?}");
        }
        assert_eq!(segment.at::<u64>(0).read().expect("a word"), WRITES - 1);
    });
    let user = script(move |user| {
        user.meet();
        let segment = user.open("quiet");
        for n in 0..WRITES {
            segment.at::<u64>(0).write(&n).expect("a write");
            if n.is_multiple_of(64) {
                assert_eq!(segment.at::<u64>(0).read().expect("a read"), n);
            }
        }
        segment.fence().expect("a fence");
        end.store(true, Ordering::Release);
        segment.write_notify(8, &[1]).expect("a write");
    });
    play(make, [owner, user]);
}

/// The processor time of the calling thread.
fn time_of_thread() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
