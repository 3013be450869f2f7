//! [`Mixed`]: a rack of several machines of which some run several processes. Those of one machine
//! share memory, all others connect over TCP, and one transport serves each peer.
//!
//! Both transports use the rack's host numbers, each for its own part of the rack. So lanes and
//! imports are theirs, unchanged: a thread uses the lane of a transport directly. This module does
//! what concerns both:
//!
//! - A region: the shared-memory transport exports it, and TCP exports the same memory.
//! - A thread sleeps where its connections are; its neighbours, which share its memory, wake it
//!   there by a socket.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use transport_api::{
    Access, Carrier, HostId, Lane, LaneError, Parker, Region, RegionError, RegionKey, RemoteRegion,
    Transport,
};
use transport_shm::{Alarm, ShmTransport};
use transport_tcp::TcpTransport;

/// A process's place in a rack whose hosts are processes of several machines.
pub(crate) struct Mixed {
    /// The transport to the hosts of this machine, including this host.
    near: Arc<ShmTransport>,
    /// The transport to all other hosts.
    far: Arc<TcpTransport>,
    /// By thread; taken with its parker.
    alarms: Mutex<Vec<Option<Alarm>>>,
}

impl Mixed {
    /// Combines the two parts of one rack: each has the hosts that the other lacks, and both have
    /// this host. `alarms` are those of `near`.
    pub(crate) fn new(
        near: Arc<ShmTransport>,
        alarms: Vec<Alarm>,
        far: Arc<TcpTransport>,
    ) -> Arc<Self> {
        debug_assert_eq!((near.local(), near.hosts()), (far.local(), far.hosts()));
        let alarms = Mutex::new(alarms.into_iter().map(Some).collect());
        Arc::new(Self { near, far, alarms })
    }

    /// The transport that reaches `host`; for a host that does not exist, one that refuses it.
    fn to(&self, host: HostId) -> &dyn Transport {
        if self.near.maps(host) { &*self.near } else { &*self.far }
    }

    /// The region that both transports export, whose memory was first exported with access `first`.
    fn both(&self, near: Region, far: Region, first: Access) -> Region {
        let (key, access, memory) = (near.key(), near.access().clone(), near.memory().clone());
        let (generation, of) = (far.generation(), Arc::downgrade(&self.near));
        Region::new(key, access, generation, memory, Arc::new(Both { far, near, first, of }))
    }
}

/// A region of both transports, which the last clone revokes on both: on TCP first, so that the key is
/// free there by the time that it is free on the other, with which exports begin.
struct Both {
    far: Region,
    near: Region,
    /// What the first export of the memory allowed.
    first: Access,
    /// One of the transports.
    of: Weak<ShmTransport>,
}

impl Transport for Mixed {
    fn local(&self) -> HostId {
        self.near.local()
    }

    fn hosts(&self) -> u32 {
        self.near.hosts()
    }

    fn threads(&self) -> u32 {
        self.near.threads()
    }

    fn maps(&self, peer: HostId) -> bool {
        self.near.maps(peer)
    }

    fn streams(&self, peer: HostId) -> bool {
        self.to(peer).streams(peer)
    }

    fn is_authenticated(&self) -> bool {
        self.near.is_authenticated() && self.far.is_authenticated()
    }

    fn export(&self, key: RegionKey, len: usize, access: Access) -> Result<Region, RegionError> {
        let near = self.near.export(key, len, access.clone())?;
        let far = self.far.export_memory(key, near.memory().clone(), access.clone())?;
        Ok(self.both(near, far, access))
    }

    fn revoke(&self, key: RegionKey) -> Result<(), RegionError> {
        // The key is taken until both have revoked it, and `export` begins with the second.
        self.far.revoke(key)?;
        self.near.revoke(key)
    }

    fn begin_revoke(&self, thread: u32, key: RegionKey, token: u64) -> Result<(), RegionError> {
        // Once this returns, no operation that came over a connection is under way, and the threads
        // of this host use the region over lanes of the other only.
        self.far.revoke(key)?;
        self.near.begin_revoke(thread, key, token)
    }

    fn reexport(&self, region: &Region, access: Access) -> Result<Region, RegionError> {
        let key = region.key();
        let is_ours = |both: &&Both| both.of.as_ptr() == Arc::as_ptr(&self.near);
        let both = region.keep::<Both>().filter(is_ours).ok_or(RegionError::Foreign(key))?;
        RegionError::check_reexport(key, (&both.first, &access), self.hosts())?;
        // Over TCP first: if the other fails, dropping this leaves no operation under way. The other
        // way round, hosts that map the memory could have started operations that no revocation
        // waits for.
        let far = self.far.reexport(&both.far, access.clone())?;
        let near = self.near.reexport(&both.near, access)?;
        Ok(self.both(near, far, both.first.clone()))
    }

    fn import(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> Result<RemoteRegion, RegionError> {
        self.to(owner).import(owner, key, timeout)
    }

    fn begin_import(
        &self,
        thread: u32,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        token: u64,
    ) -> Result<(), RegionError> {
        self.to(owner).begin_import(thread, owner, key, timeout, token)
    }

    fn lane(&self, thread: u32, peer: HostId) -> Result<Box<dyn Lane>, LaneError> {
        self.to(peer).lane(thread, peer)
    }

    fn parker(&self, thread: u32) -> Result<Box<dyn Parker>, LaneError> {
        LaneError::check_thread(thread, self.threads())?;
        let taken = LaneError::AlreadyOpen(thread, self.local());
        let alarm = self.alarms.lock().get_mut(thread as usize).and_then(Option::take);
        let near = alarm.ok_or(taken)?;
        let far = self.far.parker_beside(thread, &near)?;
        Ok(Box::new(MixedParker { near, far }))
    }

    fn unpark(&self, thread: u32) {
        self.far.unpark(thread);
    }

    fn leave(&self) {
        self.near.leave();
        self.far.leave();
    }
}

/// Where a thread sleeps: at its connections, and with its park word announced to its neighbours.
struct MixedParker {
    near: Alarm,
    far: Box<dyn Parker>,
}

impl Parker for MixedParker {
    fn park(&mut self, timeout: Duration, ready: &mut dyn FnMut() -> bool) {
        let Self { near, far } = self;
        // Both park words are announced before the last look for work: work that is visible by then
        // is found, and a thread that makes work visible later sees an announcement.
        near.announce();
        far.park(timeout, &mut || ready() || near.has_events());
        near.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use primitive::sync::Ordering;
    use transport_api::conformance::Rack;
    use transport_api::{Event, Rights};
    use transport_shm::Neighbours;
    use transport_tcp::{Credentials, JobId, TcpConfig};

    use super::*;

    /// Four hosts on two machines; `machines` says which hosts share one. All are in this process,
    /// with the sockets and memory of separate ones.
    fn hosts(machines: [[u32; 2]; 2], threads: u32) -> Vec<Arc<Mixed>> {
        let listeners = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").expect("a listener"));
        let addresses: Vec<_> =
            listeners.iter().map(|listener| listener.local_addr().expect("an address")).collect();
        let join = |(number, listener): (u32, TcpListener)| {
            let machine = usize::from(machines[1].contains(&number));
            let members: Vec<_> = machines[machine].iter().copied().map(HostId).collect();
            // No two racks of this machine, whose tests run side by side, have the same.
            let mut secret = [machine as u8; 32];
            secret[..2].copy_from_slice(&addresses[machine].port().to_ne_bytes());
            secret[2..6].copy_from_slice(&std::process::id().to_ne_bytes());
            let (host, build, none) = (HostId(number), [7; 32], Credentials::InsecureLoopback);
            let (names, addresses) = ((JobId(1), build), addresses.clone());
            let config = TcpConfig::new(names, host, addresses, listener, threads, none);
            let neighbours = members.clone();
            // The machine that runs the tests may be busy with much else.
            let loss_bound = Duration::from_secs(10);
            let config = TcpConfig { neighbours, loss_bound, ..config };
            thread::spawn(move || {
                let near = Neighbours { host, members, hosts: 4, threads, secret, build };
                let (near, alarms) = ShmTransport::join_neighbours(&near).expect("neighbours");
                Mixed::new(near, alarms, TcpTransport::join(config).expect("a rack"))
            })
        };
        let joins: Vec<_> = (0..).zip(listeners).map(join).collect();
        joins.into_iter().map(|join| join.join().expect("no panic")).collect()
    }

    /// The suite uses hosts 0 and 1 of such a rack as if it had no others.
    fn rack(machines: [[u32; 2]; 2], threads: u32) -> Rack {
        let Rack { mut hosts, kill } = whole_rack(machines, threads);
        hosts.truncate(2);
        Rack { hosts, kill }
    }

    fn whole_rack(machines: [[u32; 2]; 2], threads: u32) -> Rack {
        let all = hosts(machines, threads);
        let seen = all.iter().map(|host| host.clone() as Arc<dyn Transport>).collect();
        let kill = move |HostId(host): HostId| {
            all[host as usize].near.sever();
            all[host as usize].far.sever();
        };
        Rack { hosts: seen, kill: Box::new(kill) }
    }

    /// The whole suite between hosts of one machine.
    mod on_one_machine {
        fn rack(_: u32, threads: u32) -> transport_api::conformance::Rack {
            super::rack([[0, 1], [2, 3]], threads)
        }
        transport_api::conformance!(rack);
    }

    /// The whole suite between hosts of two machines.
    mod on_two_machines {
        fn rack(_: u32, threads: u32) -> transport_api::conformance::Rack {
            super::rack([[0, 2], [1, 3]], threads)
        }
        transport_api::conformance!(rack);
    }

    /// The suite of segments where players 0 and 1 are on one machine, and player 2 on another.
    mod segments_on_one_machine {
        fn rack(_: u32, threads: u32) -> transport_api::conformance::Rack {
            super::whole_rack([[0, 1], [2, 3]], threads)
        }
        gossamer_segment::conformance!(rack);
    }

    /// The suite of segments where player 1 is on another machine than players 0 and 2.
    mod segments_on_two_machines {
        fn rack(_: u32, threads: u32) -> transport_api::conformance::Rack {
            super::whole_rack([[0, 2], [1, 3]], threads)
        }
        gossamer_segment::conformance!(rack);
    }

    /// Memory that only one of the transports could export again was exported by none: no revocation
    /// waits for what hosts begin meanwhile.
    #[test]
    fn memory_is_exported_again_on_both_or_on_neither() {
        let hosts = hosts([[0, 1], [2, 3]], 1);
        let (key, all) = (RegionKey(1), Access::all(Rights::ALL));
        let region = hosts[0].export(key, 64, all.clone()).expect("an export");
        hosts[0].revoke(key).expect("a revocation");
        let import = |host: usize, timeout| hosts[host].import(HostId(0), key, timeout);
        let unknown =
            |host| matches!(import(host, Duration::ZERO), Err(RegionError::Unknown { .. }));
        let in_the_way = hosts[0].far.export(key, 64, all.clone()).expect("an export");
        let taken = hosts[0].reexport(&region, all.clone()).map(drop);
        assert!(matches!(taken, Err(RegionError::KeyTaken(_))), "{taken:?}");
        assert!(unknown(1), "near, it is not exported");
        drop(in_the_way);
        let in_the_way = hosts[0].near.export(key, 64, all.clone()).expect("an export");
        assert_eq!(in_the_way.generation(), 1, "near, it was not exported meanwhile");
        let taken = hosts[0].reexport(&region, all.clone()).map(drop);
        assert!(matches!(taken, Err(RegionError::KeyTaken(_))), "{taken:?}");
        assert!(unknown(2), "far, it is not exported any more");
        drop(in_the_way);
        let again = hosts[0].reexport(&region, all).expect("the key is free");
        for host in 1..4 {
            let import = import(host, Duration::from_secs(20)).expect("a region");
            assert_eq!(import.len(), again.memory().len());
        }
    }

    #[test]
    fn a_region_is_one_whichever_way_it_is_reached() {
        let hosts = hosts([[0, 1], [2, 3]], 1);
        let key = RegionKey(1);
        let region = hosts[0].export(key, 64, Rights::ALL.into()).expect("an export");
        let again = hosts[0].export(key, 64, Rights::ALL.into()).map(drop);
        assert!(matches!(again, Err(RegionError::KeyTaken(_))));
        let others: Vec<_> = [(1, true), (2, false), (3, false)]
            .into_iter()
            .map(|(host, is_near)| {
                let import = hosts[host].import(HostId(0), key, Duration::from_secs(20));
                let import = import.expect("an import");
                assert_eq!(import.mapped().is_some(), is_near, "host {host}");
                (hosts[host].lane(0, HostId(0)).expect("a lane"), import)
            })
            .collect();
        // Each adds a number of its own to the same word.
        for (number, (mut lane, import)) in (0..).zip(others) {
            lane.fetch_add(&import, 8, 1 << (8 * number), 1).expect("an addition");
            lane.flush().expect("a flush");
            let mut has_come = false;
            while !has_come {
                lane.poll(&mut |event| has_come |= matches!(event, Event::Completed { .. }));
            }
        }
        assert_eq!(region.memory().load(8, Ordering::Acquire), 0x010101);
        drop(region);
        let again = hosts[0].export(key, 64, Rights::ALL.into()).expect("it is free on both");
        assert_eq!(again.generation(), 1);
        hosts[0].revoke(key).expect("a revocation");
        for host in [1, 3] {
            let gone = hosts[host].import(HostId(0), key, Duration::ZERO).map(drop);
            assert!(matches!(gone, Err(RegionError::Unknown { .. })), "host {host}");
        }
    }
}
