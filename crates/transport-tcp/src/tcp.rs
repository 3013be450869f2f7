//! [`TcpTransport`]: one process's place in a rack of machines.

use crate::{
    JoinError, TcpConfig,
    conn::Conn,
    control::{BEATS, Control, UNACKNOWLEDGED},
    host::{ALARM, Host, Peer, Seat},
    join::Joining,
    lane::TcpLane,
    local::LocalLane,
    machine::Machine,
    parker::TcpParker,
    service::{Desk, Order, Service},
};
use primitive::SharedBytes;
use rustix::{event::epoll, net::sockopt};
use std::{
    io,
    os::fd::AsFd,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use transport_api::{
    Access, Carrier, HostId, Importer, Lane, LaneError, Parker, Region, RegionError, RegionKey,
    RemoteRegion, Rights, ThreadId, Transport, Waiting, deadline,
};

/// How long peers may take to answer an import beyond its timeout, or to hear a goodbye.
const ANSWER: Duration = Duration::from_secs(2);

/// One process's place in a rack whose hosts are connected over TCP.
///
/// Dropping it closes its connections: peers that have not seen a goodbye report it as lost. Lanes,
/// parkers and regions made from it stay valid for this process.
pub struct TcpTransport {
    host: Arc<Host>,
    service: Mutex<Option<JoinHandle<()>>>,
}

impl TcpTransport {
    /// Takes this host's place in the rack, and returns when it is connected with all others.
    ///
    /// A host dials those with lower numbers and waits for those with higher ones: for each, one
    /// connection for every thread and one for control. Every connection is checked before a byte
    /// of anybody's operations is decoded: both sides' certificates, the job, the build, the number
    /// of the host. Who does not pass is told why and logged; who says nothing makes room for
    /// others. Once the rack is complete, nobody listens any more.
    ///
    /// ```
    /// use gossamer_transport_tcp::{Credentials, JobId, TcpConfig, TcpTransport};
    /// use std::{net::TcpListener, thread};
    /// use transport_api::{HostId, PeerEvent, Transport};
    ///
    /// let listen = || TcpListener::bind("127.0.0.1:0");
    /// let listeners = [listen()?, listen()?];
    /// let addresses = listeners.iter().map(|l| l.local_addr()).collect::<Result<Vec<_>, _>>()?;
    /// let joins = (0..).zip(listeners).map(|(host, listener)| {
    ///     let (addresses, credentials) = (addresses.clone(), Credentials::InsecureLoopback);
    ///     let names = (JobId(1), [0; 32]);
    ///     let config = TcpConfig::new(names, HostId(host), addresses, listener, 1, credentials);
    ///     thread::spawn(|| TcpTransport::join(config))
    /// });
    /// let joins: Vec<_> = joins.collect();
    /// let hosts: Vec<_> = joins.into_iter().map(|join| join.join().unwrap()).collect();
    /// assert!(hosts.iter().all(|host| host.as_ref().is_ok_and(|host| host.hosts() == 2)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Any [`JoinError`].
    pub fn join(config: TcpConfig) -> Result<Arc<TcpTransport>, JoinError> {
        let (local, threads, bound) = (config.host, config.threads, config.loss_bound);
        let hosts = config.addresses.len();
        let neighbours = config.neighbours.clone();
        let timeout = config.join_timeout;
        let mut wires = Joining::new(config)?.run()?;
        let begins = deadline(Instant::now(), timeout);
        // The kernel takes an `int`, and none is negative.
        let millis = |time: Duration| time.as_millis().clamp(1, i32::MAX as u128) as u32;
        let (mut peers, mut controls) = (Vec::new(), Vec::new());
        for peer in (0..hosts as u32).map(HostId) {
            if peer == local || neighbours.contains(&peer) {
                peers.push(Peer::new(Vec::new()));
                continue;
            }
            let control = wires.control(peer)?;
            // What the kernel is to notice within the bound, also when the bound is all there is.
            let acknowledged = millis(bound / BEATS * UNACKNOWLEDGED);
            sockopt::set_tcp_user_timeout(&control, acknowledged).map_err(io::Error::from)?;
            controls.push(Control::new(peer, control, begins));
            let mut links = Vec::new();
            for thread in 0..threads {
                let wire = wires.thread(peer, thread)?;
                // Its window may be full as long as the process at the other end is stopped.
                sockopt::set_tcp_user_timeout(&wire, millis(bound.saturating_mul(2)))
                    .map_err(io::Error::from)?;
                let machine = Machine::new(ThreadId { host: peer, thread }, threads);
                links.push(Conn::new(wire, machine));
            }
            peers.push(Peer::new(links));
        }
        let seats = (0..threads).map(|_| Seat::new()).collect::<Result<_, _>>()?;
        let host = Host::new(local, peers, seats, Desk::new()?);
        let service = Service::new(host.clone(), controls, bound);
        service.register()?;
        let thread = thread::Builder::new().name("gossamer-tcp".into());
        let thread = thread.spawn(|| service.run())?;
        Ok(Arc::new(Self { host, service: Mutex::new(Some(thread)) }))
    }

    /// Cuts this host off from the others without a goodbye, as a crash would: they report it as
    /// lost. For tests of what happens then.
    pub fn sever(&self) {
        self.host.desk.leave(Order::Stop);
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(service) = service {
            // If it panicked there is nothing left to end.
            let _ = service.join();
        }
    }

    /// Exports memory that another transport exports, so that the hosts of this one reach it, too:
    /// under the same key and with the same access. The returned region keeps the other; what is
    /// revoked here is still exported there.
    ///
    /// # Errors
    /// [`RegionError::KeyTaken`].
    pub fn export_also(&self, region: Region) -> Result<Region, RegionError> {
        let (key, access, memory) =
            (region.key(), region.access().clone(), region.memory().clone());
        let also = self.host.exports.export_memory(key, access.clone(), memory.clone())?;
        self.host.desk.ring();
        let generation = also.generation();
        // This transport's goes first: the key is free here by the time it is free there.
        Ok(Region::new(key, access, generation, memory, Arc::new((also, region))))
    }

    /// The parker of runtime thread `thread`, which `alarm` rings, too: a descriptor that
    /// becomes readable anew each time. The parker does not read it.
    ///
    /// # Errors
    /// As [`Transport::parker`].
    pub fn bell_beside(&self, thread: u32, alarm: impl AsFd) -> Result<Box<dyn Parker>, LaneError> {
        let parker = self.take_parker(thread)?;
        self.host.seat(thread).watch(alarm)?;
        Ok(Box::new(parker))
    }

    fn take_parker(&self, thread: u32) -> Result<TcpParker, LaneError> {
        self.host.event_queues.take_parker(thread)?;
        Ok(TcpParker::new(self.host.clone(), thread))
    }

    /// Gives `importer` the region that `owner` exports under `key`, or will within `timeout`.
    fn start_import(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        importer: Importer,
    ) -> Result<(), RegionError> {
        if !self.host.reaches(owner) {
            return Err(RegionError::NoSuchHost(owner));
        }
        if owner == self.host.local {
            self.import_own(key, timeout, importer);
            return Ok(());
        }
        if self.host.end_of(owner).is_some() {
            return Err(self.lost(owner));
        }
        self.host.desk.leave(Order::Import { owner, key, timeout, importer });
        Ok(())
    }

    /// A region of this host, which may not be exported yet.
    fn import_own(&self, key: RegionKey, timeout: Duration, importer: Importer) {
        let (host, now) = (self.host.clone(), Instant::now());
        let wait = move |until| {
            let owner = host.local;
            let result = match host.exports.wait(key, until) {
                None => Err(RegionError::Unknown { owner, key }),
                Some(region) if region.access.of(owner) == Rights::NONE => {
                    Err(RegionError::Denied { owner, key })
                }
                Some(region) => Ok(RemoteRegion::mapping(Arc::new(region.window(host.id, owner)))),
            };
            importer.answer(result, |thread, event| host.deliver(thread, owner, event));
        };
        if timeout.is_zero() || self.host.exports.get(key).is_some() {
            return wait(now);
        }
        // Not on the caller's thread, which must not block.
        thread::spawn(move || wait(deadline(now, timeout)));
    }

    /// Why nothing can be had from `owner` any more.
    fn lost(&self, owner: HostId) -> RegionError {
        RegionError::lost(owner, self.host.end_of(owner))
    }
}

impl Transport for TcpTransport {
    fn local(&self) -> HostId {
        self.host.local
    }

    fn hosts(&self) -> u32 {
        self.host.event_queues.hosts()
    }

    fn threads(&self) -> u32 {
        self.host.threads
    }

    fn maps(&self, peer: HostId) -> bool {
        peer == self.host.local
    }

    fn export(&self, key: RegionKey, len: usize, access: Access) -> Result<Region, RegionError> {
        let region = self.host.exports.export(key, len, access)?;
        // A peer may be waiting for it.
        self.host.desk.ring();
        Ok(region)
    }

    fn revoke(&self, key: RegionKey) -> Result<(), RegionError> {
        if self.host.exports.withdraw(key, None) {
            return Ok(());
        }
        Err(RegionError::Unknown { owner: self.host.local, key })
    }

    fn begin_revoke(&self, thread: u32, key: RegionKey, token: u64) -> Result<(), RegionError> {
        self.revoke(key)?;
        // Peers are past it: what remains are this host's own threads.
        self.host.quiet_points.begin(Waiting { thread, token });
        (0..self.host.threads).for_each(|thread| self.host.wake(thread));
        self.host.report_quiet();
        Ok(())
    }

    fn import(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> Result<RemoteRegion, RegionError> {
        let (answer, answered) = mpsc::channel();
        self.start_import(owner, key, timeout, Importer::Blocked(answer))?;
        match answered.recv_timeout(timeout.saturating_add(ANSWER)) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(RegionError::Unknown { owner, key }),
            Err(RecvTimeoutError::Disconnected) => Err(self.lost(owner)),
        }
    }

    fn begin_import(
        &self,
        thread: u32,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        token: u64,
    ) -> Result<(), RegionError> {
        self.start_import(owner, key, timeout, Importer::Lane { thread, token })
    }

    fn lane(&self, thread: u32, peer: HostId) -> Result<Box<dyn Lane>, LaneError> {
        if !self.host.reaches(peer) {
            return Err(LaneError::NoSuchHost(peer));
        }
        let (host, event_queue) = (self.host.clone(), self.host.event_queues.open(thread, peer)?);
        if peer == self.host.local {
            return Ok(Box::new(LocalLane::new(host, event_queue)));
        }
        Ok(Box::new(TcpLane::new(host, event_queue)))
    }

    fn parker(&self, thread: u32) -> Result<Box<dyn Parker>, LaneError> {
        Ok(Box::new(self.take_parker(thread)?))
    }

    fn unpark(&self, thread: u32) {
        if thread < self.host.threads {
            self.host.wake(thread);
        }
    }

    fn leave(&self) {
        for (peer, thread) in self.host.links() {
            let mut conn = self.host.link(peer, thread);
            conn.machine.goodbye();
            self.host.push_or_lose(conn, peer, thread);
        }
        let (said, heard) = mpsc::channel();
        self.host.desk.leave(Order::Goodbye { _said: said });
        // It closes when all have heard; a peer that hangs must not hang this.
        let _ = heard.recv_timeout(ANSWER);
    }
}

impl Carrier for TcpTransport {
    fn watch(&self, thread: u32, file: &dyn AsFd) -> io::Result<()> {
        let seat = self.host.seats.get(thread as usize).ok_or(io::ErrorKind::NotFound)?;
        let event = epoll::EventData::new_u64(ALARM);
        Ok(epoll::add(&seat.epoll, file, event, epoll::EventFlags::IN)?)
    }

    fn export_memory(
        &self,
        key: RegionKey,
        memory: SharedBytes,
        access: Access,
    ) -> Result<Region, RegionError> {
        let region = self.host.exports.export_memory(key, access, memory)?;
        // A peer may be waiting for it.
        self.host.desk.ring();
        Ok(region)
    }

    fn sever(&self) {
        TcpTransport::sever(self);
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        self.sever();
    }
}
