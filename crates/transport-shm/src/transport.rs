//! [`ShmTransport`]: one process's place in a rack of processes of one machine.

use crate::{
    alarm::Alarm,
    control::{Control, Layout, Waking},
    handshake::{JoinError, check_size},
    host::Host,
    lane::ShmLane,
    mapping,
    service::Order,
};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::Duration,
};
use transport_api::{
    Access, HostId, Importer, Lane, LaneError, Parker, Region, RegionError, RegionKey,
    RemoteRegion, Transport,
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
}

impl ShmTransport {
    pub(crate) fn new(host: Arc<Host>, service: Option<JoinHandle<()>>) -> Self {
        Self { host, service: Mutex::new(service) }
    }

    /// A rack of one host: `threads` threads of this process, which delegate to each other over
    /// lanes to their own host.
    ///
    /// ```
    /// use gossamer_transport_shm::ShmTransport;
    /// use transport_api::{HostId, RegionKey, Rights, Transport};
    /// let rack = ShmTransport::threads(2)?;
    /// let region = rack.export(RegionKey(1), 64, Rights::ALL.into())?;
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
        let alarm = |thread| {
            let parker = self.host.event_queues.take_parker(thread);
            parker.is_ok().then(|| Alarm::new(self.host.clone(), thread))
        };
        (0..self.host.threads).filter_map(alarm).collect()
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

    fn export(&self, key: RegionKey, len: usize, access: Access) -> Result<Region, RegionError> {
        let region = self.host.exports.export(key, len, access)?;
        // A peer may be waiting for it.
        self.host.ring_desk();
        Ok(region)
    }

    fn revoke(&self, key: RegionKey) -> Result<(), RegionError> {
        self.host.exports.revoke(key)
    }

    fn begin_revoke(&self, thread: u32, key: RegionKey, token: u64) -> Result<(), RegionError> {
        self.host.exports.revoke(key)?;
        self.host.report_quiet(thread, token);
        Ok(())
    }

    fn import(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> Result<RemoteRegion, RegionError> {
        let (answer, answered) = mpsc::channel();
        self.host.begin_import(owner, key, timeout, Importer::Blocked(answer))?;
        match answered.recv_timeout(timeout.saturating_add(ANSWER)) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(RegionError::Unknown { owner, key }),
            Err(RecvTimeoutError::Disconnected) => {
                Err(RegionError::lost(owner, self.host.end_of(owner)))
            }
        }
    }

    fn begin_import(
        &self,
        thread: u32,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        token: u64,
    ) -> Result<(), RegionError> {
        self.host.begin_import(owner, key, timeout, Importer::Lane { thread, token })
    }

    fn lane(&self, thread: u32, peer: HostId) -> Result<Box<dyn Lane>, LaneError> {
        LaneError::check_thread(thread, self.host.threads)?;
        if !self.host.reaches(peer) {
            return Err(LaneError::NoSuchHost(peer));
        }
        let event_queue = self.host.event_queues.open(thread, peer)?;
        Ok(Box::new(ShmLane::new(self.host.clone(), event_queue)))
    }

    fn parker(&self, thread: u32) -> Result<Box<dyn Parker>, LaneError> {
        self.host.event_queues.take_parker(thread)?;
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
        let own = self.host.own();
        own.park(self.thread, timeout, || ready() || own.asked_any(self.thread));
    }
}
