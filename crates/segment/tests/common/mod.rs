//! What the tests of this crate share: racks over shared memory and over TCP, and a thread that runs
//! fibers.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use fiber::{Config, Scheduler, spawn_local};
use gossamer_segment::Segments;
use progress::Progress;
use transport_api::conformance::{Altered, Faults, within};
use transport_api::{HostId, Transport};
use transport_shm::ShmTransport;
use transport_tcp::{TcpConfig, TcpTransport};

/// How long a test may take before it counts as hung.
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
    // Machines that run many tests at once are slow, not lost.
    let change = |config: &mut TcpConfig| config.loss_bound = Duration::from_secs(30);
    let hosts = TcpTransport::in_process(hosts, threads, change).expect("a rack");
    hosts.into_iter().map(|host| Host::new(host)).collect()
}

/// Runs `test` on a rack over shared memory and on one over TCP, each within [`DEADLINE`].
pub(crate) fn on_each(hosts: u32, threads: u32, test: fn(&[Host])) {
    bounded(move || test(&shm(hosts, threads)));
    bounded(move || test(&tcp(hosts, threads)));
}

/// Runs `test`, and fails if it takes longer than [`DEADLINE`].
pub(crate) fn bounded(test: impl FnOnce() + Send + 'static) {
    within(DEADLINE, test);
}

/// Attaches the calling thread as `thread`, runs `main` in a fiber of it, and returns when that has
/// ended.
pub(crate) fn in_fiber<R: 'static>(
    host: &Host,
    thread: u32,
    main: impl FnOnce() -> R + 'static,
) -> R {
    in_fiber_then(host, thread, main, |result| result)
}

/// As [`in_fiber`]; then runs `outside` with what `main` returned, outside a fiber of the thread, which
/// still is attached.
pub(crate) fn in_fiber_then<M: 'static, R>(
    host: &Host,
    thread: u32,
    main: impl FnOnce() -> M + 'static,
    outside: impl FnOnce(M) -> R,
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
        outside(main.join().expect("a fiber that ends without a panic"))
    });
    progress.close();
    result
}

/// The same host, over a transport with faults that the test sets and clears.
pub(crate) fn faulty(host: &Host) -> (Host, Faults) {
    let (transport, faults) = Altered::faulty(host.transport.clone());
    (Host::new(transport), faults)
}
