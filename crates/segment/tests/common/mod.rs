//! What the tests of this crate share: racks over shared memory and over TCP, and a thread that runs
//! fibers.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::net::TcpListener;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use fiber::{Config, Scheduler, spawn_local};
use gossamer_segment::Segments;
use primitive::SharedBytes;
use progress::Progress;
use transport_api::{
    Access, Event, HostId, Lane, LaneError, Namespace, OpError, Parker, Region, RegionError,
    RegionKey, RemoteRegion, Tag, Transport,
};
use transport_shm::ShmTransport;
use transport_tcp::{Credentials, JobId, TcpConfig, TcpTransport};

/// How long a test may take: what would hang fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// A host of a rack.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) segments: Segments,
    pub(crate) transport: Arc<dyn Transport>,
}

impl Host {
    fn new(transport: Arc<dyn Transport>) -> Host {
        Host { segments: Segments::new(transport.clone()), transport }
    }
}

/// A rack whose hosts share memory.
pub(crate) fn shm(hosts: u32, threads: u32) -> Vec<Host> {
    let hosts = ShmTransport::in_process(hosts, threads).expect("a rack");
    hosts.into_iter().map(|host| Host::new(host)).collect()
}

/// A rack over loopback.
pub(crate) fn tcp(hosts: u32, threads: u32) -> Vec<Host> {
    let listeners: Vec<_> =
        (0..hosts).map(|_| TcpListener::bind("127.0.0.1:0").expect("a listener")).collect();
    let addresses: Vec<_> =
        listeners.iter().map(|listener| listener.local_addr().expect("an address")).collect();
    let joins = (0..).zip(listeners).map(|(host, listener)| {
        let (names, addresses) = ((JobId(15), [0; 32]), addresses.clone());
        let credentials = Credentials::InsecureLoopback;
        let mut config =
            TcpConfig::new(names, HostId(host), addresses, listener, threads, credentials);
        // Machines that run many tests at once are slow, not lost.
        config.loss_bound = Duration::from_secs(30);
        thread::spawn(|| TcpTransport::join(config))
    });
    let joins: Vec<_> = joins.collect();
    let join = |join: thread::JoinHandle<Result<Arc<TcpTransport>, _>>| {
        Host::new(join.join().expect("no panic").expect("a host"))
    };
    joins.into_iter().map(join).collect()
}

/// Runs `test` on both, each within a time.
pub(crate) fn on_each(hosts: u32, threads: u32, test: fn(&[Host])) {
    bounded(move || test(&shm(hosts, threads)));
    bounded(move || test(&tcp(hosts, threads)));
}

/// Runs `test`, which fails if it does not end in time.
pub(crate) fn bounded(test: impl FnOnce() + Send + 'static) {
    let (ended, has_ended) = mpsc::channel();
    let running = thread::spawn(move || {
        test();
        // The receiver may have given up.
        let _ = ended.send(());
    });
    match has_ended.recv_timeout(DEADLINE) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it has not ended after {DEADLINE:?}"),
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {
            running.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    }
}

/// Attaches the calling thread as `thread`, runs `main` in a fiber of it, and returns when that has
/// ended.
pub(crate) fn in_fiber<R: 'static>(
    host: &Host,
    thread: u32,
    main: impl FnOnce() -> R + 'static,
) -> R {
    let transport = &host.transport;
    let lanes = (0..transport.hosts())
        .map(|peer| transport.lane(thread, HostId(peer)).expect("a lane"))
        .collect();
    let all_mapped = (0..transport.hosts()).all(|peer| transport.maps(HostId(peer)));
    let progress = Progress::new(lanes, all_mapped);
    let mut parker = transport.parker(thread).expect("a parker");
    let there = transport.clone();
    let config = Config { wake: Arc::new(move || there.unpark(thread)), ..Config::default() };
    let scheduler = Scheduler::new(config).expect("a scheduler");
    let _attached = host.segments.attach_worker(thread, progress.clone());
    let result = scheduler.enter(|| {
        let main = spawn_local(main);
        while !main.is_finished() {
            if scheduler.run(64) > 0 || progress.poll() {
                continue;
            }
            let now = Instant::now();
            let deadline = scheduler.expire(now);
            let timeout = deadline.map_or(DEADLINE, |deadline| deadline - now);
            parker.park(timeout, &mut || {
                scheduler.has_ready() || scheduler.drain_inbox() || progress.poll()
            });
        }
        main.join()
    });
    progress.close();
    result.expect("a fiber that ends without a panic")
}

/// What goes wrong at a host, as long as it is set.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    /// Memory is not exported again.
    pub(crate) no_reexport: Arc<AtomicBool>,
    /// Lanes keep what they have to report.
    pub(crate) no_events: Arc<AtomicBool>,
    /// No fault: the most notifications that a lane of the host has held back.
    pub(crate) most_waiting: Arc<AtomicUsize>,
}

/// The same host, over a transport with faults.
pub(crate) fn faulty(host: &Host) -> (Host, Faults) {
    let faults = Faults::default();
    (Host::new(Arc::new(Faulty(host.transport.clone(), faults.clone()))), faults)
}

/// A lane that keeps its events while it is told to.
struct Holding {
    lane: Box<dyn Lane>,
    faults: Faults,
    held: Vec<Event>,
}

impl Lane for Holding {
    fn peer(&self) -> HostId {
        self.lane.peer()
    }
    fn write(&mut self, to: &RemoteRegion, at: usize, from: &SharedBytes) -> Result<(), OpError> {
        self.lane.write(to, at, from)
    }
    fn signal(&mut self, to: &RemoteRegion, at: usize, word: u64) -> Result<(), OpError> {
        self.lane.signal(to, at, word)
    }
    fn read(
        &mut self,
        from: &RemoteRegion,
        at: usize,
        into: &SharedBytes,
        token: u64,
    ) -> Result<(), OpError> {
        self.lane.read(from, at, into, token)
    }
    fn compare_swap(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        expected: u64,
        new: u64,
        token: u64,
    ) -> Result<(), OpError> {
        self.lane.compare_swap(on, at, expected, new, token)
    }
    fn fetch_add(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        addend: u64,
        token: u64,
    ) -> Result<(), OpError> {
        self.lane.fetch_add(on, at, addend, token)
    }
    fn write_notify(
        &mut self,
        to: &RemoteRegion,
        at: usize,
        from: &SharedBytes,
        thread: u32,
        value: u32,
    ) -> Result<(), OpError> {
        let started = self.lane.write_notify(to, at, from, thread, value);
        self.faults.most_waiting.fetch_max(self.lane.waiting_notifications(), Ordering::Relaxed);
        started
    }
    fn fence(&mut self, token: u64) -> Result<(), OpError> {
        self.lane.fence(token)
    }
    fn bulk(&mut self, thread: u32, tag: Tag, payload: Vec<u8>) -> Result<(), OpError> {
        self.lane.bulk(thread, tag, payload)
    }
    fn waiting_notifications(&self) -> usize {
        self.lane.waiting_notifications()
    }
    fn waiting_bulk(&self, namespace: Namespace) -> usize {
        self.lane.waiting_bulk(namespace)
    }
    fn flush(&mut self) -> Result<(), OpError> {
        self.lane.flush()
    }
    fn wake(&mut self, thread: u32) {
        self.lane.wake(thread);
    }
    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> bool {
        let held = &mut self.held;
        let moved = self.lane.poll(&mut |event| held.push(event));
        if self.faults.no_events.load(Ordering::Relaxed) {
            return moved;
        }
        let any = !self.held.is_empty();
        self.held.drain(..).for_each(sink);
        moved || any
    }
}

struct Faulty(Arc<dyn Transport>, Faults);

impl Transport for Faulty {
    fn local(&self) -> HostId {
        self.0.local()
    }
    fn hosts(&self) -> u32 {
        self.0.hosts()
    }
    fn threads(&self) -> u32 {
        self.0.threads()
    }
    fn maps(&self, peer: HostId) -> bool {
        self.0.maps(peer)
    }
    fn export(&self, key: RegionKey, len: usize, access: Access) -> Result<Region, RegionError> {
        self.0.export(key, len, access)
    }
    fn revoke(&self, key: RegionKey) -> Result<(), RegionError> {
        self.0.revoke(key)
    }
    fn begin_revoke(&self, thread: u32, key: RegionKey, token: u64) -> Result<(), RegionError> {
        self.0.begin_revoke(thread, key, token)
    }
    fn reexport(&self, region: &Region, access: Access) -> Result<Region, RegionError> {
        if self.1.no_reexport.load(Ordering::Relaxed) {
            let (len, source) = (region.memory().len(), std::io::ErrorKind::OutOfMemory.into());
            return Err(RegionError::NoMemory { len, source });
        }
        self.0.reexport(region, access)
    }
    fn import(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> Result<RemoteRegion, RegionError> {
        self.0.import(owner, key, timeout)
    }
    fn begin_import(
        &self,
        thread: u32,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        token: u64,
    ) -> Result<(), RegionError> {
        self.0.begin_import(thread, owner, key, timeout, token)
    }
    fn lane(&self, thread: u32, peer: HostId) -> Result<Box<dyn Lane>, LaneError> {
        let (lane, faults) = (self.0.lane(thread, peer)?, self.1.clone());
        Ok(Box::new(Holding { lane, faults, held: Vec::new() }))
    }
    fn parker(&self, thread: u32) -> Result<Box<dyn Parker>, LaneError> {
        self.0.parker(thread)
    }
    fn unpark(&self, thread: u32) {
        self.0.unpark(thread);
    }
    fn leave(&self) {
        self.0.leave();
    }
}
