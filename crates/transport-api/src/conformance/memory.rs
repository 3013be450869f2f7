//! Exported memory: bounds, rights, alignment, owners and revocation.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use primitive::SharedBytes;

use crate::conformance::{DEADLINE, Make, Port, bounded, bytes, filled, together};
use crate::{
    HostId, Lane, LaneError, OpError, RegionError, RegionKey, RemoteRegion, Rights, Transport,
};

/// An operation on eight bytes of a region.
type Operation = fn(&mut dyn Lane, &RemoteRegion, usize) -> Result<(), OpError>;

/// Every operation on a region, with its name and the rights that it needs.
const OPERATIONS: [(&str, Rights, Operation); 8] = [
    ("write", Rights::WRITE, |lane, on, at| lane.write(on, at, &filled(&[7; 8]))),
    ("signal", Rights::WRITE, |lane, on, at| lane.signal(on, at, 7)),
    ("write_tagged", Rights::WRITE, |lane, on, at| {
        lane.write_tagged(on, (at, 7), &[], &SharedBytes::heap(8))
    }),
    ("write_tagged_memory", Rights::WRITE, |lane, on, at| {
        lane.write_tagged_memory(on, (at, 7), &SharedBytes::heap(8).slice(0, 0))
    }),
    ("read", Rights::READ, |lane, on, at| lane.read(on, at, &SharedBytes::heap(8), 1)),
    ("compare_swap", Rights::ATOMIC, |lane, on, at| lane.compare_swap(on, at, 0, 7, 2)),
    ("fetch_add", Rights::ATOMIC, |lane, on, at| lane.fetch_add(on, at, 7, 3)),
    ("write_notify", Rights::WRITE, |lane, on, at| {
        lane.write_notify(on, at, &filled(&[7; 8]), 1, 7)
    }),
];

/// A new region is zeroed, and reads return the bytes written.
pub fn a_region_starts_zeroed_and_reads_back(make: Make) {
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let region = b.export(1, 10_000, Rights::ALL);
        assert!(bytes(region.memory()).iter().all(|byte| *byte == 0));
        let remote = a.import(1);
        let whole = (remote.len(), remote.key(), remote.rights(), remote.generation());
        assert_eq!(whole, (10_000, RegionKey(1), Rights::ALL, 0));
        assert_eq!(remote.owner(), b.transport.local());
        let text: Vec<u8> = (0..9_001u32).map(|n| (n * 7) as u8).collect();
        a.lane.write(&remote, 13, &filled(&text)).expect("a write");
        let into = SharedBytes::heap(9_001);
        a.lane.read(&remote, 13, &into, 5).expect("a read");
        a.lane.flush().expect("a flush");
        assert_eq!(a.completion(5), Ok(9_001), "a read reports its length");
        assert_eq!(bytes(&into), text);
        assert_eq!(bytes(region.memory())[13..9_014], text);
    });
}

/// Every operation outside the region, by one byte and by so much that the sum overflows.
pub fn operations_stay_inside_the_region(make: Make) {
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let region = b.export(1, 64, Rights::ALL);
        let remote = a.import(1);
        for (name, _, operation) in OPERATIONS {
            for at in [57, 64, 1 << 40, usize::MAX - 7, usize::MAX] {
                let outcome = a.outcome(|lane| operation(lane, &remote, at));
                let expected = OpError::OutOfBounds { key: RegionKey(1), at, count: 8, len: 64 };
                assert_eq!(outcome, Err(expected), "{name} at {at}");
            }
        }
        assert!(bytes(region.memory()).iter().all(|byte| *byte == 0), "nothing was written");
        for (name, _, operation) in OPERATIONS {
            assert_eq!(a.outcome(|lane| operation(lane, &remote, 56)), Ok(()), "{name} at the end");
        }
    });
}

/// Every operation with all rights except the one it needs, and with that one alone.
pub fn operations_need_their_rights(make: Make) {
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let all = [Rights::READ, Rights::WRITE, Rights::ATOMIC];
        for (key, (name, needs, operation)) in (1..).zip(OPERATIONS) {
            let others = all.into_iter().filter(|right| *right != needs);
            let has = others.reduce(|sum, right| sum | right).expect("two other rights");
            let region = b.export(key, 64, has);
            let _sufficient = b.export(key + 100, 64, needs);
            let (refusing, allowing) = (a.import(key), a.import(key + 100));
            assert_eq!((refusing.rights(), allowing.rights()), (has, needs));
            let expected = OpError::Rights { key: RegionKey(key), has, needs };
            assert_eq!(a.outcome(|lane| operation(lane, &refusing, 8)), Err(expected), "{name}");
            assert!(bytes(region.memory()).iter().all(|byte| *byte == 0), "{name} wrote");
            assert_eq!(a.outcome(|lane| operation(lane, &allowing, 8)), Ok(()), "{name}");
        }
    });
}

/// Words are 8-aligned; runs of bytes need not be.
pub fn words_are_aligned(make: Make) {
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let _region = b.export(1, 64, Rights::ALL);
        let remote = a.import(1);
        for (name, _, operation) in OPERATIONS {
            let outcome = a.outcome(|lane| operation(lane, &remote, 12));
            let is_word = !["write", "read", "write_notify"].contains(&name);
            let expected = if is_word { Err(OpError::Misaligned(12)) } else { Ok(()) };
            assert_eq!(outcome, expected, "{name}");
        }
    });
}

/// A lane accepts only regions that its own transport imported from the lane's peer and, where memory
/// is mapped, from its own host.
pub fn regions_belong_to_their_peer(make: Make) {
    bounded(move || {
        let (rack, other) = (make(3, 2), make(3, 2));
        let ((mut a, _b), (mut strange, mut stranger)) = (Port::pair(&rack), Port::pair(&other));
        let _region = stranger.export(1, 64, Rights::ALL);
        let mut foreign = vec![strange.import(1)];
        let _third = (rack.hosts.len() > 2).then(|| {
            let third =
                rack.hosts[1].export(RegionKey(2), 64, Rights::ALL.into()).expect("an export");
            let remote = a.transport.import(HostId(1), RegionKey(2), DEADLINE);
            foreign.push(remote.expect("an import from a third host"));
            third
        });
        let _own = a.export(3, 64, Rights::ALL);
        let own = a.transport.import(a.transport.local(), RegionKey(3), DEADLINE);
        let own = own.expect("an import of an own region");
        if a.transport.maps(a.peer) {
            for (name, _, operation) in OPERATIONS {
                assert_eq!(a.outcome(|lane| operation(lane, &own, 8)), Ok(()), "{name}");
            }
        } else {
            foreign.push(own);
        }
        for remote in &foreign {
            for (name, _, operation) in OPERATIONS {
                let outcome = a.outcome(|lane| operation(lane, remote, 8));
                assert_eq!(outcome, Err(OpError::Foreign(remote.key())), "{name}");
            }
        }
    });
}

/// After a revocation, operations fail; after a new export, only those on the new generation work.
pub fn a_revoked_region_is_refused(make: Make) {
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let first = b.export(1, 64, Rights::ALL);
        let taken = b.transport.export(RegionKey(1), 64, Rights::ALL.into());
        assert!(matches!(taken, Err(RegionError::KeyTaken(RegionKey(1)))));
        let old = a.import(1);
        assert_eq!(a.outcome(|lane| lane.signal(&old, 8, 1)), Ok(()));
        b.transport.revoke(RegionKey(1)).expect("a revocation");
        for (name, _, operation) in OPERATIONS {
            let outcome = a.outcome(|lane| operation(lane, &old, 8));
            assert_eq!(
                outcome,
                Err(OpError::Revoked { key: RegionKey(1), generation: 0 }),
                "{name}"
            );
        }
        assert!(matches!(b.transport.revoke(RegionKey(1)), Err(RegionError::Unknown { .. })));
        let second = b.export(1, 64, Rights::ALL);
        assert_eq!((first.generation(), second.generation()), (0, 1));
        // Dropping the last clone of the first region must not revoke the second one.
        drop(first);
        let new = a.import(1);
        assert_eq!(new.generation(), 1);
        assert_eq!(a.outcome(|lane| lane.signal(&new, 8, 2)), Ok(()));
        let outcome = a.outcome(|lane| lane.signal(&old, 8, 3));
        assert_eq!(outcome, Err(OpError::Revoked { key: RegionKey(1), generation: 0 }));
        b_sees(&second, 2);
    });
}

fn b_sees(region: &crate::Region, word: u64) {
    assert_eq!(region.memory().load(8, primitive::sync::Ordering::Acquire), word);
}

/// Dropping the last clone of a region withdraws it.
pub fn a_dropped_region_is_revoked(make: Make) {
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let region = b.export(1, 64, Rights::ALL);
        let remote = a.import(1);
        let clone = region.clone();
        drop(region);
        assert_eq!(a.outcome(|lane| lane.signal(&remote, 8, 1)), Ok(()), "a clone is left");
        drop(clone);
        // A drop does not wait for the peer, so that some operations may still succeed.
        let start = Instant::now();
        let refused = loop {
            match a.outcome(|lane| lane.signal(&remote, 8, 2)) {
                Ok(()) => assert!(start.elapsed() < DEADLINE / 2, "it is still there"),
                Err(error) => break error,
            }
        };
        assert_eq!(refused, OpError::Revoked { key: RegionKey(1), generation: 0 });
        let gone = a.transport.import(a.peer, RegionKey(1), Duration::ZERO);
        assert!(matches!(gone, Err(RegionError::Unknown { key: RegionKey(1), .. })));
    });
}

/// A region is revoked while the peer writes as fast as it can: the writes fail, and none reaches the
/// next generation.
pub fn revoking_under_fire_ends_the_fire(make: Make) {
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let region = b.export(1, 4096, Rights::ALL);
        let remote = a.import(1);
        together(
            || loop {
                match a.outcome(|lane| lane.write(&remote, 0, &filled(&[0xff; 4096]))) {
                    Ok(()) => {}
                    Err(OpError::Revoked { key: RegionKey(1), .. }) => break,
                    Err(other) => panic!("{other}"),
                }
            },
            || {
                b.until_word(region.memory(), 0, |word| word != 0);
                b.transport.revoke(RegionKey(1)).expect("a revocation");
                let next = b.export(1, 4096, Rights::ALL);
                thread::sleep(Duration::from_millis(20));
                assert!(bytes(next.memory()).iter().all(|byte| *byte == 0));
            },
        );
    });
}

/// An import that precedes the export waits for it until its timeout.
pub fn an_import_waits_for_its_export(make: Make) {
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let early = a.transport.import(a.peer, RegionKey(5), Duration::from_millis(10));
        assert!(matches!(early, Err(RegionError::Unknown { key: RegionKey(5), .. })));
        let (mut remote, mut region) = (None, None);
        together(
            || remote = Some(a.import(5)),
            || {
                thread::sleep(Duration::from_millis(30));
                region = Some(b.export(5, 64, Rights::ALL));
            },
        );
        let remote = remote.expect("an import");
        assert_eq!(a.outcome(|lane| lane.signal(&remote, 0, 1)), Ok(()));
    });
}

/// Errors name the hosts and threads that do not exist, and the lanes and parkers that are taken.
pub fn what_does_not_exist_is_named(make: Make) {
    bounded(move || {
        let rack = make(2, 2);
        let a: &Arc<dyn Transport> = &rack.hosts[0];
        assert_eq!((a.local(), a.threads()), (HostId(0), 2));
        let nowhere = HostId(a.hosts());
        let import = a.import(nowhere, RegionKey(1), Duration::ZERO);
        assert!(matches!(import, Err(RegionError::NoSuchHost(host)) if host == nowhere));
        assert!(matches!(a.lane(0, nowhere), Err(LaneError::NoSuchHost(host)) if host == nowhere));
        assert!(matches!(a.lane(2, HostId(0)), Err(LaneError::NoSuchThread(2, 2))));
        assert!(matches!(a.parker(2), Err(LaneError::NoSuchThread(2, 2))));
        let _kept = (a.lane(1, HostId(0)).expect("a lane"), a.parker(1).expect("a parker"));
        assert!(matches!(a.lane(1, HostId(0)), Err(LaneError::AlreadyOpen(1, HostId(0)))));
        assert!(matches!(a.parker(1), Err(LaneError::AlreadyOpen(1, HostId(0)))));
        let revoke = a.revoke(RegionKey(9));
        assert!(matches!(revoke, Err(RegionError::Unknown { key: RegionKey(9), .. })));
        a.unpark(2);
    });
}
