//! The hosts and threads of the rack: which there are, which of them this one is, which are lost, and a
//! fence over all of them.

use std::iter::FusedIterator;
use std::ops::Range;
use std::sync::Arc;

use transport_api::{HostId, ThreadId};
use trust_core::{Chain, DelegateError, Trustee};

use crate::shared::Shared;
use crate::topology::Topology;
use crate::worker::try_shared;

/// The rack of this thread.
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
pub(crate) fn shared() -> Arc<Shared> {
    match try_shared() {
        Ok(shared) => shared,
        Err(error) => panic!("{error}"),
    }
}

/// This process's host: where [`entrust`](crate::entrust) and [`spawn`](crate::spawn) put things, and where
/// exported segments are. In the closure of [`spawn_on`](crate::spawn_on) and in a delegated closure, it is
/// the host that runs the closure.
///
/// ```
/// use gossamer::{Access, Rack, Segment, local_host};
///
/// Rack::new().run(|| {
///     // All hosts may read it, and fibers of this one may write it through a remote segment.
///     let access = Access::read().write_for([local_host()]);
///     let prices = Segment::builder("prices").len(4096).access(access).export().unwrap();
///     let last = gossamer::threads().last().unwrap();
///     let opened = gossamer::spawn_on(last, || {
///         let prices = gossamer::RemoteSegment::open("prices")?;
///         Ok::<_, gossamer::SegmentError>((prices.owner(), local_host()))
///     });
///     assert_eq!(opened.join().unwrap().unwrap(), (local_host(), last.thread().host));
///     drop(prices);
/// })?;
/// # Ok::<(), gossamer::RackError>(())
/// ```
///
/// # Panics
/// Outside a thread of a rack.
#[must_use]
#[track_caller]
pub fn local_host() -> HostId {
    shared().transport.local()
}

/// The machines of the rack, the hosts on each, and the transports between them. A rack on a transport of
/// the caller ([`Rack::run_on`](crate::Rack::run_on)) counts as one of processes of this machine.
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
#[must_use]
pub fn topology() -> Topology {
    shared().topology.clone()
}

/// Every host of the rack, lost ones included.
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
pub fn hosts() -> impl ExactSizeIterator<Item = HostId> + Clone {
    (0..shared().transport.hosts()).map(HostId)
}

/// The hosts of the rack that are not lost, as far as this host knows. All of them, unless the rack
/// [goes on](crate::OnPeerLoss::Return) without a host; [`on_host_lost`](crate::on_host_lost) tells
/// when that happens.
///
/// ```
/// # gossamer::Rack::new().threads(1).run(|| {
/// use gossamer::{hosts, live_hosts, local_host};
///
/// assert!(hosts().eq(live_hosts()));
/// assert!(live_hosts().any(|host| host == local_host()));
/// # }).unwrap();
/// ```
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
pub fn live_hosts() -> impl Iterator<Item = HostId> + Clone {
    let lost = shared().lost.lock().clone();
    hosts().filter(move |host| !lost.contains(host))
}

/// Waits until every request that any thread of the rack had sent when this was called has been
/// served, and its callback has run: [`flush`](crate::flush) on all threads.
///
/// ```
/// # gossamer::Rack::new().threads(2).run(|| {
/// let total = gossamer::entrust(0u64);
/// let add = |total: gossamer::Trust<u64>| {
///     (0..100).for_each(|_| total.apply_then(|total| *total += 1, drop));
/// };
/// let fibers: Vec<_> = gossamer::threads()
///     .map(|thread| gossamer::spawn_on_with(thread, add, total.clone()))
///     .collect();
/// fibers.into_iter().for_each(|fiber| fiber.join().unwrap()); // their requests may be under way
/// gossamer::fence();
/// assert_eq!(total.apply(|total| *total), 200);
/// # }).unwrap();
/// ```
///
/// Threads of a lost host have no requests under way. As `flush`, it first has the
/// [`Scatter`](crate::Scatter)s of all fibers send what they have collected.
///
/// # Panics
/// In delegated context, and outside a fiber of a rack. If a thread cannot start the fiber that waits there,
/// for want of memory for its stack or because the thread has too many fibers.
#[track_caller]
pub fn fence() {
    trust_core::check_may_wait("`fence`", std::panic::Location::caller());
    let flushes: Vec<_> = threads().map(|thread| thread.spawn(|| trust_core::flush())).collect();
    for (thread, flush) in threads().zip(flushes) {
        match flush.join().map_err(DelegateError::from) {
            Ok(()) | Err(DelegateError::PeerLost { .. } | DelegateError::NoRack(_)) => {}
            // The rack has ended under this fiber.
            Err(_) if std::thread::panicking() => {}
            Err(error) => panic!("cannot fence the requests of {thread}: {}", Chain(&error)),
        }
    }
}

/// Every thread of the rack, host by host.
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
#[must_use]
pub fn threads() -> Trustees {
    let shared = shared();
    Trustees::new(&shared, 0..shared.transport.threads())
}

/// Every thread of the rack that holds properties, host by host: the dedicated trustees, or all
/// threads if the rack has no dedicated ones.
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
#[must_use]
pub fn trustees() -> Trustees {
    let shared = shared();
    Trustees::new(&shared, shared.trustees_of_a_host())
}

/// As [`trustees`]; an error outside a rack.
pub(crate) fn try_trustees() -> Result<Trustees, DelegateError> {
    try_shared().map(|shared| Trustees::new(&shared, shared.trustees_of_a_host()))
}

/// Threads of a rack, host by host: what [`threads`] and [`trustees`] return.
///
/// It may be moved to a fiber of the same rack, not out of the rack.
#[derive(Clone, Debug)]
pub struct Trustees {
    /// Those left, counted through all hosts.
    left: Range<u32>,
    /// The first one of each host, and how many each has.
    first: u32,
    each: u32,
    /// Threads of each host.
    threads: u32,
}

impl Trustees {
    /// These threads of every host.
    fn new(shared: &Shared, of_a_host: Range<u32>) -> Self {
        let (hosts, threads) = (shared.transport.hosts(), shared.transport.threads());
        let each = of_a_host.len() as u32;
        Trustees { left: 0..hosts * each, first: of_a_host.start, each, threads }
    }

    #[track_caller]
    fn at(&self, index: u32) -> Trustee {
        let number = index / self.each * self.threads + self.first + index % self.each;
        Trustee::from_number(number).expect("threads of the rack that is used")
    }
}

impl Iterator for Trustees {
    type Item = Trustee;

    fn next(&mut self) -> Option<Trustee> {
        let index = self.left.next()?;
        Some(self.at(index))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }

    fn nth(&mut self, n: usize) -> Option<Trustee> {
        let index = self.left.nth(n)?;
        Some(self.at(index))
    }

    fn last(mut self) -> Option<Trustee> {
        let index = self.left.next_back()?;
        Some(self.at(index))
    }
}

impl ExactSizeIterator for Trustees {}

impl FusedIterator for Trustees {}

/// The trustee of one thread of the rack.
///
/// # Panics
/// If the rack has no such thread; outside a thread of a rack.
#[must_use]
#[track_caller]
pub fn trustee(thread: ThreadId) -> Trustee {
    let transport = &shared().transport;
    let (hosts, threads) = (transport.hosts(), transport.threads());
    // Not in a closure, whose panic would name this line instead of the caller's.
    match Trustee::from_thread(thread) {
        Some(trustee) => trustee,
        None => {
            panic!("there is no {thread} in this rack of {hosts} hosts with {threads} threads each")
        }
    }
}
