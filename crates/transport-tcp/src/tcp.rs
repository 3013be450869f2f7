//! [`TcpTransport`]: one process's place in a rack of machines.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use primitive::SharedBytes;
use rustix::event::epoll;
use rustix::net::sockopt;
use transport_api::{
    Access, Carrier, HostId, Lane, LaneError, Parker, Region, RegionError, RegionKey, RemoteRegion,
    ThreadId, Transport, deadline,
};
use transport_control::{
    Config, CutOff, Goodbye, HEARTBEATS_PER_BOUND, Importer, LEAVE_GRACE, QUIET_TIMEOUT, Reach,
    Requester,
};

use crate::conn::Conn;
use crate::control::conn::{ControlConn, UNACKNOWLEDGED};
use crate::host::{Host, Peer, ThreadState};
use crate::join::Joining;
use crate::lane::TcpLane;
use crate::lane::local::LocalLane;
use crate::lane::parker::TcpParker;
use crate::machine::Machine;
use crate::readiness::{self, ALARM};
use crate::service::Service;
use crate::service_queue::{ServiceQueue, Task};
use crate::{Credentials, JobId, JoinError, TcpConfig};

/// The loss bound of [`TcpTransport::in_process`].
const IN_PROCESS_LOSS_BOUND: Duration = Duration::from_secs(10);

/// One process's place in a rack whose hosts are connected over TCP.
///
/// Dropping it closes its connections: peers that have not seen a goodbye report it as lost. Lanes,
/// parkers and regions made from it stay valid for this process.
pub struct TcpTransport {
    pub(crate) host: Arc<Host>,
    /// Whether TLS has authenticated all peers; true without peers.
    is_authenticated: bool,
    service: Mutex<Option<JoinHandle<()>>>,
}

impl TcpTransport {
    /// Takes this host's place in the rack, and returns when it is connected with all others.
    ///
    /// A host dials those with lower numbers and waits for those with higher ones: for each, one
    /// connection for every thread and one for control. Every connection is checked before an
    /// operation on it is decoded: both sides' certificates, the job, the build, the number of the
    /// host. A process that does not pass gets the reason, and is logged; a connection on which nothing
    /// arrives makes room for others. Once the rack is complete, no host listens any more.
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
        let is_authenticated = matches!(config.credentials, Credentials::Tls { .. }) || hosts == 1;
        let timeout = config.join_timeout;
        let mut wires = Joining::new(config)?.run()?;
        let is_connected = |peer: &HostId| *peer != local && !neighbours.contains(peer);
        let asks = readiness::asks((0..hosts as u32).map(HostId).filter(is_connected).count());
        let begins = deadline(Instant::now(), timeout);
        // The kernel takes an `int`, and none is negative.
        let millis = |time: Duration| time.as_millis().clamp(1, i32::MAX as u128) as u32;
        let (mut peers, mut controls) = (Vec::new(), Vec::new());
        for peer in (0..hosts as u32).map(HostId) {
            if !is_connected(&peer) {
                peers.push(Peer::new(Vec::new()));
                continue;
            }
            let control = wires.control(peer)?;
            // What the kernel is to notice within the bound, also when the bound is all there is.
            let acknowledged = millis(bound / HEARTBEATS_PER_BOUND * UNACKNOWLEDGED);
            sockopt::set_tcp_user_timeout(&control, acknowledged).map_err(io::Error::from)?;
            controls.push(ControlConn::new(peer, control));
            let mut links = Vec::new();
            for thread in 0..threads {
                let wire = wires.thread(peer, thread)?;
                // Its window may be full as long as the process at the other end is stopped.
                sockopt::set_tcp_user_timeout(&wire, millis(bound.saturating_mul(2)))
                    .map_err(io::Error::from)?;
                let machine = Machine::new(ThreadId { host: peer, thread }, threads);
                links.push(Conn::new(wire, machine, asks));
            }
            peers.push(Peer::new(links));
        }
        let state = |_| ThreadState::new(hosts, asks);
        let thread_states = (0..threads).map(state).collect::<Result<_, _>>()?;
        let control = Config {
            local,
            hosts: hosts as u32,
            loss_bound: Some(bound),
            reach: Reach::ByOwner,
            cut_off: CutOff::AtEnd,
            goodbye: Goodbye::DataPath,
            revocation_timeout: Some(QUIET_TIMEOUT),
        };
        let host = Arc::new(Host::new(control, peers, thread_states, ServiceQueue::new()?));
        for peer in host.others() {
            host.plane.lock().control.connected(peer, begins);
        }
        let service = Service::new(host.clone(), controls);
        service.register()?;
        let thread = thread::Builder::new().name("gossamer-tcp".into());
        let thread = thread.spawn(|| service.run())?;
        Ok(Arc::new(Self { host, is_authenticated, service: Mutex::new(Some(thread)) }))
    }

    /// A rack of `hosts` hosts that all live in this process and are connected over loopback, for tests
    /// and measurements. `change` may change the settings of each host: by default they have no
    /// credentials, and a loss bound of ten seconds, since the machine may be busy.
    ///
    /// ```
    /// use gossamer_transport_tcp::TcpTransport;
    /// use transport_api::Transport;
    ///
    /// let rack = TcpTransport::in_process(2, 1, |_| ())?;
    /// assert!(rack.iter().all(|host| host.hosts() == 2));
    /// # Ok::<(), gossamer_transport_tcp::JoinError>(())
    /// ```
    ///
    /// # Errors
    /// Any [`JoinError`].
    pub fn in_process(
        hosts: u32,
        threads: u32,
        change: impl Fn(&mut TcpConfig),
    ) -> Result<Vec<Arc<TcpTransport>>, JoinError> {
        let listen = |_| TcpListener::bind("127.0.0.1:0");
        let listeners: Vec<_> = (0..hosts).map(listen).collect::<Result<_, _>>()?;
        let addresses = listeners.iter().map(TcpListener::local_addr);
        let addresses: Vec<_> = addresses.collect::<Result<_, _>>()?;
        let config = |(host, listener)| {
            let (names, addresses) = ((JobId(1), [7; 32]), addresses.clone());
            let none = Credentials::InsecureLoopback;
            let mut config =
                TcpConfig::new(names, HostId(host), addresses, listener, threads, none);
            config.loss_bound = IN_PROCESS_LOSS_BOUND;
            change(&mut config);
            config
        };
        let configs: Vec<_> = (0..).zip(listeners).map(config).collect();
        thread::scope(|scope| {
            let join = |config| scope.spawn(|| TcpTransport::join(config));
            let joins: Vec<_> = configs.into_iter().map(join).collect();
            let joined = |join: thread::ScopedJoinHandle<'_, _>| {
                join.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            joins.into_iter().map(joined).collect()
        })
    }

    /// Cuts this host off from the others without a goodbye, as a crash would: they report it as
    /// lost. For tests of what happens then.
    pub fn sever(&self) {
        self.host.service_queue.push(Task::Stop);
        let service = self.service.lock().take();
        if let Some(service) = service {
            // If it panicked there is nothing left to end.
            let _ = service.join();
        }
    }

    /// The parker of runtime thread `thread`, which `alarm` rings, too: a descriptor that
    /// becomes readable anew each time. The parker does not read it.
    ///
    /// # Errors
    /// As [`Transport::parker`].
    pub fn parker_beside(
        &self,
        thread: u32,
        alarm: impl AsFd,
    ) -> Result<Box<dyn Parker>, LaneError> {
        let parker = self.take_parker(thread)?;
        self.host.thread_state(thread).watch(alarm)?;
        Ok(Box::new(parker))
    }

    fn take_parker(&self, thread: u32) -> Result<TcpParker, LaneError> {
        self.host.event_queues.take_parker(thread)?;
        Ok(TcpParker::new(self.host.clone(), thread))
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

    fn streams(&self, peer: HostId) -> bool {
        peer != self.host.local
    }

    fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    fn export(&self, key: RegionKey, len: usize, access: Access) -> Result<Region, RegionError> {
        self.host.export(key, len, access)
    }

    fn revoke(&self, key: RegionKey) -> Result<(), RegionError> {
        if self.host.revoke(key, None, None) {
            return Ok(());
        }
        Err(RegionError::Unknown { owner: self.host.local, key })
    }

    fn begin_revoke(&self, thread: u32, key: RegionKey, token: u64) -> Result<(), RegionError> {
        let requester = Requester::Revoke { thread, token };
        if self.host.revoke(key, None, Some(requester)) {
            return Ok(());
        }
        Err(RegionError::Unknown { owner: self.host.local, key })
    }

    fn reexport(&self, region: &Region, access: Access) -> Result<Region, RegionError> {
        self.host.reexport(region, access)
    }

    fn import(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> Result<RemoteRegion, RegionError> {
        self.host.import(owner, key, timeout)
    }

    fn begin_import(
        &self,
        thread: u32,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        token: u64,
    ) -> Result<(), RegionError> {
        self.host.begin_import(owner, key, timeout, Importer::Lane { thread, token }).map(drop)
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
        // Before the goodbyes: peers answer the last one at once.
        let (sender, departed) = mpsc::channel();
        let requester = Requester::Leave(sender);
        self.host.plane.lock().control.leave(Instant::now(), requester);
        for (peer, thread) in self.host.links() {
            let mut conn = self.host.link(peer, thread).lock();
            conn.machine.goodbye();
            self.host.push_or_lose(conn, peer, thread);
        }
        self.host.poll_control();
        // It comes when all have seen the goodbye, at the latest when the grace is over, unless the
        // service thread has failed.
        let _ = departed.recv_timeout(2 * LEAVE_GRACE);
    }
}

impl Carrier for TcpTransport {
    fn watch(&self, thread: u32, file: &dyn AsFd) -> io::Result<()> {
        let states = &self.host.thread_states;
        let state = states.get(thread as usize).ok_or(io::ErrorKind::NotFound)?;
        let event = epoll::EventData::new_u64(ALARM);
        Ok(epoll::add(&state.epoll, file, event, epoll::EventFlags::IN)?)
    }

    fn export_memory(
        &self,
        key: RegionKey,
        memory: SharedBytes,
        access: Access,
    ) -> Result<Region, RegionError> {
        self.host.export_memory(key, access, memory)
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
