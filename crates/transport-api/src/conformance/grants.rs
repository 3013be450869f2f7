//! Rights per host, regions that are revoked while they are used, and imports that do not block.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use primitive::SharedBytes;
use primitive::sync::Ordering;

use crate::conformance::{DEADLINE, Make, Port, bounded, bytes, filled, together};
use crate::{
    Access, Event, HostId, Lane, OpError, RegionError, RegionKey, RemoteRegion, Rights, Transport,
};

fn export(b: &Port, key: u64, access: Access) -> crate::Region {
    b.transport.export(RegionKey(key), 64, access).expect("an export")
}

fn read(lane: &mut dyn Lane, region: &RemoteRegion) -> Result<(), OpError> {
    lane.read(region, 0, &SharedBytes::heap(8), 1)
}

/// Each host has the rights that the owner gave it, whatever rights other hosts have.
pub fn rights_are_each_hosts_own(make: Make) {
    bounded(move || {
        let rack = make(3, 2);
        let (mut a, b) = Port::pair(&rack);
        let (me, absent) = (a.transport.local(), HostId(a.transport.hosts()));
        let both = Rights::READ | Rights::WRITE;
        let _readable = export(&b, 1, Access::all(both).with(me, Rights::READ));
        let written = export(&b, 2, Access::all(Rights::READ).with(me, both));
        let _denied = export(&b, 3, Access::all(Rights::ALL).with(me, Rights::NONE));
        let _others = export(&b, 4, Access::none().with(absent, Rights::ALL));
        let (readable, writable) = (a.import(1), a.import(2));
        assert_eq!((readable.rights(), writable.rights()), (Rights::READ, both));
        assert_eq!(a.outcome(|lane| read(lane, &readable)), Ok(()));
        let refused =
            OpError::Rights { key: RegionKey(1), has: Rights::READ, needs: Rights::WRITE };
        assert_eq!(a.outcome(|lane| lane.signal(&readable, 8, 1)), Err(refused));
        assert_eq!(a.outcome(|lane| lane.signal(&writable, 8, 1)), Ok(()));
        assert_eq!(written.memory().load(8, Ordering::Acquire), 1);
        for key in [3, 4].map(RegionKey) {
            let denied = a.transport.import(a.peer, key, DEADLINE);
            let expected = |k: RegionKey| k == key;
            let is_denied = matches!(denied, Err(RegionError::Denied { key, .. }) if expected(key));
            assert!(is_denied, "{denied:?}");
        }
        if rack.hosts.len() > 2 {
            let mut other = Port::open(&rack.hosts[1], 0, b.transport.local(), 1);
            let (writable, readable) = (other.import(1), other.import(2));
            assert_eq!((readable.rights(), writable.rights()), (Rights::READ, both));
            let refused =
                OpError::Rights { key: RegionKey(2), has: Rights::READ, needs: Rights::WRITE };
            assert_eq!(other.outcome(|lane| lane.signal(&readable, 16, 2)), Err(refused));
            assert_eq!(other.outcome(|lane| lane.signal(&writable, 16, 2)), Ok(()));
            assert_eq!(other.outcome(|lane| read(lane, &readable)), Ok(()));
        }
    });
}

/// An operation that starts after `revoke` has returned changes nothing.
pub fn an_inhibited_region_is_not_written(make: Make) {
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        for round in 0..20 {
            let region = b.export(1, 4096, Rights::ALL);
            let remote = a.import(1);
            assert_eq!(a.outcome(|lane| lane.write(&remote, 0, &filled(&[1; 4096]))), Ok(()));
            b.transport.revoke(RegionKey(1)).expect("a revocation");
            let generation = remote.generation();
            let refused = OpError::Revoked { key: RegionKey(1), generation };
            let write = a.outcome(|lane| lane.write(&remote, 0, &filled(&[2; 4096])));
            assert_eq!(write, Err(refused.clone()), "round {round}");
            assert_eq!(a.outcome(|lane| lane.signal(&remote, 8, 2)), Err(refused.clone()));
            assert_eq!(a.outcome(|lane| lane.fetch_add(&remote, 16, 2, 3)), Err(refused));
            assert!(bytes(region.memory()).iter().all(|byte| *byte == 1), "round {round}");
        }
    });
}

/// Once the end of a revocation is reported, no earlier operation changes the region either.
pub fn a_quiet_region_is_not_written(make: Make) {
    const LEN: usize = 1 << 16;
    const ROUNDS: u64 = 30;
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        // The lane that reports the end; on a rack of one host it is the port's own.
        let owner = b.transport.local();
        let mut own = (b.peer != owner).then(|| b.transport.lane(1, owner).expect("a lane"));
        let is_done = AtomicBool::new(false);
        together(
            || {
                let mut round = 0u8;
                while !is_done.load(Ordering::Acquire) {
                    let found = a.transport.import(a.peer, RegionKey(1), Duration::ZERO);
                    let Ok(remote) = found else {
                        a.poll();
                        continue;
                    };
                    loop {
                        round = round.wrapping_add(1);
                        let from = filled(&[round; LEN]);
                        match a.outcome(|lane| lane.write(&remote, 0, &from)) {
                            Ok(()) => {}
                            Err(OpError::Revoked { key: RegionKey(1), .. }) => break,
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
            },
            || {
                for token in 0..ROUNDS {
                    let region = b.export(1, LEN, Rights::ALL);
                    b.until_word(region.memory(), 0, |word| word != 0);
                    b.transport.begin_revoke(1, RegionKey(1), token).expect("a revocation");
                    let start = Instant::now();
                    let is_quiet = |events: &mut Vec<Event>| {
                        let is_it = |event: &Event| matches!(event, Event::Completed { token: t, .. } if *t == token);
                        let found = events.iter().any(is_it);
                        events.retain(|event| !is_it(event));
                        found
                    };
                    loop {
                        b.poll();
                        if let Some(own) = &mut own {
                            own.poll(&mut |event| b.events.push(event));
                        }
                        if is_quiet(&mut b.events) {
                            break;
                        }
                        assert!(start.elapsed() < DEADLINE / 2, "it never becomes quiet");
                    }
                    let before = bytes(region.memory());
                    thread::sleep(Duration::from_millis(2));
                    assert!(bytes(region.memory()) == before, "round {token}: it was written");
                }
                is_done.store(true, Ordering::Release);
            },
        );
    });
}

/// Takes the result of the import with `token`, if it is among the events.
fn imported(events: &mut Vec<Event>, token: u64) -> Option<Result<RemoteRegion, RegionError>> {
    let is_it = |event: &Event| matches!(event, Event::Imported { token: t, .. } if *t == token);
    let found = events.iter().position(is_it)?;
    match events.remove(found) {
        Event::Imported { result, .. } => Some(result),
        _ => None,
    }
}

/// `begin_import` returns at once; the thread uses its lane until that reports the result.
pub fn an_import_does_not_block(make: Make) {
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let _other = b.export(1, 64, Rights::ALL);
        let other = a.import(1);
        let start = Instant::now();
        let begin = |a: &Port, key: u64, timeout: Duration, token: u64| {
            a.transport.begin_import(0, a.peer, RegionKey(key), timeout, token)
        };
        begin(&a, 5, DEADLINE * 2, 50).expect("an import");
        begin(&a, 6, Duration::from_millis(20), 60).expect("an import");
        assert!(start.elapsed() < DEADLINE / 4, "it blocks");
        for round in 0..20 {
            assert_eq!(a.outcome(|lane| lane.signal(&other, 0, round)), Ok(()));
        }
        let late = a.until("an answer", |events| imported(events, 60));
        assert!(matches!(late, Err(RegionError::Unknown { key: RegionKey(6), .. })), "{late:?}");
        let _region = b.export(5, 64, Rights::WRITE);
        let remote = a.until("an answer", |events| imported(events, 50)).expect("a region");
        assert_eq!((remote.key(), remote.rights()), (RegionKey(5), Rights::WRITE));
        assert_eq!(a.outcome(|lane| lane.signal(&remote, 0, 1)), Ok(()));
        begin(&a, 1, DEADLINE, 10).expect("an import");
        let again = a.until("an answer", |events| imported(events, 10)).expect("a region");
        assert_eq!((again.key(), again.len()), (RegionKey(1), 64));
        let _denied = export(&b, 7, Access::none());
        begin(&a, 7, DEADLINE, 70).expect("an import");
        let denied = a.until("an answer", |events| imported(events, 70));
        assert!(matches!(denied, Err(RegionError::Denied { .. })), "{denied:?}");
        let nowhere = HostId(a.transport.hosts());
        let refused = a.transport.begin_import(0, nowhere, RegionKey(1), DEADLINE, 1);
        assert!(matches!(refused, Err(RegionError::NoSuchHost(host)) if host == nowhere));
    });
}

/// The result of an import wakes the importing thread.
pub fn an_import_wakes_its_thread(make: Make) {
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let mut parker = a.transport.parker(0).expect("a parker");
        let transport: &dyn Transport = &*a.transport;
        transport.begin_import(0, b.transport.local(), RegionKey(5), DEADLINE, 7).expect("a start");
        together(
            || {
                let result = a.until_woken("a region", &mut *parker, |events| imported(events, 7));
                result.expect("a region");
            },
            || {
                thread::sleep(Duration::from_millis(20));
                let region = b.export(5, 64, Rights::READ);
                thread::sleep(Duration::from_millis(100));
                drop(region);
            },
        );
    });
}
