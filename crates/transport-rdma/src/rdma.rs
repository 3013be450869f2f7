//! [`RdmaTransport`]: one process's place in a rack whose machines have RDMA devices.

use crate::{
    RdmaConfig, RdmaError,
    host::{Guard, Host},
    join::join,
    lane::RdmaLane,
    local::LocalLane,
    parker::RdmaParker,
    service::{Order, Service},
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
    Access, Carrier, Event, HostId, Importer, Lane, LaneError, Parker, Region, RegionError,
    RegionKey, RemoteRegion, Transport,
};

/// How long peers may take to answer an import beyond its timeout, or this host's own requests to
/// complete before it says goodbye.
const ANSWER: Duration = Duration::from_secs(2);

/// How long a goodbye sleeps between looks at what is still under way.
const LOOK: Duration = Duration::from_micros(100);

/// One process's place in a rack whose hosts reach each other's memory by RDMA.
///
/// It stands on a *carrier*, a transport that has joined the hosts already: over its authenticated
/// connections travel the keys of regions and the numbers of queue pairs, and notice of peers that
/// leave or are lost. The data itself does not, and is **not encrypted**: whoever can
/// read or forge packets on the network between the devices can read and change what lanes carry.
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
    /// Takes this host's place over `carrier`, and returns when its queue pairs are connected with
    /// those of all others. The carrier must have one thread more than the rack: the last is this
    /// transport's own. None of its lanes and parkers may have been opened.
    ///
    /// ```no_run
    /// use gossamer_transport_rdma::{RdmaConfig, RdmaError, RdmaTransport};
    /// use std::sync::Arc;
    /// use transport_api::{Carrier, Transport};
    ///
    /// fn over(carrier: Arc<dyn Carrier>) -> Result<Arc<RdmaTransport>, RdmaError> {
    ///     let near = Some([10, 0, 0, 7].into());
    ///     let transport = RdmaTransport::over(carrier, RdmaConfig { near, ..Default::default() })?;
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
        self.host.leave(Order::Stop);
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(service) = service {
            // If it panicked there is nothing left to end.
            let _ = service.join();
        }
        self.host.carrier.sever();
    }

    #[cfg(test)]
    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Asks `owner`, another host, for a region on behalf of `importer`.
    fn ask(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        importer: Importer,
    ) -> Result<(), RegionError> {
        if owner.0 >= self.hosts() {
            return Err(RegionError::NoSuchHost(owner));
        }
        if self.host.end_of(owner).is_some() {
            return Err(self.lost(owner));
        }
        self.host.leave(Order::Import { owner, key, timeout, importer });
        Ok(())
    }

    /// Why nothing can be had from `owner` any more.
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

    fn export(&self, key: RegionKey, len: usize, access: Access) -> Result<Region, RegionError> {
        let Host { carrier, pd, memory, exports, .. } = &*self.host;
        let region = exports.export((&**carrier, pd, memory), key, len, access.clone())?;
        // A peer may be waiting for it.
        self.host.ring_service();
        let (generation, memory) = (region.generation(), region.memory().clone());
        let guard = Guard { host: Arc::downgrade(&self.host), key, generation };
        Ok(Region::new(key, access, generation, memory, Arc::new(guard)))
    }

    fn revoke(&self, key: RegionKey) -> Result<(), RegionError> {
        let (done, ended) = mpsc::channel::<()>();
        let revoked = self.host.withdraw(key, None, false, move || drop(done));
        // Closed when all have forgotten it, are gone or are given up.
        let _ = ended.recv_timeout(2 * ANSWER);
        revoked
    }

    fn begin_revoke(&self, thread: u32, key: RegionKey, token: u64) -> Result<(), RegionError> {
        let host = Arc::downgrade(&self.host);
        self.host.withdraw(key, None, true, move || {
            if let Some(host) = host.upgrade() {
                host.deliver(thread, host.local, Event::Completed { token, value: 0 });
            }
        })
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
        let (answer, answered) = mpsc::channel();
        self.ask(owner, key, timeout, Importer::Blocked(answer))?;
        match answered.recv_timeout(timeout.saturating_add(ANSWER)) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(RegionError::Unknown { owner, key }),
            Err(RecvTimeoutError::Disconnected) => Err(self.lost(owner)),
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
        if owner == self.host.local {
            return self.host.carrier.begin_import(thread, owner, key, timeout, token);
        }
        self.ask(owner, key, timeout, Importer::Lane { thread, token })
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
        self.host.place.device.queue_pairs()
    }

    fn leave(&self) {
        // What was flushed before the goodbye arrives before it; a peer that hangs must not hang
        // this.
        let deadline = Instant::now() + ANSWER;
        let host = &self.host;
        let is_done = |peer| host.end_of(peer).is_some() || host.is_quiet(peer);
        while !host.peers().all(is_done) && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        host.carrier.leave();
    }
}

impl Drop for RdmaTransport {
    fn drop(&mut self) {
        self.sever();
    }
}
