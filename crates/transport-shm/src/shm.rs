//! [`ShmTransport`]: one process's place in a rack of processes of one machine.

use crate::{
    alarm::Alarm,
    control::{Control, Layout, Waking},
    export::{REGION_HEADER, Told},
    handshake::{JoinError, check_size},
    host::{Host, Seat},
    lane::ShmLane,
    mapping,
    service::Order,
};
use parking_lot::Mutex;
use primitive::sync::Ordering;
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Weak,
        mpsc::{self, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use transport_api::{
    HostId, Lane, LaneError, LossReason, Parker, Region, RegionError, RegionKey, RemoteRegion,
    Rights, Transport, Window, deadline,
};

/// How long a service thread may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// One process's place in a rack whose hosts are processes of one machine (or threads of one).
///
/// Dropping it closes its links: peers that have not seen a goodbye report it as lost. Lanes, parkers
/// and regions made from it stay valid for this process.
pub struct ShmTransport {
    host: Arc<Host>,
    service: Mutex<Option<JoinHandle<()>>>,
    /// What this process has imported from others and still holds.
    imports: Mutex<HashMap<(HostId, RegionKey), Weak<Window>>>,
}

impl ShmTransport {
    pub(crate) fn new(host: Arc<Host>, service: Option<JoinHandle<()>>) -> Self {
        Self { host, service: Mutex::new(service), imports: Mutex::default() }
    }

    /// A rack of one host: `threads` threads of this process, which delegate to each other over
    /// lanes to their own host.
    ///
    /// ```
    /// use gossamer_transport_shm::ShmTransport;
    /// use transport_api::{HostId, RegionKey, Rights, Transport};
    /// let rack = ShmTransport::threads(2)?;
    /// let region = rack.export(RegionKey(1), 64, Rights::ALL)?;
    /// let remote = rack.import(HostId(0), RegionKey(1), std::time::Duration::ZERO)?;
    /// let mut lane = rack.lane(0, HostId(0)).unwrap();
    /// lane.signal(&remote, 8, 7).unwrap();
    /// assert_eq!(region.memory().load(8, primitive::sync::Ordering::Acquire), 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`JoinError::Size`]; [`JoinError::System`] if the process has no address space left for the
    /// threads (about 1 MiB for each pair of them).
    pub fn threads(threads: u32) -> Result<Arc<ShmTransport>, JoinError> {
        check_size(1, threads)?;
        let memory = mapping::private(Layout::new(1, threads).bytes())?;
        let controls = vec![Some(Control::new(memory, Waking::PRIVATE))];
        let host = Host::new(HostId(0), threads, controls, None);
        Ok(Arc::new(ShmTransport::new(Arc::new(host), None)))
    }

    #[cfg(test)]
    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Cuts this host off from the others without a goodbye, as a crash would: they report it as
    /// lost. For tests of what happens then.
    pub fn sever(&self) {
        if let Some(desk) = &self.host.desk {
            desk.leave(Order::Stop);
        }
        let service = self.service.lock().take();
        if let Some(service) = service {
            // If it panicked there is nothing left to end.
            let _ = service.join();
        }
    }

    /// Takes the parkers of all threads, for which these are given.
    pub(crate) fn alarms(&self) -> Vec<Alarm> {
        let alarm = |(thread, seat): (u32, &Seat)| {
            seat.parker.store(true, Ordering::Release);
            Alarm::new(self.host.clone(), thread)
        };
        (0..).zip(&self.host.seats).map(alarm).collect()
    }

    /// Asks `owner` for a region.
    fn ask(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> Result<Arc<Window>, RegionError> {
        let unknown = RegionError::Unknown { owner, key };
        let Some(desk) = &self.host.desk else { return Err(unknown) };
        let (answer, answered) = mpsc::channel();
        desk.leave(Order::Import { owner, key, timeout, answer });
        let (region, file) = match answered.recv_timeout(timeout.saturating_add(ANSWER)) {
            Ok(Some(answer)) => answer,
            Ok(None) | Err(RecvTimeoutError::Timeout) => return Err(unknown),
            Err(RecvTimeoutError::Disconnected) => return Err(self.lost(owner)),
        };
        let broken = |what: String| RegionError::PeerLost(owner, LossReason::Protocol(what));
        let len = usize::try_from(region.len).map_err(|_| broken(format!("{region:?}")))?;
        let total = len.checked_add(REGION_HEADER).ok_or_else(|| broken(format!("{region:?}")))?;
        let whole = mapping::of_peer(&file, total, Told::peers_write(region.rights));
        let whole = whole.map_err(|source| match source.kind() {
            io::ErrorKind::InvalidData => broken(source.to_string()),
            _ => RegionError::NoMemory { len, source },
        })?;
        let (rights, generation) = (region.rights, region.generation);
        Ok(Arc::new(Told { rights, generation, len, whole }.window(self.host.id, owner, key)))
    }

    /// Why nothing can be had from `owner` any more.
    fn lost(&self, owner: HostId) -> RegionError {
        RegionError::lost(owner, self.host.peer(owner).gone.get())
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
        self.host.reaches(peer)
    }

    fn export(&self, key: RegionKey, len: usize, rights: Rights) -> Result<Region, RegionError> {
        let region = self.host.exports.export(key, len, rights)?;
        // A peer may be waiting for it.
        self.host.ring_desk();
        Ok(region)
    }

    fn revoke(&self, key: RegionKey) -> Result<(), RegionError> {
        self.host.exports.revoke(key, self.host.local)
    }

    fn import(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> Result<RemoteRegion, RegionError> {
        if !self.host.reaches(owner) {
            return Err(RegionError::NoSuchHost(owner));
        }
        if owner == self.host.local {
            let told = self.host.exports.wait(key, deadline(Instant::now(), timeout));
            let told = told.ok_or(RegionError::Unknown { owner, key })?;
            let window = told.window(self.host.id, owner, key);
            return Ok(RemoteRegion::mapping(Arc::new(window)));
        }
        if self.host.peer(owner).gone.get().is_some() {
            return Err(self.lost(owner));
        }
        let held = || self.imports.lock();
        // What one thread has mapped serves all: one mapping, one set of page tables.
        let known = held().get(&(owner, key)).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.is_live()) {
            return Ok(RemoteRegion::mapping(known));
        }
        let fresh = self.ask(owner, key, timeout)?;
        held().insert((owner, key), Arc::downgrade(&fresh));
        Ok(RemoteRegion::mapping(fresh))
    }

    fn lane(&self, thread: u32, peer: HostId) -> Result<Box<dyn Lane>, LaneError> {
        LaneError::check_thread(thread, self.host.threads)?;
        if !self.host.reaches(peer) {
            return Err(LaneError::NoSuchHost(peer));
        }
        if !self.host.seats[thread as usize].opened.add(peer) {
            return Err(LaneError::AlreadyOpen(thread, peer));
        }
        Ok(Box::new(ShmLane::new(self.host.clone(), thread, peer)))
    }

    fn parker(&self, thread: u32) -> Result<Box<dyn Parker>, LaneError> {
        LaneError::check_thread(thread, self.host.threads)?;
        if self.host.seats[thread as usize].parker.swap(true, Ordering::AcqRel) {
            return Err(LaneError::AlreadyOpen(thread, self.host.local));
        }
        Ok(Box::new(ShmParker { host: self.host.clone(), thread }))
    }

    fn unpark(&self, thread: u32) {
        if thread < self.host.threads {
            self.host.own().wake(thread);
        }
    }

    fn leave(&self) {
        let Some(desk) = &self.host.desk else { return };
        let (said, heard) = mpsc::channel();
        desk.leave(Order::Goodbye { _said: said });
        // It closes when all have been told; a service thread that hangs must not hang this.
        let _ = heard.recv_timeout(ANSWER);
    }
}

impl Drop for ShmTransport {
    fn drop(&mut self) {
        self.sever();
    }
}

/// The parker of one thread: a futex in its host's control memory.
struct ShmParker {
    host: Arc<Host>,
    thread: u32,
}

impl Parker for ShmParker {
    fn park(&mut self, timeout: Duration, ready: &mut dyn FnMut() -> bool) {
        let listening = &self.host.seats[self.thread as usize].listening;
        let own = self.host.own();
        own.park(self.thread, timeout, || ready() || own.asked_any(self.thread, listening));
    }
}
