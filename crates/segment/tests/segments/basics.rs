//! The basic operations: export, open, read, write, swap, notify, revoke.
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use gossamer_segment::{Rights, SegmentError, Segments};
use transport_api::Transport;
use transport_shm::ShmTransport;

use crate::common::{faulty, in_fiber, on_each};

fn hosts(count: u32) -> Vec<Segments> {
    let hosts = ShmTransport::in_process(count, 1).expect("a rack");
    hosts.iter().map(|host| Segments::new(Arc::clone(host) as Arc<dyn Transport>)).collect()
}

/// The processor's atomics on the owner's memory would not be atomic with those of a device.
#[test]
fn an_owner_counts_over_the_lane_where_a_device_does_it_for_others() {
    on_each(1, 2, |hosts| {
        for (thread, over_lane) in [(0, false), (1, true)] {
            let (host, faults) = faulty(&hosts[0]);
            faults.no_mapped_atomics.store(over_lane, Ordering::Relaxed);
            let segments = host.segments.clone();
            in_fiber(&host, thread, move || {
                let _segment = segments.builder("count").len(64).export().expect("a segment");
                let count = segments.open("count").expect("a segment");
                assert_eq!(count.fetch_add(0, 5).expect("done"), 0);
                assert_eq!(count.compare_swap(0, 5, 7).expect("done"), 5);
                assert_eq!(count.fetch_add_notify(0, 1).expect("done"), 7);
            });
            let over_the_lane = faults.atomics.load(Ordering::Relaxed);
            assert_eq!(over_the_lane, if over_lane { 3 } else { 0 });
        }
    });
}

#[test]
fn one_host_writes_and_another_reads() {
    let hosts = hosts(2);
    thread::scope(|scope| {
        let (exported, is_exported) = std::sync::mpsc::channel();
        let (done, is_done) = std::sync::mpsc::channel();
        let owner = hosts[0].clone();
        scope.spawn(move || {
            let attached = owner.attach(0).expect("attached");
            let segment = owner.builder("prices").len(4096).export().expect("a segment");
            exported.send(()).unwrap();
            let notification = segment.notified().expect("a notification");
            assert_eq!(
                (notification.from.0, notification.offset, notification.len, notification.missed),
                (1, 16, 8, 0)
            );
            assert_eq!(segment.at::<u64>(2).read().unwrap(), 77);
            segment.at(3).write(&5u64).unwrap();
            while is_done.try_recv().is_err() {
                attached.poll();
            }
            segment.revoke().expect("revoked");
        });
        let user = hosts[1].clone();
        scope.spawn(move || {
            let _attached = user.attach(0).expect("attached");
            is_exported.recv().unwrap();
            let prices = user.open("prices").expect("opened");
            assert_eq!((prices.owner().0, prices.len(), prices.rights()), (0, 4096, Rights::ALL));
            prices.at::<u64>(2).write_notify(&77).unwrap();
            prices.fence().unwrap();
            while prices.at::<u64>(3).read().unwrap() != 5 {
                thread::yield_now();
            }
            assert_eq!(prices.fetch_add(24, 2).unwrap(), 5);
            assert_eq!(prices.compare_swap(24, 7, 9).unwrap(), 7);
            let outside = prices.write(4090, &[0; 8]).unwrap_err();
            assert_eq!(
                outside.to_string(),
                "bytes 4090..4098 are outside segment \"prices\" of host 0 of 4096 bytes"
            );
            assert!(matches!(user.open("nothing"), Err(SegmentError::NotFound { .. })));
            done.send(()).unwrap();
            while prices.write(0, &[1]).is_ok() {
                _attached.poll();
            }
            assert!(matches!(prices.write(0, &[1]), Err(SegmentError::Revoked { .. })));
        });
    });
}

#[test]
fn a_thread_is_attached_once_at_a_time() {
    let hosts = hosts(2);
    let (first, second) = (&hosts[0], &hosts[1]);
    let attached = first.attach(0).expect("the first");
    let again = second.attach(0).expect_err("a second one of the same thread");
    assert!(matches!(again, SegmentError::AlreadyAttached), "{again}");
    let _segment = first.builder("still").len(8).export().expect("the first one is as it was");
    drop(attached);
    let _attached = second.attach(0).expect("after the first has ended");
}

/// Offsets and lengths whose sum overflows.
#[test]
fn offsets_that_overflow_are_out_of_bounds() {
    on_each(1, 1, |hosts| {
        let _attached = hosts[0].segments.attach(0).expect("attached");
        let segment = hosts[0].segments.builder("small").len(64).export().expect("a segment");
        let remote = hosts[0].segments.open("small").expect("a segment");
        let is_outside = |result: Result<(), SegmentError>| {
            assert!(matches!(result, Err(SegmentError::OutOfBounds { len: 64, .. })), "{result:?}");
        };
        for index in [8, usize::MAX / 8, usize::MAX / 8 + 1, usize::MAX] {
            is_outside(remote.at::<u64>(index).write(&1));
            is_outside(remote.at::<u64>(index).read().map(drop));
            is_outside(remote.at::<u64>(index).write_notify(&1));
            is_outside(remote.at::<[u64; 3]>(index).read().map(drop));
            is_outside(segment.at(index).write(&1u64));
            is_outside(segment.at::<[u64; 3]>(index).read().map(drop));
        }
        for at in [57, 64, usize::MAX - 7, usize::MAX] {
            is_outside(remote.write(at, &[0; 8]));
            is_outside(remote.write_notify(at, &[0; 8]));
            is_outside(remote.write_block(at, &[0; 8]));
            is_outside(remote.write_block_notify(at, &[0; 8]));
            is_outside(remote.read(at, &mut [0; 8]));
            is_outside(remote.read_block(at, &mut [0; 8]));
            is_outside(remote.fetch_add(at, 1).map(drop));
            is_outside(remote.compare_swap_notify(at, 0, 1).map(drop));
        }
        for len in [usize::MAX, usize::MAX - 4096, isize::MAX as usize + 1, 1 << 62] {
            let refused = hosts[0].segments.builder("huge").len(len).export();
            assert!(matches!(refused, Err(SegmentError::Region { .. })), "{len}: {refused:?}");
        }
        let empty = hosts[0].segments.builder("huge").export();
        assert!(matches!(empty, Err(SegmentError::Empty(_))));
        hosts[0].segments.builder("huge").len(8).export().expect("the name is free");
    });
}

/// A reader that sees a signal sees what was written before; on every transport, and from a thread that
/// is not attached.
#[test]
fn a_signal_is_behind_earlier_writes() {
    on_each(2, 2, |hosts| {
        let owner = &hosts[0].segments;
        let _owner = owner.attach(0).expect("attached");
        let segment = owner.builder("signals").len(4096).export().expect("a segment");
        let user = &hosts[1].segments;
        let _server = user.serve(1).expect("a server");
        thread::scope(|scope| {
            scope.spawn(|| {
                let remote = user.open("signals").expect("opened");
                let misaligned = remote.signal(4, 1).unwrap_err();
                assert!(matches!(misaligned, SegmentError::Misaligned { at: 4, .. }));
                let outside = remote.signal_words(4088, &[1, 2]).unwrap_err();
                assert!(matches!(outside, SegmentError::OutOfBounds { .. }), "{outside}");
                for round in 1..=50 {
                    remote.write(64, &[round as u8; 1000]).expect("a write");
                    remote.signal_words(0, &[7 * round, round]).expect("two signals");
                    while remote.at::<u64>(2).read().expect("a word") != round {
                        thread::yield_now();
                    }
                }
            });
            for round in 1..=50 {
                let words = segment.memory().words();
                while words.load(1, primitive::sync::Ordering::Acquire) != round {
                    owner.poll();
                }
                assert_eq!(segment.at::<u64>(0).read().expect("a word"), 7 * round);
                let mut bytes = [0; 1000];
                segment.read(64, &mut bytes).expect("its memory");
                assert_eq!(bytes, [round as u8; 1000]);
                segment.at::<u64>(2).write(&round).expect("its memory");
            }
        });
        assert!(owner.check_peer(owner.local()).is_ok());
        let unknown = gossamer_segment::HostId(2);
        assert!(matches!(owner.check_peer(unknown), Err(SegmentError::NoSuchHost(_))));
    });
}
