//! [`RdmaTransport`]: one host of a rack whose machines have RDMA devices.

use crate::{
    RdmaConfig, RdmaError,
    control::host::{Guard, Host},
    control::join::join,
    control::service::Service,
    control::service_queue::Command,
    lane::local::LocalLane,
    lane::parker::RdmaParker,
    lane::remote::RdmaLane,
};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use transport_api::{
    Carrier, HostId, Lane, LaneError, Parker, Region, RegionError, RegionKey, RemoteRegion, Rights,
    Transport,
};

/// How long peers may take to answer an import beyond its timeout, or this host's own requests to
/// complete before it says goodbye.
const ANSWER: Duration = Duration::from_secs(2);

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
        self.host.command(Command::Stop);
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(service) = service {
            // If it panicked, it has ended.
            let _ = service.join();
        }
        self.host.carrier.sever();
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

    fn export(&self, key: RegionKey, len: usize, rights: Rights) -> Result<Region, RegionError> {
        let Host { carrier, pd, memory, exports, .. } = &*self.host;
        let region = exports.export((&**carrier, pd, memory), key, len, rights)?;
        // A peer may be waiting for it.
        self.host.unpark_service();
        let (generation, memory) = (region.generation(), region.memory().clone());
        let guard = Guard { host: Arc::downgrade(&self.host), key, generation };
        Ok(Region::new(key, rights, generation, memory, Arc::new(guard)))
    }

    fn revoke(&self, key: RegionKey) -> Result<(), RegionError> {
        self.host.withdraw(key, None)
    }

    fn import(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> Result<RemoteRegion, RegionError> {
        if owner.0 >= self.hosts() {
            return Err(RegionError::NoSuchHost(owner));
        }
        if owner == self.host.local {
            return self.host.carrier.import(owner, key, timeout);
        }
        if self.host.end_of(owner).is_some() {
            return Err(self.lost(owner));
        }
        let (answer, answered) = mpsc::channel();
        self.host.command(Command::Import { owner, key, timeout, answer });
        match answered.recv_timeout(timeout.saturating_add(ANSWER)) {
            Ok(Some(region)) => Ok(region),
            Ok(None) | Err(RecvTimeoutError::Timeout) => Err(RegionError::Unknown { owner, key }),
            Err(RecvTimeoutError::Disconnected) => Err(self.lost(owner)),
        }
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
        let deadline = Instant::now() + ANSWER;
        let host = &self.host;
        let is_done = |peer| host.end_of(peer).is_some() || host.is_quiet(peer);
        while !host.peers().all(is_done) && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        host.carrier.leave();
    }
}

impl Drop for RdmaTransport {
    fn drop(&mut self) {
        self.sever();
    }
}
