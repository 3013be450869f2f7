//! Memory that is exported again with other access: its bytes, its rights, and refused re-exports.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use primitive::SharedBytes;
use primitive::sync::Ordering;

use crate::conformance::{DEADLINE, Make, Port, Rack, bounded, bytes, filled, together};
use crate::{
    Access, Event, HostId, Lane, OpError, Region, RegionError, RegionKey, RemoteRegion, Rights,
    ThreadId,
};

const KEY: RegionKey = RegionKey(1);

/// The owner: its port, and its lane to its own host, which reports the end of revocations. On a rack
/// of one host that is the port's own lane.
struct Owner {
    port: Port,
    own: Option<Box<dyn Lane>>,
    token: u64,
}

impl Owner {
    fn new(port: Port) -> Self {
        let host = port.transport.local();
        let own = (port.peer != host).then(|| port.transport.lane(1, host).expect("a lane"));
        Self { port, own, token: 1000 }
    }

    fn export(&self, len: usize, access: impl Into<Access>) -> Region {
        self.port.transport.export(KEY, len, access.into()).expect("an export")
    }

    fn reexport(&self, region: &Region, access: impl Into<Access>) -> Region {
        self.port.transport.reexport(region, access.into()).expect("it was revoked")
    }

    /// Revokes the region under [`KEY`], and waits until it is quiet, while `others` poll as well.
    fn revoke(&mut self, others: &mut [&mut Port]) {
        let Self { port, own, token } = self;
        *token += 1;
        let token = *token;
        port.transport.begin_revoke(1, KEY, token).expect("a revocation");
        let start = Instant::now();
        let is_it =
            |event: &Event| matches!(event, Event::Completed { token: t, .. } if *t == token);
        loop {
            port.poll();
            if let Some(own) = own {
                own.poll(&mut |event| port.events.push(event));
            }
            if port.events.iter().any(is_it) {
                port.events.retain(|event| !is_it(event));
                return;
            }
            for other in &mut *others {
                other.poll();
            }
            assert!(start.elapsed() < DEADLINE / 2, "it never becomes quiet");
            thread::yield_now();
        }
    }
}

/// The importer, the owner, and one more importer if the rack has a host for it.
fn sides(rack: &Rack) -> (Port, Owner, Option<Port>) {
    let (a, b) = Port::pair(rack);
    let more = (rack.hosts.len() > 2).then(|| Port::open(&rack.hosts[1], 0, a.peer, 1));
    (a, Owner::new(b), more)
}

/// Owner and importers see the bytes of the earlier export, and the new export lives as long as the
/// returned region.
pub fn reexported_memory_keeps_its_bytes(make: Make) {
    const LEN: usize = 3 << 20;
    bounded(move || {
        let (mut a, mut b, _) = sides(&make(2, 2));
        let first = b.export(LEN, Rights::ALL);
        let written: Vec<_> = (0..LEN).map(|at| (at / 7) as u8).collect();
        let remote = a.import(KEY.0);
        assert_eq!(a.outcome(|lane| lane.write(&remote, 0, &filled(&written))), Ok(()));
        b.revoke(&mut [&mut a]);
        let again = b.reexport(&first, Rights::ALL);
        assert_eq!((again.key(), again.generation()), (KEY, first.generation() + 1));
        assert_eq!((again.memory().len(), again.access()), (LEN, &Access::all(Rights::ALL)));
        // Without effect: it is revoked already.
        drop(first);
        assert!(bytes(again.memory()) == written, "the owner's view");
        let remote = a.import(KEY.0);
        assert_eq!((remote.generation(), remote.len()), (again.generation(), LEN));
        let into = SharedBytes::heap(LEN);
        assert_eq!(a.outcome(|lane| lane.read(&remote, 0, &into, 1)), Ok(()));
        assert!(bytes(&into) == written, "the importer's view");
        assert_eq!(a.outcome(|lane| lane.signal(&remote, 8, 77)), Ok(()));
        assert_eq!(again.memory().load(8, Ordering::Acquire), 77);
        let clone = again.clone();
        drop(again);
        assert_eq!(a.outcome(|lane| lane.signal(&remote, 8, 78)), Ok(()));
        drop(clone);
        let gone = a.transport.import(a.peer, KEY, Duration::ZERO);
        assert!(matches!(gone, Err(RegionError::Unknown { .. })), "{gone:?}");
        assert_eq!(b.export(64, Rights::ALL).generation(), remote.generation() + 1);
    });
}

/// An importer of an earlier export must import again, although the memory is the same.
pub fn a_stale_import_of_reexported_memory_is_refused(make: Make) {
    bounded(move || {
        let (mut a, mut b, _) = sides(&make(2, 2));
        let mut region = b.export(64, Rights::ALL);
        let mut stale = Vec::new();
        for round in 0..3 {
            stale.push(a.import(KEY.0));
            b.revoke(&mut [&mut a]);
            region = b.reexport(&region, Rights::ALL);
            for remote in &stale {
                let word = SharedBytes::heap(8);
                let outcomes = [
                    a.outcome(|lane| lane.write(remote, 0, &filled(&[9; 8]))),
                    a.outcome(|lane| lane.signal(remote, 0, 9)),
                    a.outcome(|lane| lane.read(remote, 0, &word, 1)),
                    a.outcome(|lane| lane.compare_swap(remote, 0, round, 9, 2)),
                    a.outcome(|lane| lane.fetch_add(remote, 0, 9, 3)),
                ];
                for (number, outcome) in outcomes.into_iter().enumerate() {
                    let generation = remote.generation();
                    let refused = Err(OpError::Revoked { key: KEY, generation });
                    assert_eq!(outcome, refused, "operation {number}");
                }
            }
            assert_eq!(region.memory().load(0, Ordering::Acquire), round);
            let fresh = a.import(KEY.0);
            assert_eq!(fresh.generation(), region.generation());
            assert_eq!(a.outcome(|lane| lane.fetch_add(&fresh, 0, 1, 4)), Ok(()));
        }
    });
}

/// A notification that accesses nothing arrives whatever has become of the region meanwhile: the owner
/// is told of an operation that has taken effect.
pub fn a_notification_outlives_a_change_of_access(make: Make) {
    const ROUNDS: u32 = 3;
    bounded(move || {
        let (mut a, mut b, _) = sides(&make(2, 2));
        let mut region = b.export(64, Rights::ALL);
        let first = a.import(KEY.0);
        let check = |a: &mut Port, b: &mut Owner, on: &RemoteRegion, value| {
            a.lane.notify(on, 8, 16, 1, value).expect("it accesses nothing");
            a.lane.flush().expect("a flush");
            let event = b.port.until("a notification", |events| {
                a.poll();
                let is_it = |event: &Event| matches!(event, Event::Notified { .. });
                Some(events.remove(events.iter().position(is_it)?))
            });
            let from = ThreadId { host: a.transport.local(), thread: 0 };
            let Event::Notified { from: who, key, at, len, value: seen } = event else {
                panic!("{event:?} is no notification")
            };
            assert_eq!((who, key, at, len, seen), (from, KEY, 8, 16, value));
        };
        for round in 0..ROUNDS {
            let remote = a.import(KEY.0);
            check(&mut a, &mut b, &remote, 4 * round);
            b.revoke(&mut [&mut a]);
            check(&mut a, &mut b, &remote, 4 * round + 1);
            region = b.reexport(&region, Rights::READ | Rights::WRITE);
            check(&mut a, &mut b, &remote, 4 * round + 2);
            check(&mut a, &mut b, &first, 4 * round + 3);
        }
        let remote = a.import(KEY.0);
        let outside = a.lane.notify(&remote, 60, 8, 1, 0);
        assert!(matches!(outside, Err(OpError::OutOfBounds { .. })), "{outside:?}");
        b.revoke(&mut [&mut a]);
        let _readable = b.reexport(&region, Rights::READ);
        let remote = a.import(KEY.0);
        let refused = a.lane.notify(&remote, 0, 8, 1, 0);
        let rights = OpError::Rights { key: KEY, has: Rights::READ, needs: Rights::WRITE };
        assert_eq!(refused, Err(rights));
    });
}

/// Host A loses a right and gets it back on the same memory, while another host keeps its rights.
pub fn rights_are_withdrawn_and_given_back(make: Make) {
    bounded(move || {
        let (mut a, mut b, mut more) = sides(&make(3, 2));
        let (me, both) = (a.transport.local(), Rights::READ | Rights::WRITE);
        let at_first = Access::all(Rights::READ).with(me, both);
        let accesses = [
            (at_first.clone(), both),
            (Access::all(Rights::READ), Rights::READ),
            (at_first.clone(), both),
            (Access::all(Rights::READ).with(me, Rights::WRITE), Rights::WRITE),
            (at_first.clone(), both),
        ];
        let mut region = None;
        for (round, (access, rights)) in (1..).zip(accesses) {
            region = Some(match region {
                None => b.export(64, access),
                Some(region) => {
                    let mut others: Vec<_> =
                        [Some(&mut a), more.as_mut()].into_iter().flatten().collect();
                    b.revoke(&mut others);
                    b.reexport(&region, access)
                }
            });
            let memory = region.as_ref().expect("a region").memory();
            let allowed = |needs| match rights.allow(needs) {
                true => Ok(()),
                false => Err(OpError::Rights { key: KEY, has: rights, needs }),
            };
            let (remote, word) = (a.import(KEY.0), SharedBytes::heap(8));
            assert_eq!(remote.rights(), rights, "round {round}");
            let before = memory.load(0, Ordering::Acquire);
            assert_eq!(a.outcome(|lane| lane.signal(&remote, 0, round)), allowed(Rights::WRITE));
            let expected = if rights.allow(Rights::WRITE) { round } else { before };
            assert_eq!(memory.load(0, Ordering::Acquire), expected, "round {round}");
            assert_eq!(a.outcome(|lane| lane.read(&remote, 0, &word, 1)), allowed(Rights::READ));
            let Some(more) = &mut more else { continue };
            let remote = more.import(KEY.0);
            assert_eq!(remote.rights(), Rights::READ, "round {round}");
            assert_eq!(more.outcome(|lane| lane.read(&remote, 0, &word, 1)), Ok(()));
            assert_eq!(word.load(0, Ordering::Acquire), expected, "round {round}");
            let refused = OpError::Rights { key: KEY, has: Rights::READ, needs: Rights::WRITE };
            assert_eq!(more.outcome(|lane| lane.signal(&remote, 0, 99)), Err(refused));
        }
        let region = region.expect("a region");
        let mut others: Vec<_> = [Some(&mut a), more.as_mut()].into_iter().flatten().collect();
        b.revoke(&mut others);
        let _none = b.reexport(&region, Access::none());
        let denied = a.transport.import(a.peer, KEY, DEADLINE);
        assert!(matches!(denied, Err(RegionError::Denied { .. })), "{denied:?}");
    });
}

/// No later export gives a host more rights than the first one did, whatever was between them.
pub fn broader_access_is_refused(make: Make) {
    bounded(move || {
        let (mut a, mut b, _) = sides(&make(2, 2));
        let (me, both) = (a.transport.local(), Rights::READ | Rights::WRITE);
        let at_first = Access::all(Rights::READ).with(me, both);
        let mut region = b.export(64, at_first.clone());
        for access in [Access::all(Rights::READ), at_first.clone(), Access::none(), at_first] {
            b.revoke(&mut [&mut a]);
            let broader = Access::all(Rights::READ).with(me, Rights::ALL);
            let refused = b.port.transport.reexport(&region, broader);
            match refused.map(drop) {
                Err(RegionError::Broader { key: KEY, host, asked: Rights::ALL, allowed }) => {
                    assert_eq!((host, allowed), (me, both));
                }
                other => panic!("it is broader than the first: {other:?}"),
            }
            let absent = HostId(a.transport.hosts());
            region = b.reexport(&region, access.with(absent, Rights::ALL));
        }
        let remote = a.import(KEY.0);
        assert_eq!(a.outcome(|lane| lane.signal(&remote, 0, 5)), Ok(()));
        assert_eq!(region.memory().load(0, Ordering::Acquire), 5);
    });
}

/// A region whose key is exported, by itself or by a later export, cannot be re-exported.
pub fn a_live_region_is_not_reexported(make: Make) {
    bounded(move || {
        let (mut a, mut b, _) = sides(&make(2, 2));
        let region = b.export(64, Rights::ALL);
        let remote = a.import(KEY.0);
        let refused = |b: &Owner, region: &Region| {
            let refused = b.port.transport.reexport(region, Rights::READ.into()).map(drop);
            assert!(matches!(refused, Err(RegionError::KeyTaken(KEY))), "{refused:?}");
        };
        refused(&b, &region);
        assert_eq!(a.outcome(|lane| lane.signal(&remote, 0, 1)), Ok(()));
        b.revoke(&mut [&mut a]);
        let other = b.export(64, Rights::ALL);
        refused(&b, &region);
        drop(region);
        let remote = a.import(KEY.0);
        assert_eq!(a.outcome(|lane| lane.signal(&remote, 0, 2)), Ok(()));
        assert_eq!(other.memory().load(0, Ordering::Acquire), 2);
    });
}

/// A transport exports again only what it exported itself.
pub fn a_region_of_another_transport_is_not_reexported(make: Make) {
    bounded(move || {
        let (a, b, _) = sides(&make(2, 2));
        let (key, access) = (RegionKey(7), Access::all(Rights::READ));
        let refused = |region: &Region| {
            let refused = b.port.transport.reexport(region, Access::none()).map(drop);
            assert!(matches!(refused, Err(RegionError::Foreign(RegionKey(7)))), "{refused:?}");
        };
        refused(&Region::new(key, access.clone(), 0, SharedBytes::heap(64), Arc::new(())));
        if a.transport.local() != b.port.transport.local() {
            let region = a.transport.export(key, 64, access).expect("an export");
            a.transport.revoke(key).expect("a revocation");
            refused(&region);
        }
    });
}

/// Sets its flag when it is dropped, also by a panic, so that the opposite side ends.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Write inhibit: the owner withdraws the right to write while a peer writes without pause. The bytes
/// then stay as they are until the peer gets the right back.
pub fn a_writer_is_inhibited_under_fire(make: Make) {
    const LEN: usize = 1 << 16;
    const ROUNDS: u64 = 20;
    bounded(move || {
        let (mut a, mut b, _) = sides(&make(2, 2));
        let mut region = b.export(LEN, Rights::ALL);
        let is_done = AtomicBool::new(false);
        together(
            || {
                let mut round = 0u8;
                while !is_done.load(Ordering::Acquire) {
                    // A write that is refused at once does not poll.
                    a.poll();
                    let found = a.transport.import(a.peer, KEY, Duration::ZERO);
                    let Ok(remote) = found else { continue };
                    while !is_done.load(Ordering::Acquire) {
                        round = round.wrapping_add(1);
                        let from = filled(&[round; LEN]);
                        match a.outcome(|lane| lane.write(&remote, 0, &from)) {
                            Ok(()) => {}
                            Err(OpError::Revoked { .. } | OpError::Rights { .. }) => break,
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
            },
            || {
                let _done = OnDrop(&is_done);
                for round in 0..ROUNDS {
                    region.memory().store(0, 0, Ordering::Release);
                    b.port.until_word(region.memory(), 0, |word| word != 0);
                    b.revoke(&mut []);
                    region = b.reexport(&region, Rights::READ);
                    let before = bytes(region.memory());
                    thread::sleep(Duration::from_millis(2));
                    assert!(bytes(region.memory()) == before, "round {round}: it was written");
                    b.revoke(&mut []);
                    region = b.reexport(&region, Rights::ALL);
                }
            },
        );
    });
}
