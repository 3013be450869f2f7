//! What the tests of this crate share: racks over shared memory and over TCP, and a thread that runs
//! fibers.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::net::TcpListener;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use fiber::{Config, Scheduler, spawn_local};
use gossamer_segment::Segments;
use progress::Progress;
use transport_api::{
    Access, HostId, Lane, LaneError, Parker, Region, RegionError, RegionKey, RemoteRegion,
    Transport,
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

/// A transport that does not export memory again while it is told to fail.
struct Failing(Arc<dyn Transport>, Arc<AtomicBool>);

/// The same host, over a transport that does not export memory again while the flag is set.
pub(crate) fn failing(host: &Host) -> (Host, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    (Host::new(Arc::new(Failing(host.transport.clone(), fails.clone()))), fails)
}

impl Transport for Failing {
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
        if self.1.load(Ordering::Relaxed) {
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
        self.0.lane(thread, peer)
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
