//! What threads of this host ask of its control plane ([`transport_control`]), and how they act on
//! its outputs.
//!
//! Threads of the program call it under its lock and then wake the service thread, which alone polls
//! it while it runs. Locks are taken in one order: that of a connection, then that of the control
//! plane.

pub(crate) mod conn;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use primitive::SharedBytes;
use transport_api::{
    Access, Event, HostId, LossReason, Region, RegionError, RegionKey, RemoteRegion,
};
use transport_control::{
    Descriptor, ExportGuard, FirstExport, ImportId, Importer, Output, Requester, Revoker,
};

use crate::export::Exported;
use crate::host::Host;
use crate::plane::TcpMedium;

/// What a region keeps; its memory is all that this transport has of it.
type Guard = ExportGuard<Host, ()>;

impl Revoker for Host {
    fn hosts(&self) -> u32 {
        self.event_queues.hosts()
    }

    fn revoke_generation(self: &Arc<Self>, key: RegionKey, generation: u32) {
        self.revoke(key, Some(generation), None);
    }
}

/// For threads of the program.
impl Host {
    /// Exports `len` new bytes.
    pub(crate) fn export(
        self: &Arc<Self>,
        key: RegionKey,
        len: usize,
        access: Access,
    ) -> Result<Region, RegionError> {
        if self.plane.lock().control.is_exported(key, None) {
            return Err(RegionError::KeyTaken(key));
        }
        let no_memory = || RegionError::NoMemory { len, source: io::ErrorKind::OutOfMemory.into() };
        let memory = SharedBytes::try_heap(len.max(8)).ok_or_else(no_memory)?.slice(0, len);
        self.export_memory(key, access, memory)
    }

    /// Exports memory that is there already.
    pub(crate) fn export_memory(
        self: &Arc<Self>,
        key: RegionKey,
        access: Access,
        memory: SharedBytes,
    ) -> Result<Region, RegionError> {
        self.export_within((key, memory), None, access)
    }

    /// Exports the memory of a region that was revoked again, with `access`.
    pub(crate) fn reexport(
        self: &Arc<Self>,
        region: &Region,
        access: Access,
    ) -> Result<Region, RegionError> {
        let guard = Guard::check_reexport(self, region, &access)?;
        let memory = region.memory().clone();
        self.export_within((region.key(), memory), Some(guard.first().clone()), access)
    }

    /// Exports memory with `access`; `first` is its first export, unless that is this one.
    fn export_within(
        self: &Arc<Self>,
        (key, memory): (RegionKey, SharedBytes),
        first: Option<FirstExport>,
        access: Access,
    ) -> Result<Region, RegionError> {
        let part =
            |generation| Arc::new(Exported::new((key, generation), access.clone(), memory.clone()));
        let generation = match &first {
            None => self.plane.lock().control.export(key, part)?,
            Some(first) => self.plane.lock().control.reexport(key, first.generation, part)?,
        };
        // A peer may be waiting for it.
        self.poll_control();
        let first = first.unwrap_or_else(|| FirstExport { generation, access: access.clone() });
        let guard = Guard::new(self, (key, generation), first, ());
        Ok(Region::new(key, access, generation, memory, Arc::new(guard)))
    }

    /// Revokes `key` (only `generation` of it, if given). No operation of a peer touches its memory
    /// once this has returned; `requester` is answered when no thread of this host does either.
    /// False if it was not exported.
    pub(crate) fn revoke(
        &self,
        key: RegionKey,
        generation: Option<u32>,
        requester: Option<Requester>,
    ) -> bool {
        let plane = self.plane.lock();
        let found =
            plane.control.exported(key).filter(|(_, g)| generation.is_none_or(|it| it == *g));
        let Some((exported, generation)) = found else { return false };
        exported.revoke();
        drop(plane);
        // Behind this no operation that came over a connection is under way, nor begins.
        for (peer, thread) in self.links() {
            self.link(peer, thread).lock().machine.forget(key);
        }
        // Only now, because the service thread may report at once that the region is quiet.
        let mut plane = self.plane.lock();
        let revoked = plane.control.revoke(Instant::now(), key, Some(generation), requester);
        drop(plane);
        self.poll_control();
        // Another thread may have revoked it meanwhile.
        revoked.is_some()
    }

    /// Imports a region, and blocks until it is there or the import has failed.
    pub(crate) fn import(
        &self,
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

    /// Imports a region, and answers `importer` when it is there or the import has failed. Returns what
    /// names the import, unless it has ended already.
    pub(crate) fn begin_import(
        &self,
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
        let mut plane = self.plane.lock();
        if owner == self.local
            && let Some((_, exported)) = plane.control.import_own(key)
        {
            drop(plane);
            let window = Arc::new(exported.window(self.id, owner));
            self.answer(importer, owner, Ok(RemoteRegion::mapping(window)));
            return Ok(None);
        }
        let requester = Requester::Import(importer);
        let import = plane.control.begin_import(Instant::now(), requester, owner, key, timeout);
        drop(plane);
        self.poll_control();
        Ok(Some(import))
    }

    /// Has the control plane polled after a call.
    pub(crate) fn poll_control(&self) {
        if self.plane.lock().has_service_ended {
            self.poll_without_service();
        } else {
            self.service_queue.wake();
        }
    }
}

/// For the service thread.
impl Host {
    /// The next output of the control plane.
    pub(crate) fn next_output(&self, now: Instant) -> Option<Output<TcpMedium>> {
        self.plane.lock().control.poll(now)
    }

    /// The service thread ends: every peer is lost for `reason`, and threads that call the control
    /// plane poll it themselves from now on. So revocations, which wait for threads of this host alone,
    /// go on.
    pub(crate) fn close_control(&self, reason: &LossReason) {
        let mut plane = self.plane.lock();
        plane.control.close(reason);
        plane.has_service_ended = true;
        drop(plane);
        self.poll_without_service();
    }

    /// Acts on all outputs when there is no connection any more.
    fn poll_without_service(&self) {
        while let Some(output) = self.next_output(Instant::now()) {
            self.act(output);
        }
    }

    /// Acts on an output, unless it concerns connections.
    pub(crate) fn act(&self, output: Output<TcpMedium>) {
        match output {
            Output::PeerGone(event) => self.gone(event),
            Output::Imported { requester, owner, key, region, export, .. } => {
                let region = self.remote_region(owner, key, region, export.as_deref());
                if let Requester::Import(importer) = requester {
                    self.answer(importer, owner, Ok(region));
                }
            }
            Output::ImportFailed { requester: Requester::Import(importer), owner, key, error } => {
                importer.fail((owner, key), error, self.end_of(owner), |thread, event| {
                    self.deliver(thread, owner, event);
                });
            }
            Output::ImportFailed { .. } => {}
            // Its windows are dead already.
            Output::Inhibit { epoch, .. } => {
                self.quiet_points.begin(epoch);
                (0..self.threads).for_each(|thread| self.wake(thread));
                self.report_quiet();
            }
            Output::Revoked {
                requester: Some(Requester::Revoke { thread, token }),
                key,
                busy,
                ..
            } => self.deliver(thread, self.local, Event::revoked(token, key, busy)),
            // With the last window, the memory goes.
            Output::Revoked { .. } => {}
            Output::Departed { requester: Requester::Leave(sender) } => drop(sender.send(())),
            Output::Departed { .. } => {}
            Output::Send { .. } | Output::Close(_) => {}
        }
    }

    /// Answers an import.
    fn answer(&self, importer: Importer, owner: HostId, result: Result<RemoteRegion, RegionError>) {
        importer.answer(result, |thread, event| self.deliver(thread, owner, event));
    }

    /// What a lane needs of a region that was imported.
    fn remote_region(
        &self,
        owner: HostId,
        key: RegionKey,
        region: Descriptor,
        own: Option<&Exported>,
    ) -> RemoteRegion {
        if let Some(exported) = own {
            return RemoteRegion::mapping(Arc::new(exported.window(self.id, owner)));
        }
        let Descriptor { generation, rights, len, .. } = region;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        // The key and the generation are all that its owner needs.
        RemoteRegion::remote((self.id, owner), (key, rights, generation), len, Arc::new(()))
    }
}
