//! [`Host`]: what all threads, lanes and parkers of one process share.

use crate::{
    control::{Control, Layout},
    export::Exports,
    quiet::Quieting,
    service::Desk,
};
use parking_lot::Mutex;
use primitive::sync::{AtomicU64, AtomicUsize, Ordering};
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};
use transport_api::{Event, EventQueues, HostId, PeerEvent, RegionKey, Window};

/// What all threads of one process of the rack share.
pub(crate) struct Host {
    /// Tells this transport from every other that this process has made.
    pub(crate) id: u64,
    pub(crate) local: HostId,
    pub(crate) threads: u32,
    pub(crate) layout: Layout,
    /// By host: its control memory, mapped here. Hosts of other machines have none.
    controls: Vec<Option<Control>>,
    pub(crate) event_queues: Arc<EventQueues>,
    pub(crate) exports: Exports,
    /// What this process has imported from others and still holds.
    pub(crate) imports: Mutex<HashMap<(HostId, RegionKey), Weak<Window>>>,
    /// Revocations that wait until their regions are quiet, and how many they are.
    pub(crate) quietings: Mutex<Vec<Quieting>>,
    pub(crate) quieting: AtomicUsize,
    /// Where orders for the service thread go; `None` on a rack of one host.
    pub(crate) desk: Option<Arc<Desk>>,
}

impl Host {
    /// `controls` are, by host, the control memories of those that memory reaches, this one's
    /// included.
    pub(crate) fn new(
        local: HostId,
        threads: u32,
        controls: Vec<Option<Control>>,
        desk: Option<Arc<Desk>>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let hosts = controls.len() as u32;
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            local,
            threads,
            layout: Layout::new(hosts, threads),
            controls,
            event_queues: EventQueues::new(local, hosts, threads),
            exports: Exports::new(local, desk.is_some()),
            imports: Mutex::default(),
            quietings: Mutex::default(),
            quieting: AtomicUsize::new(0),
            desk,
        }
    }

    pub(crate) fn hosts(&self) -> u32 {
        self.controls.len() as u32
    }

    /// Whether memory reaches `host`: it exists, and runs on this machine.
    pub(crate) fn reaches(&self, host: HostId) -> bool {
        self.controls.get(host.0 as usize).is_some_and(Option::is_some)
    }

    /// The control memory of `host`, which memory reaches.
    #[inline]
    pub(crate) fn control(&self, host: HostId) -> &Control {
        self.controls[host.0 as usize].as_ref().expect("a host that memory reaches")
    }

    /// This host's own control memory.
    #[inline]
    pub(crate) fn own(&self) -> &Control {
        self.control(self.local)
    }

    /// How `host` has ended, if it has.
    pub(crate) fn end_of(&self, host: HostId) -> Option<&PeerEvent> {
        self.event_queues.end_of(host)
    }

    /// Notes how a peer has ended, the first time, and gets every thread to look.
    pub(crate) fn gone(&self, event: PeerEvent) {
        let (PeerEvent::Lost(host, _) | PeerEvent::Left(host)) = event;
        if !self.event_queues.end(&event) {
            return;
        }
        for thread in 0..self.threads {
            self.own().ask(thread, host);
            // The peer may have died between clearing a park word and waking its sleeper.
            self.own().wake_now(thread);
        }
        // Its threads use no region any more.
        self.check_quiet();
        self.ring_desk();
    }

    /// Leaves an event for the lane of `thread` to `from`, and wakes the thread.
    pub(crate) fn deliver(&self, thread: u32, from: HostId, event: Event) {
        self.event_queues.deliver(thread, from, event);
        self.own().ask(thread, from);
        self.own().wake(thread);
    }

    /// Gets the service thread, if there is one, to look at everything again.
    pub(crate) fn ring_desk(&self) {
        if let Some(desk) = &self.desk {
            desk.ring();
        }
    }
}
