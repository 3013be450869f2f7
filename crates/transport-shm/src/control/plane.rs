//! [`Plane`]: the control plane that the threads of this host share, and their calls to it.
//!
//! Threads of the program call it under its lock and then wake the service thread, which alone polls
//! it while there is one. Otherwise they poll it themselves.

use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

use transport_api::{Access, HostId, LossReason, Region, RegionError, RegionKey, RemoteRegion};
use transport_control::{
    Control, ExportGuard, FirstExport, ImportId, Importer, LEAVE_GRACE, Medium, Requester, Revoker,
};

use crate::control::exported::{Exported, window};
use crate::control::host::Host;

/// The types of the control plane over shared memory.
pub(crate) struct ShmMedium;

impl Medium for ShmMedium {
    type Export = Arc<Exported>;
    /// The memory of an imported region.
    type Attachment = std::os::fd::OwnedFd;
    type Requester = Requester;
}

/// The control plane, and which thread polls it.
pub(crate) struct Plane {
    pub(crate) control: Control<ShmMedium>,
    /// Whether the service thread does; otherwise the threads that call it do.
    pub(crate) has_service: bool,
}

/// What a region keeps: its memory and descriptors, revoked or not.
type Guard = ExportGuard<Host, Arc<Exported>>;

impl Revoker for Host {
    fn hosts(&self) -> u32 {
        Host::hosts(self)
    }

    fn revoke_generation(self: &Arc<Self>, key: RegionKey, generation: u32) {
        self.revoke(key, Some(generation), None);
    }
}

/// For threads of the program.
impl Host {
    /// Exports `len` new bytes.
    ///
    /// # Errors
    /// [`RegionError::KeyTaken`], [`RegionError::NoMemory`].
    pub(crate) fn export(
        self: &Arc<Self>,
        key: RegionKey,
        len: usize,
        access: Access,
    ) -> Result<Region, RegionError> {
        if self.plane.lock().control.is_exported(key, None) {
            return Err(RegionError::KeyTaken(key));
        }
        let exported = Exported::allocate(len, access.clone(), self.waker.is_some())
            .map_err(|source| RegionError::NoMemory { len, source })?;
        self.export_within((key, exported), None, access)
    }

    /// Exports the memory of a region that was revoked again, with `access`.
    ///
    /// # Errors
    /// Those of [`Transport::reexport`](transport_api::Transport::reexport).
    pub(crate) fn reexport(
        self: &Arc<Self>,
        region: &Region,
        access: Access,
    ) -> Result<Region, RegionError> {
        let guard = Guard::check_reexport(self, region, &access)?;
        let exported = guard.memory().with_access(access.clone()).map_err(|source| {
            let len = region.memory().len();
            RegionError::NoMemory { len, source }
        })?;
        self.export_within((region.key(), exported), Some(guard.first().clone()), access)
    }

    /// Exports a region with `access`; `first` is the first export of its memory, unless that is this
    /// one.
    fn export_within(
        self: &Arc<Self>,
        (key, exported): (RegionKey, Exported),
        first: Option<FirstExport>,
        access: Access,
    ) -> Result<Region, RegionError> {
        let exported = Arc::new(exported);
        let publish = |generation| {
            exported.publish(generation);
            exported.clone()
        };
        let generation = match &first {
            None => self.plane.lock().control.export(key, publish)?,
            Some(first) => self.plane.lock().control.reexport(key, first.generation, publish)?,
        };
        // A peer or a thread may be waiting for it.
        self.poll_control();
        let memory = exported.memory();
        let first = first.unwrap_or_else(|| FirstExport { generation, access: access.clone() });
        let guard = Guard::new(self, (key, generation), first, exported);
        Ok(Region::new(key, access, generation, memory, Arc::new(guard)))
    }

    /// Revokes `key` (only `generation` of it, if given): operations that start after this fail.
    /// `requester` is answered when those that started before have ended. False if it is not exported.
    pub(crate) fn revoke(
        self: &Arc<Self>,
        key: RegionKey,
        generation: Option<u32>,
        requester: Option<Requester>,
    ) -> bool {
        let mut plane = self.plane.lock();
        let revoked = plane.control.revoke(Instant::now(), key, generation, requester);
        let Some(exported) = revoked else { return false };
        // Before the control plane is polled, which asks whether threads still use it.
        exported.revoke();
        drop(plane);
        self.poll_control();
        true
    }

    /// Imports a region, and blocks until it is there or the import has failed.
    ///
    /// # Errors
    /// Those of [`Transport::import`](transport_api::Transport::import).
    pub(crate) fn import(
        self: &Arc<Self>,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> Result<RemoteRegion, RegionError> {
        Importer::block(
            (owner, key, timeout),
            |importer| self.begin_import(owner, key, timeout, importer),
            |import| {
                if let Some(import) = import {
                    self.plane.lock().control.cancel_import(import);
                    self.poll_control();
                }
            },
            || RegionError::lost(owner, self.end_of(owner)),
        )
    }

    /// Imports a region, and answers `importer` when it is there or the import has failed. Returns
    /// what names the import, unless it has ended already.
    ///
    /// # Errors
    /// [`RegionError::NoSuchHost`], [`RegionError::PeerLost`].
    pub(crate) fn begin_import(
        self: &Arc<Self>,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        importer: Importer,
    ) -> Result<Option<ImportId>, RegionError> {
        if !self.reaches(owner) {
            return Err(RegionError::NoSuchHost(owner));
        }
        if self.end_of(owner).is_some() {
            return Err(RegionError::lost(owner, self.end_of(owner)));
        }
        // What one thread has mapped serves all: one mapping, one set of page tables.
        let known = self.imports.lock().get(&(owner, key)).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.is_live()) {
            self.answer(importer, owner, Ok(RemoteRegion::mapping(known)));
            return Ok(None);
        }
        let mut plane = self.plane.lock();
        if owner == self.local
            && let Some((region, exported)) = plane.control.import_own(key)
        {
            drop(plane);
            let window = Arc::new(window(self.id, (owner, key), &region, exported.whole()));
            self.answer(importer, owner, Ok(RemoteRegion::mapping(window)));
            return Ok(None);
        }
        let requester = Requester::Import(importer);
        let import = plane.control.begin_import(Instant::now(), requester, owner, key, timeout);
        drop(plane);
        self.poll_control();
        Ok(Some(import))
    }

    /// Says goodbye to all peers, and blocks until that is said.
    pub(crate) fn leave(self: &Arc<Self>) {
        let (sender, departed) = mpsc::channel();
        self.plane.lock().control.leave(Instant::now(), Requester::Leave(sender));
        self.poll_control();
        // It comes when the goodbyes are sent, unless the service thread has failed.
        let _ = departed.recv_timeout(LEAVE_GRACE);
    }

    /// Counts `peer` as lost, which a lane has found out.
    pub(crate) fn lose(self: &Arc<Self>, peer: HostId, reason: LossReason) {
        self.plane.lock().control.lose(peer, reason);
        self.poll_control();
    }

    /// Tells the control plane which revoked regions no thread of this host uses any more.
    pub(crate) fn report_quiet(self: &Arc<Self>) {
        let reached = self.quiet_points.reached();
        if !reached.is_empty() {
            let mut plane = self.plane.lock();
            reached.iter().for_each(|epoch| plane.control.quiesced(*epoch));
            drop(plane);
            self.poll_control();
        }
    }

    /// Has the control plane polled after a call.
    pub(crate) fn poll_control(self: &Arc<Self>) {
        match &self.waker {
            Some(waker) if self.plane.lock().has_service => waker.wake(),
            _ => self.poll_without_service(),
        }
    }
}
