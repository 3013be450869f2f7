//! Records in segments: an owner or a peer writes without pause, others read, over shared memory and
//! TCP. No read is torn.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use gossamer_segment::{Record, RemoteSegment, SegmentError};

use crate::common::{Host, on_each};

/// Words of a record: more than a cache line, and more than one TCP operation copies at once.
const WORDS: usize = 24;

/// Where the record is.
const AT: usize = 72;

type Value = [u64; WORDS];

fn open(host: &Host) -> RemoteSegment {
    let options = host.segments.options().timeout(Duration::from_secs(30));
    options.open("records").expect("a segment")
}

/// Every version has a value of its own.
fn value(version: u64) -> Value {
    [version.wrapping_mul(0x9e37_79b9_7f4a_7c15); WORDS]
}

/// Reads until version `until`, and checks each version that it finds.
fn read_until(remote: &RemoteSegment, until: u64) {
    let record = remote.record_at_byte::<Value>(AT).expect("inside");
    let mut last = 0;
    while last < until {
        match record.read() {
            Ok(Some((version, read))) => {
                assert!(version >= last, "version {version} behind {last}");
                assert!(read == value(version), "a mixture: {read:?}");
                last = version;
            }
            Ok(None) => assert_eq!(last, 0, "never written"),
            // Its writer never pauses.
            Err(SegmentError::Torn { at: AT, .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn the_owner_writes_and_others_read() {
    on_each(3, 1, |hosts| {
        let readers = 2;
        let over = AtomicUsize::new(0);
        thread::scope(|scope| {
            let over = &over;
            for host in &hosts[1..] {
                scope.spawn(move || {
                    let _attached = host.segments.attach(0).expect("attached");
                    read_until(&open(host), 100_000);
                    over.fetch_add(1, Ordering::Relaxed);
                });
            }
            let attached = hosts[0].segments.attach(0).expect("attached");
            let segment = hosts[0].segments.builder("records").len(512).export().expect("one");
            // A separate thread writes, so that this one serves reads in the middle of a write.
            let mut writer = segment.record_at_byte::<Value>(AT).expect("inside");
            scope.spawn(move || {
                for version in 1.. {
                    assert_eq!(writer.write(&value(version)), version);
                    if version > 100_000 && over.load(Ordering::Relaxed) == readers {
                        break;
                    }
                }
            });
            while over.load(Ordering::Relaxed) < readers {
                attached.poll();
            }
        });
    });
}

#[test]
fn a_peer_writes_and_the_owner_and_others_read() {
    const VERSIONS: u64 = 20_000;
    on_each(3, 1, |hosts| {
        let over = AtomicUsize::new(0);
        thread::scope(|scope| {
            let over = &over;
            scope.spawn(move || {
                let attached = hosts[1].segments.attach(0).expect("attached");
                let remote = open(&hosts[1]);
                let mut record = remote.record_at_byte::<Value>(AT).expect("inside");
                for version in 1..=VERSIONS {
                    assert_eq!(record.write(&value(version)).expect("a write"), version);
                }
                // A new writer continues the versions of the one before.
                let mut record = remote.record_at_byte::<Value>(AT).expect("inside");
                remote.fence().expect("all are there");
                assert_eq!(record.write(&value(VERSIONS + 1)).expect("a write"), VERSIONS + 1);
                remote.fence().expect("it is there");
                assert_eq!(
                    record.read().expect("a read"),
                    Some((VERSIONS + 1, value(VERSIONS + 1)))
                );
                over.fetch_add(1, Ordering::Relaxed);
                while over.load(Ordering::Relaxed) < 3 {
                    attached.poll();
                }
            });
            scope.spawn(move || {
                let attached = hosts[2].segments.attach(0).expect("attached");
                read_until(&open(&hosts[2]), VERSIONS + 1);
                over.fetch_add(1, Ordering::Relaxed);
                while over.load(Ordering::Relaxed) < 3 {
                    attached.poll();
                }
            });
            let attached = hosts[0].segments.attach(0).expect("attached");
            let segment = hosts[0].segments.builder("records").len(512).export().expect("one");
            let memory = segment.memory().clone();
            scope.spawn(move || {
                let mut last = 0;
                while last <= VERSIONS {
                    if let Ok(Some((version, read))) = Record::<Value>::read_mapped(&memory, AT) {
                        assert!(version >= last && read == value(version));
                        last = version;
                    }
                }
                over.fetch_add(1, Ordering::Relaxed);
            });
            while over.load(Ordering::Relaxed) < 3 {
                attached.poll();
            }
        });
    });
}

#[test]
fn places_are_checked() {
    on_each(1, 1, |hosts| {
        let _attached = hosts[0].segments.attach(0).expect("attached");
        let bytes = Record::<[u64; 3]>::BYTES;
        let segment =
            hosts[0].segments.builder("records").len(2 * bytes).export().expect("a segment");
        let remote = open(&hosts[0]);
        for at in [bytes + 8, usize::MAX - 7, 2 * bytes] {
            let refused = segment.record_at_byte::<[u64; 3]>(at).err();
            assert!(matches!(refused, Some(SegmentError::OutOfBounds { .. })), "{refused:?}");
            let refused = remote.record_at_byte::<[u64; 3]>(at).err();
            assert!(matches!(refused, Some(SegmentError::OutOfBounds { .. })), "{refused:?}");
        }
        let refused = segment.record_at_byte::<[u64; 3]>(4).err();
        assert!(matches!(refused, Some(SegmentError::Misaligned { at: 4, align: 8, .. })));
        let refused = remote.record_at_byte::<[u64; 3]>(4).err();
        assert!(matches!(refused, Some(SegmentError::Misaligned { at: 4, align: 8, .. })));
        assert_eq!(remote.record_at_byte::<[u64; 3]>(bytes).expect("inside").offset(), bytes);
    });
}

/// A record whose writer died in the middle of a write is torn until another writer writes it.
#[test]
fn a_record_of_a_dead_writer_is_torn() {
    on_each(1, 1, |hosts| {
        let _attached = hosts[0].segments.attach(0).expect("attached");
        let segment = hosts[0].segments.builder("records").len(512).export().expect("a segment");
        let remote = open(&hosts[0]);
        let record = remote.record_at_byte::<Value>(AT).expect("inside");
        segment.record_at_byte::<Value>(AT).expect("inside").write(&value(1));
        segment.at(AT / 8 + 3).write(&7u64).expect("inside");
        let torn = record.read().expect_err("half of another write");
        assert_eq!(
            torn.to_string(),
            "the record at byte 72 of segment \"records\" of host 0 was torn each time it was read: its \
             writer has died in the middle of a write, or writes without pause"
        );
        let mut next = remote.record_at_byte::<Value>(AT).expect("inside");
        assert_eq!(next.write(&value(2)).expect("a write"), 2);
        remote.fence().expect("it is there");
        assert_eq!(record.read().expect("a read"), Some((2, value(2))));
    });
}

/// A segment that always notifies, so that writes do not take the mapped path, used by threads that are
/// not attached; a record longer than one operation.
#[test]
fn records_are_read_and_written_over_lanes_too() {
    on_each(1, 1, |hosts| {
        let _server = hosts[0].segments.serve(0).expect("a server");
        let builder = hosts[0].segments.builder("records").len(200 << 10);
        let segment = builder.notify(gossamer_segment::Notify::Always).export().expect("one");
        let remote = open(&hosts[0]);
        let mut record = remote.record_at_byte::<Value>(AT).expect("inside");
        assert_eq!(record.write(&value(1)).expect("a write"), 1);
        let notification = segment.notified().expect("a notification");
        assert_eq!((notification.offset, notification.len), (AT, Record::<Value>::BYTES));
        assert_eq!(record.read().expect("a read"), Some((1, value(1))));
        // More than one operation.
        type Large = [u64; 16 << 10];
        let large = Box::new([9; 16 << 10]);
        let mut record = remote.record_at_byte::<Large>(1024).expect("inside");
        assert_eq!(record.write(&large).expect("a write"), 1);
        remote.fence().expect("it is there");
        thread::Builder::new()
            .stack_size(16 << 20)
            .spawn({
                let remote = remote.clone();
                move || {
                    let record = remote.record_at_byte::<Large>(1024).expect("inside");
                    let (version, read) = record.read().expect("a read").expect("written");
                    assert!(version == 1 && read.iter().all(|word| *word == 9));
                }
            })
            .expect("a thread")
            .join()
            .expect("no panic");
    });
}
