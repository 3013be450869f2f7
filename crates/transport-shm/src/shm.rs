//! [`ShmTransport`]: one process's place in a rack of processes of one machine.

use crate::{
    control::{Control, Layout},
    export::Exports,
    host::Host,
    lane::ShmLane,
    mapping,
};
use primitive::{limits::THREADS_PER_HOST, sync::Ordering};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use transport_api::{
    Bell, HostId, Lane, LaneError, Region, RegionError, RegionKey, RemoteRegion, Rights, Transport,
};

/// A patience that nobody outlives.
const FOREVER: Duration = Duration::from_secs(1 << 32);

/// One process's place in a rack whose hosts are processes of one machine (or threads of one).
pub struct ShmTransport {
    host: Arc<Host>,
}

impl ShmTransport {
    /// A rack of one host: `threads` threads of this process, which delegate to each other over
    /// lanes to their own host.
    ///
    /// ```
    /// use gossamer_transport_shm::ShmTransport;
    /// use transport_api::{HostId, RegionKey, Rights, Transport};
    /// let rack = ShmTransport::threads(2);
    /// let region = rack.export(RegionKey(1), 64, Rights::ALL)?;
    /// let remote = rack.import(HostId(0), RegionKey(1), std::time::Duration::ZERO)?;
    /// let mut lane = rack.lane(0, HostId(0)).unwrap();
    /// lane.signal(&remote, 8, 7).unwrap();
    /// assert_eq!(region.memory().load(8, primitive::sync::Ordering::Acquire), 7);
    /// # Ok::<(), transport_api::RegionError>(())
    /// ```
    ///
    /// # Panics
    /// If `threads` is zero or more than [`THREADS_PER_HOST`], or if the process has no address
    /// space left for them (about 1 MiB for each pair of threads).
    pub fn threads(threads: u32) -> Arc<ShmTransport> {
        assert!(
            (1..=THREADS_PER_HOST as u32).contains(&threads),
            "a host has 1 to {THREADS_PER_HOST} threads, not {threads}"
        );
        let memory = mapping::private(Layout::new(1, threads).bytes()).unwrap_or_else(|error| {
            panic!("no address space for the rings of {threads} threads: {error}")
        });
        let controls = vec![Control::new(memory, false)];
        let host = Host::new(HostId(0), threads, controls, Exports::new(false));
        Arc::new(ShmTransport { host: Arc::new(host) })
    }

    fn check(&self, thread: u32) -> Result<(), LaneError> {
        let threads = self.host.threads;
        if thread < threads { Ok(()) } else { Err(LaneError::NoSuchThread(thread, threads)) }
    }
}

impl Transport for ShmTransport {
    fn local(&self) -> HostId {
        self.host.local
    }

    fn hosts(&self) -> u32 {
        self.host.hosts()
    }

    fn threads(&self) -> u32 {
        self.host.threads
    }

    fn maps(&self, peer: HostId) -> bool {
        peer.0 < self.hosts()
    }

    fn export(&self, key: RegionKey, len: usize, rights: Rights) -> Result<Region, RegionError> {
        self.host.exports.export(key, len, rights)
    }

    fn revoke(&self, key: RegionKey) -> Result<(), RegionError> {
        self.host.exports.revoke(key, self.host.local)
    }

    fn import(
        &self,
        owner: HostId,
        key: RegionKey,
        patience: Duration,
    ) -> Result<RemoteRegion, RegionError> {
        if owner.0 >= self.hosts() {
            return Err(RegionError::NoSuchHost(owner));
        }
        let now = Instant::now();
        let deadline = now.checked_add(patience).unwrap_or(now + FOREVER);
        let told = self.host.exports.wait(key, deadline);
        let told = told.ok_or(RegionError::Unknown { owner, key })?;
        Ok(told.import(self.host.id, owner, key))
    }

    fn lane(&self, thread: u32, peer: HostId) -> Result<Box<dyn Lane>, LaneError> {
        self.check(thread)?;
        if peer.0 >= self.hosts() {
            return Err(LaneError::NoSuchHost(peer));
        }
        if !self.host.seats[thread as usize].opened.add(peer) {
            return Err(LaneError::AlreadyOpen(thread, peer));
        }
        Ok(Box::new(ShmLane::new(self.host.clone(), thread, peer)))
    }

    fn bell(&self, thread: u32) -> Result<Box<dyn Bell>, LaneError> {
        self.check(thread)?;
        if self.host.seats[thread as usize].bell.swap(true, Ordering::AcqRel) {
            return Err(LaneError::AlreadyOpen(thread, self.host.local));
        }
        Ok(Box::new(ShmBell { host: self.host.clone(), thread }))
    }

    fn ring(&self, thread: u32) {
        if thread < self.host.threads {
            self.host.own().wake(thread);
        }
    }

    fn leave(&self) {}
}

/// The bell of one thread: a futex in its host's control memory.
struct ShmBell {
    host: Arc<Host>,
    thread: u32,
}

impl Bell for ShmBell {
    fn sleep(&mut self, timeout: Duration, ready: &mut dyn FnMut() -> bool) {
        let listening = &self.host.seats[self.thread as usize].listening;
        let own = self.host.own();
        own.sleep(self.thread, timeout, || ready() || own.asked_any(self.thread, listening));
    }
}
