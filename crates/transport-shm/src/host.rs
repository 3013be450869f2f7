//! [`Host`]: what all threads, lanes and parkers of one process share.

use crate::{
    control::{Control, HostSet, Layout},
    export::Exports,
    service::Desk,
};
use primitive::sync::AtomicBool;
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};
use transport_api::{HostId, PeerEvent};

/// One host of the rack as this process sees it.
pub(crate) struct Peer {
    /// Its control memory, mapped here.
    pub(crate) control: Control,
    /// What became of it, once it is no longer there.
    pub(crate) gone: OnceLock<PeerEvent>,
}

/// One runtime thread of this process.
#[derive(Default)]
pub(crate) struct Seat {
    /// Hosts to which the thread has ever opened a lane.
    pub(crate) opened: HostSet,
    /// Hosts to which it holds a lane now, so that its parker must not sleep over that lane's events.
    pub(crate) listening: HostSet,
    /// Whether it has taken its parker.
    pub(crate) parker: AtomicBool,
}

/// What all threads of one process of the rack share.
pub(crate) struct Host {
    /// Tells this transport from every other that this process has made.
    pub(crate) id: u64,
    pub(crate) local: HostId,
    pub(crate) threads: u32,
    pub(crate) layout: Layout,
    /// By host number, this host included; hosts of other machines are not there.
    peers: Vec<Option<Peer>>,
    /// By thread number.
    pub(crate) seats: Vec<Seat>,
    pub(crate) exports: Exports,
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
        let layout = Layout::new(controls.len() as u32, threads);
        let peer = |control| Peer { control, gone: OnceLock::new() };
        let peers = controls.into_iter().map(|control| control.map(peer));
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            local,
            threads,
            layout,
            peers: peers.collect(),
            seats: (0..threads).map(|_| Seat::default()).collect(),
            exports: Exports::new(desk.is_some()),
            desk,
        }
    }

    pub(crate) fn hosts(&self) -> u32 {
        self.peers.len() as u32
    }

    /// Whether memory reaches `host`: it exists, and runs on this machine.
    pub(crate) fn reaches(&self, host: HostId) -> bool {
        self.peers.get(host.0 as usize).is_some_and(Option::is_some)
    }

    /// What is known of `host`, which memory reaches.
    pub(crate) fn peer(&self, host: HostId) -> &Peer {
        self.peers[host.0 as usize].as_ref().expect("a host that memory reaches")
    }

    /// The control memory of `host`, which memory reaches.
    #[inline]
    pub(crate) fn control(&self, host: HostId) -> &Control {
        &self.peer(host).control
    }

    /// This host's own control memory.
    #[inline]
    pub(crate) fn own(&self) -> &Control {
        self.control(self.local)
    }

    /// Notes what became of a peer, the first time, and gets every thread to look.
    pub(crate) fn gone(&self, event: PeerEvent) {
        let (PeerEvent::Lost(host, _) | PeerEvent::Left(host)) = event;
        if self.peer(host).gone.set(event).is_err() {
            return;
        }
        for thread in 0..self.threads {
            self.own().ask(thread, host);
            // The peer may have died between clearing a parker and waking its sleeper.
            self.own().wake_now(thread);
        }
        self.ring_desk();
    }

    /// Gets the service thread, if there is one, to look at everything again.
    pub(crate) fn ring_desk(&self) {
        if let Some(desk) = &self.desk {
            desk.ring();
        }
    }
}
