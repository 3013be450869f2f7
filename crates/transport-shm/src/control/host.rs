//! [`Host`]: what all threads, lanes and parkers of one process share.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use transport_api::{Event, EventQueues, HostId, PeerEvent, QuietPoints, RegionKey, Window};
use transport_control::{Config, Control, CutOff, Goodbye, QUIET_TIMEOUT, Reach};

use crate::control::plane::{Plane, ShmMedium};
use crate::control::waker::Waker;
use crate::memory::barrier::BusyTracker;
use crate::memory::host_memory::{HostMemory, HostSet, Layout};
use crate::memory::polled::PolledSenders;

/// What the lanes and the parker of one runtime thread share.
#[derive(Default)]
pub(crate) struct ThreadState {
    /// The hosts whose lanes the thread looks after: its parker does not sleep over them.
    pub(crate) attended: HostSet,
    /// How long it has been awake.
    pub(crate) busy: BusyTracker,
    /// The senders whose notice slots its lanes poll.
    pub(crate) polled: PolledSenders,
    /// How many lanes it has that may start operations.
    lanes: Mutex<u32>,
}

/// What all threads of one process of the rack share.
pub(crate) struct Host {
    /// Tells this transport from every other that this process has made.
    pub(crate) id: u64,
    pub(crate) local: HostId,
    pub(crate) threads: u32,
    pub(crate) layout: Layout,
    /// By host: its memory, mapped here. Hosts of other machines have none.
    memories: Vec<Option<HostMemory>>,
    pub(crate) event_queues: Arc<EventQueues>,
    pub(crate) thread_states: Vec<ThreadState>,
    pub(crate) quiet_points: QuietPoints,
    pub(crate) plane: Mutex<Plane>,
    /// What this process has imported from others and still holds.
    pub(super) imports: Mutex<HashMap<(HostId, RegionKey), Weak<Window>>>,
    /// `None` in a rack of one host, which has no service thread.
    pub(crate) waker: Option<Waker>,
    /// The thread of `timer.rs`, while there is one.
    pub(super) timer: Mutex<Option<Thread>>,
}

impl Host {
    /// `memories` are, by host, the memories of the hosts on this machine, this one's included. The
    /// service thread is woken by `waker`; without one, threads poll the control plane themselves.
    pub(crate) fn new(
        local: HostId,
        threads: u32,
        memories: Vec<Option<HostMemory>>,
        waker: Option<Waker>,
    ) -> Self {
        let (now, hosts) = (Instant::now(), memories.len() as u32);
        let mut control = Control::<ShmMedium>::new(
            now,
            Config {
                local,
                hosts,
                // The kernel tells when a process ends.
                loss_bound: None,
                reach: Reach::Direct,
                // A process that runs may use what it maps.
                cut_off: CutOff::AtStop,
                goodbye: Goodbye::Message,
                revocation_timeout: Some(QUIET_TIMEOUT),
            },
        );
        let hosts_here = (0..).map(HostId).zip(&memories).filter(|(_, memory)| memory.is_some());
        hosts_here.for_each(|(host, _)| control.connected(host, now));
        Self {
            id: transport_api::next_issuer(),
            local,
            threads,
            layout: Layout::new(hosts, threads),
            memories,
            event_queues: EventQueues::new(local, hosts, threads),
            thread_states: (0..threads).map(|_| ThreadState::default()).collect(),
            quiet_points: QuietPoints::new(threads),
            plane: Mutex::new(Plane { control, has_service: waker.is_some() }),
            imports: Mutex::default(),
            waker,
            timer: Mutex::default(),
        }
    }

    pub(crate) fn hosts(&self) -> u32 {
        self.memories.len() as u32
    }

    /// Whether `host` is one of the rack and runs on this machine.
    pub(crate) fn reaches(&self, host: HostId) -> bool {
        self.memories.get(host.0 as usize).is_some_and(Option::is_some)
    }

    /// The memory of `host`, which runs on this machine.
    #[inline]
    pub(crate) fn memory_of(&self, host: HostId) -> &HostMemory {
        self.memories[host.0 as usize].as_ref().expect("a host on this machine")
    }

    /// This host's own memory.
    #[inline]
    pub(crate) fn own(&self) -> &HostMemory {
        self.memory_of(self.local)
    }

    fn thread_state(&self, thread: u32) -> &ThreadState {
        &self.thread_states[thread as usize]
    }

    /// `thread` polls its lane to this host.
    #[inline]
    pub(crate) fn polled(&self, thread: u32) {
        self.own().polled(thread, &self.thread_state(thread).busy);
    }

    /// `thread` sleeps on its parker until woken, unless `ready` or a lane of the thread has something to
    /// report.
    pub(crate) fn park(&self, thread: u32, timeout: Duration, ready: &mut dyn FnMut() -> bool) {
        let busy = &self.thread_state(thread).busy;
        self.own().park((thread, busy), timeout, || ready() || self.has_events(thread));
    }

    /// `thread` says that it is about to sleep elsewhere.
    pub(crate) fn announce(&self, thread: u32) {
        self.own().announce(thread, &self.thread_state(thread).busy);
    }

    /// Whether a lane that `thread` attends to has something to report.
    pub(crate) fn has_events(&self, thread: u32) -> bool {
        let ThreadState { attended, polled, .. } = self.thread_state(thread);
        let memory_of = |host| self.memory_of(host);
        self.own().asked_any(thread, attended)
            || polled.has_any(memory_of, self.layout, (self.local, thread))
    }

    /// How `host` has ended, if it has.
    pub(crate) fn end_of(&self, host: HostId) -> Option<&PeerEvent> {
        self.event_queues.end_of(host)
    }

    /// Notes how a peer has ended, the first time, and has every thread look.
    pub(crate) fn gone(&self, event: &PeerEvent) {
        let (PeerEvent::Lost(host, _) | PeerEvent::Left(host)) = *event;
        if !self.event_queues.end(event) {
            return;
        }
        for thread in 0..self.threads {
            self.own().ask(thread, host);
            // The peer may have died between clearing a park word and waking its sleeper.
            self.own().wake_now(thread);
        }
    }

    /// Leaves an event for the lane of `thread` to `from`, and wakes the thread.
    pub(crate) fn deliver(&self, thread: u32, from: HostId, event: Event) {
        self.event_queues.deliver(thread, from, event);
        self.own().ask(thread, from);
        self.own().wake(thread);
    }
}

/// For lanes.
impl Host {
    /// `thread` has a lane to `peer` from now on, over which it starts operations.
    pub(crate) fn open_lane(&self, thread: u32, peer: HostId) {
        let ThreadState { attended, lanes, .. } = self.thread_state(thread);
        let mut lanes = lanes.lock();
        if *lanes == 0 {
            self.quiet_points.enter(thread);
        }
        *lanes += 1;
        attended.add(peer);
        // A revocation may wait for this thread, and have asked lanes that it closes before it polls
        // them.
        if self.quiet_points.is_asked(thread) {
            self.own().ask(thread, peer);
        }
    }

    /// The lane of `thread` to `peer` starts no operation any more. Called once per lane.
    pub(crate) fn close_lane(self: &Arc<Self>, thread: u32, peer: HostId) {
        let ThreadState { attended, lanes, .. } = self.thread_state(thread);
        let mut lanes = lanes.lock();
        attended.remove(peer);
        *lanes -= 1;
        if *lanes == 0 {
            self.quiet_points.leave(thread);
            drop(lanes);
            self.report_quiet();
        }
    }

    /// Has every thread with a lane poll one of its lanes, and so pass a quiet point.
    pub(super) fn ask_all_threads(&self) {
        for (thread, state) in (0..).zip(&self.thread_states) {
            // A lane that opens meanwhile is either among those that are asked, or sees that it must
            // ask itself.
            let _lanes = state.lanes.lock();
            state.attended.iter(self.hosts()).for_each(|peer| self.own().ask(thread, peer));
            self.own().wake(thread);
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(timer) = &*self.timer.lock() {
            timer.unpark();
        }
    }
}
