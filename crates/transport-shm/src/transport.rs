//! [`ShmTransport`]: one process's place in a rack of processes of one machine.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use transport_api::{
    Access, HostId, Lane, LaneError, Parker, Region, RegionError, RegionKey, RemoteRegion,
    Transport,
};
use transport_control::{Importer, Requester};

use crate::control::host::Host;
use crate::data::alarm::Alarm;
use crate::data::lane::ShmLane;
use crate::data::parker::ShmParker;

/// One process's place in a rack whose hosts are processes of one machine (or threads of one).
///
/// Dropping it closes its connections: peers that have not seen a goodbye report it as lost. Lanes, parkers
/// and regions made from it stay valid for this process.
pub struct ShmTransport {
    host: Arc<Host>,
    service: Mutex<Option<JoinHandle<()>>>,
}

impl ShmTransport {
    pub(crate) fn new(host: Arc<Host>, service: Option<JoinHandle<()>>) -> Self {
        Self { host, service: Mutex::new(service) }
    }

    #[cfg(test)]
    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Cuts this host off from the others without a goodbye, as a crash would: they report it as
    /// lost. For tests of what happens then.
    pub fn sever(&self) {
        if let Some(waker) = &self.host.waker {
            waker.stop();
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

    fn is_authenticated(&self) -> bool {
        // Only processes that were given the descriptors of the memory can write to it.
        true
    }

    fn export(&self, key: RegionKey, len: usize, access: Access) -> Result<Region, RegionError> {
        self.host.export(key, len, access)
    }

    fn revoke(&self, key: RegionKey) -> Result<(), RegionError> {
        let is_revoked = self.host.revoke(key, None, None);
        is_revoked.then_some(()).ok_or(RegionError::Unknown { owner: self.host.local, key })
    }

    fn begin_revoke(&self, thread: u32, key: RegionKey, token: u64) -> Result<(), RegionError> {
        let requester = Requester::Revoke { thread, token };
        let is_revoked = self.host.revoke(key, None, Some(requester));
        is_revoked.then_some(()).ok_or(RegionError::Unknown { owner: self.host.local, key })
    }

    fn reexport(&self, region: &Region, access: Access) -> Result<Region, RegionError> {
        self.host.reexport(region, access)
    }

    fn import(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> Result<RemoteRegion, RegionError> {
        self.host.import(owner, key, timeout)
    }

    fn begin_import(
        &self,
        thread: u32,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        token: u64,
    ) -> Result<(), RegionError> {
        self.host.begin_import(owner, key, timeout, Importer::Lane { thread, token }).map(drop)
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
        Ok(Box::new(ShmParker::new(self.host.clone(), thread)))
    }

    fn unpark(&self, thread: u32) {
        if thread < self.host.threads {
            self.host.own().wake(thread);
        }
    }

    fn leave(&self) {
        self.host.leave();
    }
}

impl Drop for ShmTransport {
    fn drop(&mut self) {
        self.sever();
    }
}
