//! Regions: how threads of the program export, revoke and import them.
//!
//! The control plane knows what peers use; this host's own threads use the carrier's export. A
//! revocation is quiet when both are.

use std::sync::{Arc, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use primitive::SharedBytes;
use transport_api::{Access, Event, HostId, Region, RegionError, RegionKey};
use transport_control::{ExportGuard, FirstExport, Importer, Revoker};

use crate::control::exports::{Exported, Registered};
use crate::control::host::Host;
use crate::control::medium::Requester;
use crate::control::revocations::{Revocations, Waiting};

impl Host {
    /// Exports `len` bytes, at the carrier and to peers.
    ///
    /// # Errors
    /// [`RegionError::KeyTaken`], [`RegionError::NoMemory`].
    pub(crate) fn export(
        self: &Arc<Self>,
        key: RegionKey,
        len: usize,
        access: Access,
    ) -> Result<Region, RegionError> {
        if self.control(|control| control.is_exported(key, None)) {
            return Err(RegionError::KeyTaken(key));
        }
        let no_memory = |source| RegionError::NoMemory { len, source };
        let memory = self.memory.take(len).map_err(no_memory)?;
        self.export_within((key, memory), None, access)
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
        let key = region.key();
        if self.control(|control| control.is_exported(key, None)) {
            return Err(RegionError::KeyTaken(key));
        }
        self.export_within((key, region.memory().clone()), Some(guard.first().clone()), access)
    }

    /// Exports memory with `access`, at the carrier and to peers; `first` is its first export, unless
    /// that is this one.
    fn export_within(
        self: &Arc<Self>,
        (key, memory): (RegionKey, SharedBytes),
        first: Option<FirstExport>,
        access: Access,
    ) -> Result<Region, RegionError> {
        let registered = Registered::new(&self.pd, &memory, &access)?;
        // Under one lock, so that the key is taken or free at both.
        let (generation, exported) = self.control(|control| {
            if control.is_exported(key, None) {
                return Err(RegionError::KeyTaken(key));
            }
            let region = self.carrier.export_memory(key, memory.clone(), access.clone())?;
            let exported = registered.exported(region);
            let part = |_| exported.clone();
            let generation = match &first {
                None => control.export(key, part)?,
                Some(first) => control.reexport(key, first.generation, part)?,
            };
            Ok((generation, exported))
        })?;
        // A peer may be waiting for it.
        self.unpark_service();
        let first = first.unwrap_or_else(|| FirstExport { generation, access: access.clone() });
        let guard = Guard::new(self, (key, generation), first, exported);
        Ok(Region::new(key, access, generation, memory, Arc::new(guard)))
    }

    /// The region that this host exports under `key`.
    pub(crate) fn exported(&self, key: RegionKey) -> Option<Exported> {
        self.control(|control| control.exported(key).map(|(exported, _)| exported.clone()))
    }

    /// Revokes `key` (only `generation` of it, if given): the key is free. Returns a channel that is
    /// closed once no peer can access the region.
    ///
    /// # Errors
    /// [`RegionError::Unknown`].
    pub(crate) fn revoke(
        &self,
        key: RegionKey,
        generation: Option<u32>,
    ) -> Result<mpsc::Receiver<()>, RegionError> {
        let (done, ended) = mpsc::channel();
        self.start_revocation(
            key,
            generation,
            Requester::Blocked { _done: done },
            Revocations::UNAWAITED,
        )?;
        Ok(ended)
    }

    /// Revokes `key`, and reports `token` on the lane of `thread` to this host once the region is
    /// quiet.
    ///
    /// # Errors
    /// [`RegionError::Unknown`].
    pub(crate) fn begin_revoke(
        &self,
        thread: u32,
        key: RegionKey,
        token: u64,
    ) -> Result<(), RegionError> {
        let number = self.revocations().begin(thread, token, key);
        let begun = self.start_revocation(key, None, Requester::Revocation(number), number);
        if begun.is_err() {
            self.revocations().cancel(number);
        } else if self.plane().is_closed() {
            // Had it been closed later, the service thread would have found the revocation.
            self.fail_revocation(number);
        }
        begun
    }

    fn start_revocation(
        &self,
        key: RegionKey,
        generation: Option<u32>,
        requester: Requester,
        token: u64,
    ) -> Result<(), RegionError> {
        let unknown = RegionError::Unknown { owner: self.local, key };
        self.control(|control| {
            control.revoke(Instant::now(), key, generation, Some(requester)).ok_or(unknown)?;
            // The service thread's lane to this host reports when this host's threads are quiet.
            self.carrier.begin_revoke(self.threads, key, token)
        })?;
        self.unpark_service();
        Ok(())
    }

    fn revocations(&self) -> MutexGuard<'_, Revocations> {
        // Consistent even if a thread has panicked.
        self.revocations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A part of revocation `number` has ended. Numbers that no lane waits for are ignored.
    pub(crate) fn revocation_part_ended(&self, number: u64) {
        let ended = self.revocations().part_ended(number);
        let Some((thread, token)) = ended else { return };
        self.deliver(thread, self.local, Event::Completed { token, value: 0 });
    }

    /// It cannot be known whether threads of this host still use the region of revocation `number`.
    pub(crate) fn fail_revocation(&self, number: u64) {
        let failed = self.revocations().cancel(number);
        if let Some(Waiting { thread, token, key, .. }) = failed {
            self.deliver(thread, self.local, Event::revoked(token, key, vec![self.local]));
        }
    }

    /// As [`fail_revocation`](Self::fail_revocation), of all that have not ended.
    pub(crate) fn fail_revocations(&self) {
        let all = self.revocations().numbers();
        all.into_iter().for_each(|number| self.fail_revocation(number));
    }

    /// Gives `importer` the region that `owner`, another host, exports under `key`, or will within
    /// `timeout`.
    ///
    /// # Errors
    /// [`RegionError::PeerLost`].
    pub(crate) fn begin_import(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        importer: Importer,
    ) -> Result<(), RegionError> {
        if let Some(end) = self.end_of(owner) {
            return Err(RegionError::lost(owner, Some(end)));
        }
        let requester = Requester::Import(importer);
        self.control(|control| {
            control.begin_import(Instant::now(), requester, owner, key, timeout);
        });
        self.unpark_service();
        Ok(())
    }
}

/// What a region keeps, so that the carrier exports it as long.
type Guard = ExportGuard<Host, Exported>;

impl Revoker for Host {
    fn hosts(&self) -> u32 {
        self.event_queues.hosts()
    }

    fn revoke_generation(self: &Arc<Self>, key: RegionKey, generation: u32) {
        // It may have been revoked already. Does not wait for peers.
        let _ = self.revoke(key, Some(generation));
    }
}
