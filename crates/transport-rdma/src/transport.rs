//! [`RdmaTransport`]: one host of a rack whose machines have RDMA devices.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use primitive::sync::Ordering;
use transport_api::{
    Access, Carrier, HostId, Lane, LaneError, Parker, Region, RegionError, RegionKey, RemoteRegion,
    Transport,
};
use transport_control::Importer;

use crate::control::host::Host;
use crate::control::join::join;
use crate::control::medium::Requester;
use crate::control::service::Service;
use crate::lane::local::LocalLane;
use crate::lane::parker::RdmaParker;
use crate::lane::remote::RdmaLane;
use crate::verbs::Posted;
use crate::{RdmaConfig, RdmaError};

/// How long a goodbye waits for requests of this host to complete.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval at which a goodbye checks what is still in flight.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// One host of a rack whose hosts access each other's memory by RDMA.
///
/// It stands on a *carrier*, a transport that has joined the hosts already: its authenticated
/// connections carry the addresses of queue pairs and the keys of regions, and it reports peers that
/// leave or are lost. Data does not use them, and is **not encrypted**: an attacker who can read or
/// forge packets on the network between the devices can read and change what lanes carry.
///
/// Dropping it severs the carrier: peers that have not seen a goodbye report it as lost.
///
/// A process that has one may start others ([`std::process::Command`]), but a child of a bare
/// `fork()` must neither use nor drop it. On kernels before Linux 5.13 the parent's regions do not
/// survive a fork either, unless `RDMAV_FORK_SAFE=1` is in its environment.
pub struct RdmaTransport {
    host: Arc<Host>,
    service: Mutex<Option<JoinHandle<()>>>,
}

impl RdmaTransport {
    /// Joins the hosts of `carrier`, and returns when this host's queue pairs are connected to those of
    /// all others. The carrier must have one thread more than the rack: the last is this transport's
    /// own. None of its lanes and parkers may have been opened.
    ///
    /// ```no_run
    /// use gossamer_transport_rdma::{RdmaConfig, RdmaError, RdmaTransport};
    /// use std::sync::Arc;
    /// use transport_api::{Carrier, Transport};
    ///
    /// fn over(carrier: Arc<dyn Carrier>) -> Result<Arc<RdmaTransport>, RdmaError> {
    ///     let host_address = Some([10, 0, 0, 7].into());
    ///     let transport = RdmaTransport::over(carrier, RdmaConfig { host_address, ..Default::default() })?;
    ///     println!("{} of {} hosts", transport.local(), transport.hosts());
    ///     Ok(transport)
    /// }
    /// ```
    ///
    /// # Errors
    /// Any [`RdmaError`].
    pub fn over(
        carrier: Arc<dyn Carrier>,
        config: RdmaConfig,
    ) -> Result<Arc<RdmaTransport>, RdmaError> {
        let joined = join(carrier, config)?;
        let host = joined.host.clone();
        let service = Service::new(joined);
        let thread = thread::Builder::new().name("gossamer-rdma".into());
        let thread = thread.spawn(|| service.run())?;
        Ok(Arc::new(Self { host, service: Mutex::new(Some(thread)) }))
    }

    /// Cuts this host off from the others without a goodbye, as a crash would: they report it as
    /// lost. For tests of what happens then.
    pub fn sever(&self) {
        self.host.is_stopping.store(true, Ordering::Release);
        self.host.unpark_service();
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(service) = service {
            // If it panicked, it has ended.
            let _ = service.join();
        }
        self.host.carrier.sever();
    }

    /// Work requests and doorbells of this process so far, on all its queue pairs.
    pub fn posted(&self) -> Posted {
        self.host.selected.device.posted()
    }

    #[cfg(test)]
    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Why nothing can be imported from `owner` any more.
    fn lost(&self, owner: HostId) -> RegionError {
        RegionError::lost(owner, self.host.end_of(owner))
    }
}

impl Transport for RdmaTransport {
    fn local(&self) -> HostId {
        self.host.local
    }

    fn hosts(&self) -> u32 {
        self.host.event_queues.hosts()
    }

    fn threads(&self) -> u32 {
        self.host.threads
    }

    fn maps(&self, peer: HostId) -> bool {
        peer == self.host.local
    }

    /// A device's atomics are not atomic with the processor's; a host that is alone has no peers that use them.
    fn maps_atomics(&self, peer: HostId) -> bool {
        self.maps(peer) && self.hosts() == 1
    }

    fn is_authenticated(&self) -> bool {
        // A host alone has no queue pair, so that nothing arrives from a network.
        self.hosts() == 1
    }

    fn export(&self, key: RegionKey, len: usize, access: Access) -> Result<Region, RegionError> {
        self.host.export(key, len, access)
    }

    fn revoke(&self, key: RegionKey) -> Result<(), RegionError> {
        // Closed at the latest when the revocation times out, or the service thread ends.
        let _ = self.host.revoke(key, None)?.recv();
        Ok(())
    }

    fn begin_revoke(&self, thread: u32, key: RegionKey, token: u64) -> Result<(), RegionError> {
        self.host.begin_revoke(thread, key, token)
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
        if owner == self.host.local {
            return self.host.carrier.import(owner, key, timeout);
        }
        if owner.0 >= self.hosts() {
            return Err(RegionError::NoSuchHost(owner));
        }
        let (answer, answered) = mpsc::channel();
        self.host.begin_import(owner, key, timeout, Importer::Blocked(answer))?;
        // Answered or dropped at the latest when the import times out, or the service thread ends.
        answered.recv().unwrap_or_else(|_| Err(self.lost(owner)))
    }

    fn begin_import(
        &self,
        thread: u32,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        token: u64,
    ) -> Result<(), RegionError> {
        if owner == self.host.local {
            return self.host.carrier.begin_import(thread, owner, key, timeout, token);
        }
        if owner.0 >= self.hosts() {
            return Err(RegionError::NoSuchHost(owner));
        }
        self.host.begin_import(owner, key, timeout, Importer::Lane { thread, token })
    }

    fn lane(&self, thread: u32, peer: HostId) -> Result<Box<dyn Lane>, LaneError> {
        let event_queue = self.host.event_queues.open(thread, peer)?;
        let (host, carrier) = (self.host.clone(), self.host.carrier.lane(thread, peer)?);
        if peer == self.host.local {
            return Ok(Box::new(LocalLane::new(host, event_queue, carrier)));
        }
        Ok(Box::new(RdmaLane::new(host, event_queue, carrier)))
    }

    fn parker(&self, thread: u32) -> Result<Box<dyn Parker>, LaneError> {
        self.host.event_queues.take_parker(thread)?;
        let carrier = self.host.carrier.parker(thread)?;
        Ok(Box::new(RdmaParker::new(self.host.clone(), thread, carrier)))
    }

    fn unpark(&self, thread: u32) {
        if thread < self.host.threads {
            self.host.carrier.unpark(thread);
        }
    }

    fn queue_pairs(&self) -> u32 {
        self.host.selected.device.queue_pairs()
    }

    fn leave(&self) {
        // What was flushed before the goodbye arrives before it; a peer that hangs must not hang
        // this.
        let deadline = Instant::now() + LEAVE_TIMEOUT;
        let host = &self.host;
        let is_done = |peer| host.end_of(peer).is_some() || host.is_quiet(peer);
        while !host.peers().all(is_done) && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        host.control(|control| control.leave(Instant::now(), Requester::Leave));
        host.carrier.leave();
    }
}

impl Drop for RdmaTransport {
    fn drop(&mut self) {
        self.sever();
    }
}
