//! How this host acts on the outputs of its control plane, except messages, which the service thread
//! sends.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Instant;

use rustix::io::Errno;
use transport_api::{Event, HostId, LossReason, RegionError, RegionKey, RemoteRegion};
use transport_control::{Descriptor, Importer, Output, Requester};

use crate::control::exported::{REGION_HEADER, is_writable, window};
use crate::control::host::Host;
use crate::control::plane::ShmMedium;
use crate::memory::mapping;

impl Host {
    /// The next output of the control plane.
    pub(super) fn next_output(&self, now: Instant) -> Option<Output<ShmMedium>> {
        self.plane.lock().control.poll(now)
    }

    /// The service thread ends: every peer is lost for `reason`, and threads that call the control
    /// plane poll it themselves from now on. Nothing watches the processes of peers any more, so
    /// revocations of regions that peers may use end with an error. Lanes report the peers as lost
    /// only if `is_reported`.
    pub(super) fn close_control(self: &Arc<Self>, reason: &LossReason, is_reported: bool) {
        let mut plane = self.plane.lock();
        plane.control.close(reason);
        plane.has_service = false;
        drop(plane);
        while let Some(output) = self.next_output(Instant::now()) {
            if is_reported || !matches!(output, Output::PeerGone(_)) {
                self.act(output);
            }
        }
    }

    /// Acts on all outputs where there is no connection.
    pub(super) fn poll_without_service(self: &Arc<Self>) {
        while let Some(output) = self.next_output(Instant::now()) {
            self.act(output);
        }
        self.watch_timeouts();
    }

    /// Acts on an output, unless it concerns connections.
    pub(super) fn act(self: &Arc<Self>, output: Output<ShmMedium>) {
        match output {
            Output::PeerGone(event) => self.gone(&event),
            Output::Imported { requester, owner, key, region, attachment, export } => {
                let result = match (export, attachment) {
                    (Some(own), _) => {
                        let window = window(self.id, (owner, key), &region, own.whole());
                        Ok(RemoteRegion::mapping(Arc::new(window)))
                    }
                    (None, Some(file)) => self.map(owner, key, &region, &file),
                    // The packet of an answer comes with one descriptor, if there is room for it here.
                    (None, None) => {
                        let len = usize::try_from(region.len).unwrap_or(usize::MAX);
                        Err(RegionError::NoMemory { len, source: Errno::MFILE.into() })
                    }
                };
                if let Requester::Import(importer) = requester {
                    self.answer(importer, owner, result);
                }
            }
            Output::ImportFailed { requester: Requester::Import(importer), owner, key, error } => {
                importer.fail((owner, key), error, self.end_of(owner), |thread, event| {
                    self.deliver(thread, owner, event);
                });
            }
            Output::Inhibit { owner, key, generation, epoch } => {
                // Its owner has marked the region as dead, in memory that all importers map.
                self.forget(owner, key, generation);
                self.quiet_points.begin(epoch);
                self.ask_all_threads();
                self.report_quiet();
            }
            Output::Revoked { requester, key, busy, .. } => {
                if let Some(Requester::Revoke { thread, token }) = requester {
                    self.deliver(thread, self.local, Event::revoked(token, key, busy));
                }
            }
            Output::Departed { requester: Requester::Leave(departed) } => {
                // It may have timed out.
                let _ = departed.send(());
            }
            Output::ImportFailed { .. }
            | Output::Departed { .. }
            | Output::Send { .. }
            | Output::Close(_) => {}
        }
    }

    /// Answers an import.
    pub(super) fn answer(
        &self,
        importer: Importer,
        owner: HostId,
        result: Result<RemoteRegion, RegionError>,
    ) {
        importer.answer(result, |thread, event| self.deliver(thread, owner, event));
    }

    /// Maps a region of a peer.
    fn map(
        &self,
        owner: HostId,
        key: RegionKey,
        region: &Descriptor,
        file: &OwnedFd,
    ) -> Result<RemoteRegion, RegionError> {
        let violated = |what: String| RegionError::PeerLost(owner, LossReason::Protocol(what));
        let absurd = || violated(format!("a region of {} bytes", region.len));
        let len = usize::try_from(region.len).map_err(|_| absurd())?;
        let total = len.checked_add(REGION_HEADER).ok_or_else(absurd)?;
        let whole = mapping::of_peer(file, total, is_writable(region.rights));
        let whole = whole.map_err(|source| match source.kind() {
            io::ErrorKind::InvalidData => violated(source.to_string()),
            _ => RegionError::NoMemory { len, source },
        })?;
        let window = Arc::new(window(self.id, (owner, key), region, &whole));
        self.imports.lock().insert((owner, key), Arc::downgrade(&window));
        Ok(RemoteRegion::mapping(window))
    }

    /// Imports of a revoked region serve no thread that imports it anew.
    fn forget(&self, owner: HostId, key: RegionKey, generation: u32) {
        let mut imports = self.imports.lock();
        let is_it = |window: Option<Arc<_>>| {
            window.is_none_or(|window: Arc<transport_api::Window>| window.name().2 == generation)
        };
        if imports.get(&(owner, key)).map(Weak::upgrade).is_some_and(is_it) {
            imports.remove(&(owner, key));
        }
    }
}
