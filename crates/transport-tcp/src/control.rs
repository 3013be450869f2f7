//! The control plane of this host ([`transport_control`]) as its threads share it, and what they do
//! about its outputs.
//!
//! Threads of the program call it under its lock and then wake the service thread, which alone polls
//! it while it runs. Locks are taken in one order: that of a connection, then that of the control
//! plane.

use crate::{export::Exported, host::Host, lane::Handle};
use primitive::SharedBytes;
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc},
    time::{Duration, Instant},
};
use transport_api::{HostId, LossReason, Region, RegionError, RegionKey, RemoteRegion, Rights};
use transport_control::{ANSWER_GRACE, Config, Control, Descriptor, Medium, Output};

/// The types of the control plane over TCP, where nothing comes beside a message.
pub(crate) struct TcpMedium;

impl Medium for TcpMedium {
    type Export = Arc<Exported>;
    type Attachment = ();
    type Requester = Requester;
}

/// Who waits for something that the control plane does.
pub(crate) enum Requester {
    /// A thread that blocks until its import ends.
    Import(mpsc::Sender<Result<RemoteRegion, RegionError>>),
    /// A thread that blocks until this host's goodbye was seen.
    Leave(mpsc::Sender<()>),
}

/// The control plane, and whether the service thread polls it.
pub(crate) struct Plane {
    pub(crate) control: Control<TcpMedium>,
    has_service_ended: bool,
}

/// The control plane as the threads of this host share it.
pub(crate) struct SharedPlane(Mutex<Plane>);

impl SharedPlane {
    pub(crate) fn new(config: Config) -> Self {
        let control = Control::new(Instant::now(), config);
        Self(Mutex::new(Plane { control, has_service_ended: false }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Plane> {
        // The state machine has no code of others in it: a panic with this lock is a bug in it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Revokes a region when its last [`Region`] is dropped.
struct Guard {
    host: Weak<Host>,
    key: RegionKey,
    generation: u32,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(host) = self.host.upgrade() {
            host.revoke(self.key, Some(self.generation));
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
        rights: Rights,
    ) -> Result<Region, RegionError> {
        if self.plane.lock().control.is_exported(key, None) {
            return Err(RegionError::KeyTaken(key));
        }
        let no_memory = || RegionError::NoMemory { len, source: io::ErrorKind::OutOfMemory.into() };
        let memory = SharedBytes::try_heap(len.max(8)).ok_or_else(no_memory)?.slice(0, len);
        self.export_memory(key, rights, memory)
    }

    /// Exports memory that is there already.
    pub(crate) fn export_memory(
        self: &Arc<Self>,
        key: RegionKey,
        rights: Rights,
        memory: SharedBytes,
    ) -> Result<Region, RegionError> {
        let part = |generation| Arc::new(Exported::new((key, generation), rights, memory.clone()));
        let generation = self.plane.lock().control.export(key, part)?;
        // A peer may be waiting for it.
        self.poll_control();
        let guard = Guard { host: Arc::downgrade(self), key, generation };
        Ok(Region::new(key, rights, generation, memory, Arc::new(guard)))
    }

    /// Revokes `key` (only `generation` of it, if given). No operation of a peer touches its memory
    /// once this has returned. False if it was not exported.
    pub(crate) fn revoke(&self, key: RegionKey, generation: Option<u32>) -> bool {
        let revoked = self.plane.lock().control.revoke(Instant::now(), key, generation, None);
        let Some(exported) = revoked else { return false };
        exported.revoke();
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
        if !self.reaches(owner) {
            return Err(RegionError::NoSuchHost(owner));
        }
        if owner == self.local
            && let Some((_, exported)) = self.plane.lock().control.import_own(key)
        {
            return Ok(RemoteRegion::mapping(Arc::new(exported.window(self.id, owner))));
        }
        let lost = || RegionError::lost(owner, self.end_of(owner));
        if self.end_of(owner).is_some() {
            return Err(lost());
        }
        let (sender, receiver) = mpsc::channel();
        let requester = Requester::Import(sender);
        let mut plane = self.plane.lock();
        let import = plane.control.begin_import(Instant::now(), requester, owner, key, timeout);
        drop(plane);
        self.poll_control();
        // The control plane ends it by then, unless the service thread has failed.
        match receiver.recv_timeout(timeout.saturating_add(2 * ANSWER_GRACE)) {
            Ok(result) => result,
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(lost()),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                self.plane.lock().control.cancel_import(import);
                Err(RegionError::Unknown { owner, key })
            }
        }
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
    /// What the control plane wants done next.
    pub(crate) fn next_output(&self, now: Instant) -> Option<Output<TcpMedium>> {
        self.plane.lock().control.poll(now)
    }

    /// The service thread ends: everybody is lost for `reason`, and threads that call the control
    /// plane poll it themselves from now on.
    pub(crate) fn close_control(&self, reason: &LossReason) {
        let mut plane = self.plane.lock();
        plane.control.close(reason);
        plane.has_service_ended = true;
        drop(plane);
        self.poll_without_service();
    }

    /// Does what the control plane wants when there is no connection any more.
    fn poll_without_service(&self) {
        while let Some(output) = self.next_output(Instant::now()) {
            self.act(output);
        }
    }

    /// Does what the control plane wants, but for what concerns connections.
    pub(crate) fn act(&self, output: Output<TcpMedium>) {
        match output {
            Output::PeerGone(event) => self.gone(event),
            Output::Imported { requester, owner, key, region, export, .. } => {
                let region = self.remote_region(owner, key, region, export.as_deref());
                self.answer(requester, Ok(region));
            }
            Output::ImportFailed { requester, owner, key, error } => {
                self.answer(requester, Err(error.for_region(owner, key)));
            }
            // Its windows are dead already.
            Output::Inhibit { epoch, .. } => self.epochs.publish(epoch),
            // With the last window, the memory goes.
            Output::Revoked { .. } => {}
            // The thread that waits sees its channel close.
            Output::Departed { requester } => drop(requester),
            Output::Send { .. } | Output::Close(_) => {}
        }
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

    /// Tells who asked how an import has ended.
    fn answer(&self, requester: Requester, result: Result<RemoteRegion, RegionError>) {
        match requester {
            // The thread may have stopped waiting.
            Requester::Import(sender) => drop(sender.send(result)),
            Requester::Leave(sender) => drop(sender),
        }
    }

    /// Tells the control plane which threads have passed a poll since regions were inhibited; whether
    /// any has not.
    pub(crate) fn note_passed_polls(&self) -> bool {
        let mut plane = self.plane.lock();
        if plane.control.inhibitions().1 {
            for thread in 0..self.threads {
                plane.control.passed(thread, self.epochs.passed(thread));
            }
        }
        plane.control.inhibitions().1
    }
}
