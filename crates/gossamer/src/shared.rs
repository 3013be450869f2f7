//! What the runtime threads of one process share: the transport, each other's inboxes, and how the
//! rack ends.

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use std::{io, thread};

use fiber::{Config, Remote};
use gossamer_segment::Segments;
use parking_lot::Mutex;
use primitive::drop_payload;
use transport_api::{HostId, LossReason, ThreadId, Transport};
use trust_core::{DelegateError, PanicReport};

use crate::error::Unobserved;
use crate::policy::Placement;
use crate::publications::Publications;
use crate::topology::Topology;
use crate::watcher::Watcher;
use crate::{OnPeerLoss, RackError, cause};

/// The value of [`Shared::attention`] that stops all threads.
pub(crate) const STOP: u32 = u32::MAX;

/// What the runtime threads of one process share.
pub(crate) struct Shared {
    pub(crate) transport: Arc<dyn Transport>,
    /// The machines of the rack.
    pub(crate) topology: Topology,
    /// This process's place among the segments of the rack.
    pub(crate) segments: Segments,
    /// The thread that carries out the segment operations of threads outside the rack: one for all
    /// of them, so that they keep their order.
    segment_thread: OnceLock<u32>,
    /// The trusts that this process has under names.
    pub(crate) publications: Publications,
    pub(crate) fibers: Config,
    /// Threads at the end of every host that hold properties and run no spawned fibers.
    pub(crate) dedicated: u32,
    /// How long a thread without work polls before it sleeps.
    pub(crate) sleep_after: Duration,
    on_peer_loss: OnPeerLoss,
    placement: Placement,
    /// Wakes threads for the files of their fibers; started with the first file.
    watcher: Mutex<Weak<Watcher>>,
    /// The threads of this process, once all are up.
    pub(crate) remotes: OnceLock<Vec<Remote>>,
    next_fiber: AtomicUsize,
    next_property: AtomicUsize,
    /// The next turns of what is placed all over the rack.
    next_fiber_of_rack: AtomicUsize,
    next_property_of_rack: AtomicUsize,
    /// Every thread checks it in every round: [`STOP`], or how many statistics were requested.
    attention: AtomicU32,
    #[cfg(feature = "tcp")]
    pub(crate) board: crate::board::Board,
    /// Hosts that are lost.
    pub(crate) lost: Mutex<Vec<HostId>>,
    failure: Mutex<Option<RackError>>,
    /// A host that has left before the rack has ended.
    early: Mutex<Option<HostId>>,
    unobserved: Mutex<(usize, Option<Unobserved>)>,
    /// Those of other hosts, as far as host 0 has collected them.
    unobserved_of_others: Mutex<Option<RackError>>,
    /// Whether host 0 ends the rack: other hosts that leave do so because of that.
    ends: AtomicBool,
}

/// The name of a runtime thread, for the system and debuggers.
pub(crate) fn thread_name(thread: ThreadId) -> String {
    format!("gossamer-{}.{}", thread.host.0, thread.thread)
}

impl Shared {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        topology: Topology,
        fibers: Config,
        dedicated: u32,
        sleep_after: Duration,
        on_peer_loss: OnPeerLoss,
        placement: Placement,
    ) -> Self {
        Self {
            #[cfg(feature = "tcp")]
            board: crate::board::Board::new(transport.threads()),
            segments: Segments::new(transport.clone()),
            segment_thread: OnceLock::new(),
            publications: Publications::default(),
            topology,
            transport,
            fibers,
            dedicated,
            sleep_after,
            on_peer_loss,
            placement,
            watcher: Mutex::new(Weak::new()),
            remotes: OnceLock::new(),
            next_fiber: AtomicUsize::new(0),
            next_property: AtomicUsize::new(0),
            next_fiber_of_rack: AtomicUsize::new(0),
            next_property_of_rack: AtomicUsize::new(0),
            attention: AtomicU32::new(0),
            lost: Mutex::default(),
            failure: Mutex::new(None),
            early: Mutex::new(None),
            unobserved: Mutex::new((0, None)),
            unobserved_of_others: Mutex::new(None),
            ends: AtomicBool::new(false),
        }
    }

    /// The thread that wakes others for the files of their fibers.
    pub(crate) fn watcher(&self) -> io::Result<Arc<Watcher>> {
        let mut watcher = self.watcher.lock();
        if let Some(watcher) = watcher.upgrade() {
            return Ok(watcher);
        }
        let started = Arc::new(Watcher::start(self.transport.clone())?);
        *watcher = Arc::downgrade(&started);
        Ok(started)
    }

    /// The thread of this host that gets the next spawned fiber.
    pub(crate) fn thread_for_fiber(&self) -> u32 {
        let workers = self.transport.threads() - self.dedicated;
        self.next_fiber.fetch_add(1, Ordering::Relaxed) as u32 % workers
    }

    /// The thread that gets the next fiber that may run on any host.
    pub(crate) fn place_fiber(&self) -> ThreadId {
        let workers = self.transport.threads() - self.dedicated;
        match self.placement {
            Placement::OwnHost => self.own(self.thread_for_fiber()),
            Placement::Rack => self.in_turn(&self.next_fiber_of_rack, 0..workers),
        }
    }

    /// The thread that gets the next property that any host can make.
    pub(crate) fn place_property(&self) -> ThreadId {
        match self.placement {
            Placement::OwnHost => self.own(self.thread_for_property()),
            Placement::Rack => self.in_turn(&self.next_property_of_rack, self.trustees_of_a_host()),
        }
    }

    fn own(&self, thread: u32) -> ThreadId {
        ThreadId { host: self.transport.local(), thread }
    }

    /// The next of these threads of all hosts that are not lost. One turn after another goes to
    /// different hosts, and each host begins with itself, so that hosts which place one fiber each do
    /// not all choose the same thread.
    fn in_turn(&self, next: &AtomicUsize, threads: Range<u32>) -> ThreadId {
        let (me, hosts) = (self.transport.local(), self.transport.hosts());
        let lost = self.lost.lock();
        let of_turn = |turn: u32| {
            let host = HostId((me.0 + turn % hosts) % hosts);
            ThreadId { host, thread: threads.start + turn / hosts % threads.len() as u32 }
        };
        let first = next.fetch_add(1, Ordering::Relaxed);
        let turns = hosts as usize * threads.len();
        let mut of_turns = (0..hosts as usize).map(|skip| of_turn(((first + skip) % turns) as u32));
        // This host is not lost, so there is one.
        of_turns
            .find(|thread| !lost.contains(&thread.host))
            .unwrap_or_else(|| self.own(threads.start))
    }

    /// Has a fiber carry out a segment operation of a thread outside the rack. The job is dropped if
    /// the rack has not started or has ended, which its caller notices.
    pub(crate) fn spawn_segment_job(&self, job: gossamer_segment::Job) {
        if let Some(remotes) = self.remotes.get() {
            let thread = *self.segment_thread.get_or_init(|| self.thread_for_fiber());
            drop(remotes[thread as usize].spawn(job));
        }
    }

    /// The thread of this host that gets the next property.
    pub(crate) fn thread_for_property(&self) -> u32 {
        let threads = self.trustees_of_a_host();
        let next = self.next_property.fetch_add(1, Ordering::Relaxed) as u32;
        threads.start + next % threads.len() as u32
    }

    /// The threads of every host that hold what the pool places: the dedicated ones, or all.
    pub(crate) fn trustees_of_a_host(&self) -> Range<u32> {
        let threads = self.transport.threads();
        if self.dedicated > 0 { threads - self.dedicated..threads } else { 0..threads }
    }

    pub(crate) fn remote(&self, thread: u32) -> &Remote {
        &self.remotes.get().expect("threads are up before fibers run")[thread as usize]
    }

    /// Stops all threads of this process.
    pub(crate) fn stop(&self) {
        self.attention.store(STOP, Ordering::SeqCst);
        for thread in 0..self.transport.threads() {
            self.transport.unpark(thread);
        }
    }

    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.attention() == STOP
    }

    /// The word that every thread checks in every round; a change requests an action.
    #[inline]
    pub(crate) fn attention(&self) -> u32 {
        self.attention.load(Ordering::Relaxed)
    }

    /// Has every thread publish its counts on the board in its next round.
    #[cfg(feature = "tcp")]
    pub(crate) fn request_statistics(&self) {
        let next = |count| (count != STOP).then(|| (count + 1) % STOP);
        // Threads that stop publish nothing more.
        let _ = self.attention.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Ends the rack with `error`; the first one counts.
    pub(crate) fn fail(&self, error: RackError) {
        self.note_failure(error);
        self.stop();
    }

    /// Lets the rack end with `error` when it ends; the first one counts.
    pub(crate) fn note_failure(&self, error: RackError) {
        self.failure.lock().get_or_insert(error);
    }

    pub(crate) fn take_failure(&self) -> Option<RackError> {
        let early = || (*self.early.lock()).filter(|_| self.on_peer_loss == OnPeerLoss::EndRack);
        let left = |host| RackError::PeerLost { host, reason: left_early() };
        self.failure.lock().take().or_else(|| early().map(left))
    }

    pub(crate) fn peer_lost(&self, host: HostId, reason: LossReason) {
        self.note_lost(host);
        // Without host 0 there is no `main`, and no host that could end the rack.
        if self.on_peer_loss == OnPeerLoss::EndRack || host == HostId(0) {
            self.fail(RackError::PeerLost { host, reason });
        }
    }

    pub(crate) fn is_lost(&self, host: HostId) -> bool {
        self.lost.lock().contains(&host)
    }

    fn note_lost(&self, host: HostId) {
        let mut lost = self.lost.lock();
        if !lost.contains(&host) {
            lost.push(host);
        }
    }

    /// Host 0 leaves when the rack has ended. If it could not notify the others before, the rack
    /// has failed, and host 0 reports that: the other hosts just stop.
    ///
    /// Another host leaves when host 0 ends the rack. One that leaves earlier has failed and counts
    /// as lost, on every host. Whether the rack ends then is decided by host 0. The other host most likely
    /// failed because it lost a third one, so host 0 waits a little for that loss, to report it instead.
    pub(crate) fn peer_left(self: &Arc<Self>, host: HostId) {
        if host == HostId(0) {
            return self.stop();
        }
        if self.ends.load(Ordering::SeqCst) {
            return;
        }
        self.note_lost(host);
        if self.transport.local() == HostId(0) {
            self.early.lock().get_or_insert(host);
            let shared = Arc::downgrade(self);
            let late = move || {
                thread::sleep(cause::WAIT);
                if let Some(shared) = shared.upgrade() {
                    shared.peer_lost(host, left_early());
                }
            };
            if thread::Builder::new().spawn(late).is_err() {
                self.peer_lost(host, left_early());
            }
        }
    }

    /// Notes that host 0 ends the rack.
    pub(crate) fn begin_to_end(&self) {
        self.ends.store(true, Ordering::SeqCst);
    }

    pub(crate) fn unobserved(&self, failed: Unobserved) {
        let mut unobserved = self.unobserved.lock();
        unobserved.0 += 1;
        unobserved.1.get_or_insert(failed);
    }

    /// Reports the panic of code of the program that the runtime has called on the current thread: the rack
    /// returns it when it ends.
    #[cold]
    pub(crate) fn report_panic(&self, panic: Box<dyn Any + Send>) {
        let report = PanicReport::of(&*panic);
        drop_payload(panic);
        let trustee = trust_core::local_trustee().trustee().thread();
        let error = DelegateError::Panicked { trustee, report };
        self.unobserved(Unobserved { error, place: None, is_callback: true });
    }

    /// Notes the failed fire-and-forget requests of another host; the first host counts.
    pub(crate) fn unobserved_at(&self, host: HostId, count: usize, first: Unobserved) {
        let error = RackError::Unobserved { host, count, first };
        self.unobserved_of_others.lock().get_or_insert(error);
    }

    pub(crate) fn take_unobserved(&self) -> Option<RackError> {
        let (count, first) = std::mem::take(&mut *self.unobserved.lock());
        first
            .map(|first| RackError::Unobserved { host: self.transport.local(), count, first })
            .or_else(|| self.unobserved_of_others.lock().take())
    }

    /// As [`take_unobserved`](Self::take_unobserved), in a form that travels to host 0.
    pub(crate) fn report_unobserved(&self) -> Option<(usize, Unobserved)> {
        let (count, first) = std::mem::take(&mut *self.unobserved.lock());
        first.map(|first| (count, first))
    }
}

fn left_early() -> LossReason {
    LossReason::Connection("it has left the rack before its end".into())
}
