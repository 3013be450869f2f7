//! One runtime thread: runs fibers, polls its node, and waits when there is nothing to do.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fiber::{Config, Scheduler};
use gossamer_segment::Attached;
use transport_api::{HostId, Parker, PeerEvent};
use trust_core::idle::{Idle, Step};
use trust_core::{DelegateError, Incident, Node, Wiring, WiringError};

use crate::StartError;
use crate::error::Unobserved;
use crate::shared::{STOP, Shared};
use crate::{files, losses};

/// Fibers resumed between two polls, at most: it bounds how long a request waits at a thread whose
/// own fibers never wait.
const FIBERS_PER_POLL: usize = 128;
/// Rounds between two readings of the clock while there is work and some fiber sleeps.
const ROUNDS_PER_CLOCK: u32 = 64;
/// Rounds between two polls of the files that fibers wait for, while there is other work. A poll is a
/// system call. One that took all that it may take is followed by another after one round: with
/// thousands of files, more are ready.
const ROUNDS_PER_FILE_POLL: u32 = 8;
/// The longest sleep. Parkers wake for everything that matters, so this is only a safety net.
const LONGEST_SLEEP: Duration = Duration::from_millis(200);
/// The longest sleep of a thread whose files cannot wake it, because the system refuses to watch them.
const UNARMED_SLEEP: Duration = Duration::from_millis(1);

thread_local! {
    static SHARED: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// The rack that the current thread works for.
pub(crate) fn shared() -> Option<Arc<Shared>> {
    SHARED.with_borrow(Clone::clone)
}

/// As [`shared`], for calls that need a rack.
pub(crate) fn try_shared() -> Result<Arc<Shared>, DelegateError> {
    shared().ok_or_else(|| *trust_core::outside())
}

/// A runtime thread that is set up but does not run yet.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    scheduler: Scheduler,
    node: trust_core::EnteredNode,
    /// Lets fibers of this thread use segments.
    attached: Attached,
    parker: Box<dyn Parker>,
    #[cfg(feature = "tcp")]
    thread: u32,
}

impl Worker {
    /// Sets the current thread up as runtime thread `thread`.
    pub(crate) fn new(
        shared: Arc<Shared>,
        wiring: &Wiring,
        thread: u32,
    ) -> Result<Worker, StartError> {
        let ring = {
            let transport = shared.transport.clone();
            Arc::new(move || transport.unpark(thread))
        };
        let may_wait = Some(trust_core::may_wait as fiber::MayWait);
        let running = Some(trust_core::write_running as fiber::Running);
        let config = Config { wake: ring, may_wait, running, ..shared.fibers.clone() };
        let scheduler = Scheduler::new(config)?;
        let node = Node::enter(wiring.node(thread)?);
        node.keep_time(Instant::now);
        let parker = shared.transport.parker(thread).map_err(WiringError::from)?;
        let attached = shared.segments.attach_worker(thread, node.progress().clone());
        SHARED.set(Some(shared.clone()));
        files::enter(shared.clone(), thread);
        Ok(Worker {
            shared,
            scheduler,
            node,
            attached,
            parker,
            #[cfg(feature = "tcp")]
            thread,
        })
    }

    /// The handle with which others start fibers here.
    pub(crate) fn remote(&self) -> fiber::Remote {
        self.scheduler.remote()
    }

    /// Runs until the rack stops.
    pub(crate) fn run(mut self) {
        let scheduler = self.scheduler;
        scheduler.enter(|| {
            let mut idle = Idle::new(self.shared.sleep_after);
            let mut until_clock = ROUNDS_PER_CLOCK;
            let mut until_files = ROUNDS_PER_FILE_POLL;
            let mut attended = 0;
            loop {
                let resumed = scheduler.run(FIBERS_PER_POLL);
                let polled = self.node.poll();
                if self.node.has_incidents() {
                    let incidents = self.node.take_incidents();
                    let lost = peers_in(&incidents);
                    self.shared.handle(incidents);
                    for host in lost.into_iter().filter(|host| self.shared.is_lost(*host)) {
                        let shared = self.shared.clone();
                        let report = move |panic| match shared.is_stopping() {
                            // It may be the one that ends a fiber with its rack, which must go on.
                            true => resume_unwind(panic),
                            false => shared.report_panic(panic),
                        };
                        let tell = move || losses::tell(host, report);
                        // Without memory for a fiber, only failing requests report the loss.
                        let _ = fiber::Builder::new().spawn_local(tell);
                    }
                }
                let attention = self.shared.attention();
                if attention != attended {
                    if attention == STOP {
                        break;
                    }
                    attended = attention;
                    #[cfg(feature = "tcp")]
                    publish(&self.shared, self.thread, &self.node, &scheduler, &idle);
                }
                let works = resumed > 0 || polled;
                let mut has_files = false;
                if files::has_files() {
                    until_files = if works { until_files - 1 } else { 0 };
                    if until_files == 0 {
                        let found = files::poll();
                        has_files = found.any;
                        until_files = if found.may_have_more { 1 } else { ROUNDS_PER_FILE_POLL };
                    }
                }
                if works || has_files {
                    idle.reset();
                    until_clock -= 1;
                    if until_clock == 0 {
                        until_clock = ROUNDS_PER_CLOCK;
                        if scheduler.next_deadline().is_some() {
                            scheduler.expire(Instant::now());
                        }
                    }
                    continue;
                }
                match idle.next(Instant::now) {
                    Step::Pause => std::hint::spin_loop(),
                    Step::Yield => {
                        std::thread::yield_now();
                        let after = Instant::now();
                        idle.yielded(after, files::has_files());
                        scheduler.expire(after);
                    }
                    Step::Sleep(now) => {
                        let longest = match !files::has_files() || files::arm() {
                            true => LONGEST_SLEEP,
                            false => UNARMED_SLEEP,
                        };
                        let timeout = match scheduler.expire(now) {
                            Some(deadline) => (deadline - now).min(longest),
                            None => longest,
                        };
                        let (node, shared) = (&self.node, &self.shared);
                        self.parker.park(timeout, &mut || {
                            scheduler.has_ready()
                                || scheduler.drain_inbox()
                                || node.has_work()
                                || node.poll_lanes()
                                || files::poll().any
                                || shared.is_stopping()
                        });
                        idle.slept(Instant::now());
                    }
                }
            }
            // From here on operations on segments fail: none may begin on a node that is closed.
            self.shared.segments.end();
            drop(self.attached);
            // No fiber waits for a reply after this, so that fibers can be unwound.
            self.node.close();
            // A round may end early, when a fiber yields.
            let mut left = FIBERS_PER_POLL;
            while left > 0 {
                match scheduler.run(left) {
                    0 => break,
                    resumed => left -= resumed,
                }
            }
            // Those that ran just now may have launched something on this very thread, which no
            // longer runs fibers: they must not wait for that either.
            self.node.close();
        });
        drop(scheduler);
        self.node.clear();
        losses::forget();
        files::forget();
        SHARED.set(None);
    }
}

/// The hosts that are gone according to `incidents`.
#[cold]
fn peers_in(incidents: &[Incident]) -> Vec<HostId> {
    let peer = |incident: &Incident| match incident {
        Incident::Peer(PeerEvent::Lost(host, _) | PeerEvent::Left(host)) => Some(*host),
        Incident::Unobserved { .. } => None,
    };
    incidents.iter().filter_map(peer).collect()
}

/// Publishes what a thread has done since it started.
#[cfg(feature = "tcp")]
#[cold]
fn publish(shared: &Shared, thread: u32, node: &Node, scheduler: &Scheduler, idle: &Idle) {
    use gossamer_job::ThreadStatistics;

    use crate::board::nanoseconds;

    let traffic = node.traffic();
    let done = ThreadStatistics {
        idle_ns: nanoseconds(idle.spent()),
        requests_in: traffic.requests_in,
        requests_out: traffic.requests_out,
        bytes_in: traffic.bytes_in,
        bytes_out: traffic.bytes_out,
        unserved: traffic.unserved,
        unanswered: traffic.unanswered,
        fibers: scheduler.live() as u64,
        ..ThreadStatistics::default()
    };
    shared.board.publish(thread, done);
}

impl Shared {
    pub(crate) fn handle(self: &Arc<Self>, incidents: Vec<Incident>) {
        for incident in incidents {
            match incident {
                Incident::Peer(PeerEvent::Lost(host, reason)) => self.peer_lost(host, reason),
                Incident::Peer(PeerEvent::Left(host)) => self.peer_left(host),
                Incident::Unobserved { error, place, is_callback } => {
                    let place = place.map(ToString::to_string);
                    self.unobserved(Unobserved { error, place, is_callback });
                }
            }
        }
    }
}
