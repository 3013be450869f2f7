//! What threads of this host ask of its control plane ([`transport_control`]), and how they act on
//! its outputs.
//!
//! Threads of the program call it under its lock and then wake the service thread, which alone polls
//! it while it runs. Locks are taken in one order: that of a connection, then that of the control
//! plane.

pub(crate) mod conn;

use std::io;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

use primitive::SharedBytes;
use transport_api::{
    Access, Event, HostId, LossReason, Region, RegionError, RegionKey, RemoteRegion,
};
use transport_control::{ANSWER_GRACE, Descriptor, ImportId, Importer, Output, Requester};

use crate::export::Exported;
use crate::host::Host;
use crate::lane::Handle;
use crate::plane::TcpMedium;

/// Revokes a region when its last [`Region`] is dropped.
struct Guard {
    host: Weak<Host>,
    key: RegionKey,
    generation: u32,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(host) = self.host.upgrade() {
            host.revoke(self.key, Some(self.generation), None);
        }
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
        let part =
            |generation| Arc::new(Exported::new((key, generation), access.clone(), memory.clone()));
        let generation = self.plane.lock().control.export(key, part)?;
        // A peer may be waiting for it.
        self.poll_control();
        let guard = Guard { host: Arc::downgrade(self), key, generation };
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
        let mut plane = self.plane.lock();
        let revoked = plane.control.revoke(Instant::now(), key, generation, requester);
        let Some(exported) = revoked else { return false };
        // Before the control plane is polled, which asks whether threads still use it.
        exported.revoke();
        drop(plane);
        for (peer, thread) in self.links() {
            self.link(peer, thread).machine.forget(key);
        }
        self.poll_control();
        true
    }

    /// Imports a region, and blocks until it is there or the import has failed.
    pub(crate) fn import(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> Result<RemoteRegion, RegionError> {
        let (sender, receiver) = mpsc::channel();
        let import = self.begin_import(owner, key, timeout, Importer::Blocked(sender))?;
        // The control plane ends it by then, unless the service thread has failed.
        match receiver.recv_timeout(timeout.saturating_add(2 * ANSWER_GRACE)) {
            Ok(result) => result,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Err(RegionError::lost(owner, self.end_of(owner)))
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if let Some(import) = import {
                    self.plane.lock().control.cancel_import(import);
                }
                Err(RegionError::Unknown { owner, key })
            }
        }
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
    /// plane poll it themselves from now on.
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
            Output::Revoked { requester: Some(Requester::Revoke { thread, token }), .. } => {
                self.deliver(thread, self.local, Event::Completed { token, value: 0 });
            }
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
        let handle = Arc::new(Handle { issuer: self.id });
        RemoteRegion::remote(owner, (key, rights, generation), len, handle)
    }
}
