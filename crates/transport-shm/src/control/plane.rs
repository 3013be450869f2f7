//! Imports of this host: who waits for one, and what an owner's answer becomes.

use crate::{
    export::{Described, REGION_HEADER},
    host::Host,
    mapping,
    message::RegionInfo,
    service::Order,
};
use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};
use transport_api::{
    HostId, Importer, LossReason, RegionError, RegionKey, RemoteRegion, Rights, Window, deadline,
};

impl Host {
    /// Gives `importer` the region that `owner` exports under `key`, or will within `timeout`.
    ///
    /// # Errors
    /// [`RegionError::NoSuchHost`], [`RegionError::PeerLost`].
    pub(crate) fn begin_import(
        self: &Arc<Self>,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        importer: Importer,
    ) -> Result<(), RegionError> {
        if !self.reaches(owner) {
            return Err(RegionError::NoSuchHost(owner));
        }
        if owner == self.local {
            self.import_own(key, timeout, importer);
            return Ok(());
        }
        if let Some(end) = self.end_of(owner) {
            return Err(RegionError::lost(owner, Some(end)));
        }
        // What one thread has mapped serves all: one mapping, one set of page tables.
        let known = self.imports.lock().get(&(owner, key)).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.is_live()) {
            self.answer(owner, importer, Ok(RemoteRegion::mapping(known)));
            return Ok(());
        }
        match &self.desk {
            Some(desk) => desk.leave(Order::Import { owner, key, timeout, importer }),
            None => self.answer(owner, importer, Err(RegionError::Unknown { owner, key })),
        }
        Ok(())
    }

    /// A region of this host, which may not be exported yet.
    fn import_own(self: &Arc<Self>, key: RegionKey, timeout: Duration, importer: Importer) {
        let host = self.clone();
        let wait = move |until| {
            let found = host.exports.wait(key, until);
            let result = found
                .ok_or(RegionError::Unknown { owner: host.local, key })
                .and_then(|described| host.window(host.local, key, described))
                .map(|window| RemoteRegion::mapping(Arc::new(window)));
            host.answer(host.local, importer, result);
        };
        let now = Instant::now();
        let is_there = self.exports.describe(key, self.local).is_some();
        if is_there || timeout.is_zero() {
            return wait(now);
        }
        // Not on the caller's thread, which must not block; a rack of one host has no other.
        thread::spawn(move || wait(deadline(now, timeout)));
    }

    /// `owner` has answered an import.
    pub(crate) fn imported(
        &self,
        owner: HostId,
        key: RegionKey,
        region: Option<RegionInfo>,
        file: Option<OwnedFd>,
        importer: Importer,
    ) {
        let result = match region {
            None => Err(RegionError::Unknown { owner, key }),
            Some(RegionInfo { rights: Rights::NONE, .. }) => {
                Err(RegionError::Denied { owner, key })
            }
            Some(region) => self.map(owner, key, region, file),
        };
        self.answer(owner, importer, result);
    }

    fn map(
        &self,
        owner: HostId,
        key: RegionKey,
        region: RegionInfo,
        file: Option<OwnedFd>,
    ) -> Result<RemoteRegion, RegionError> {
        let RegionInfo { rights, generation, len } = region;
        let broken = |what: String| RegionError::PeerLost(owner, LossReason::Protocol(what));
        let senseless = || broken(format!("{region:?}"));
        let file = file.ok_or_else(senseless)?;
        let len = usize::try_from(len).map_err(|_| senseless())?;
        let total = len.checked_add(REGION_HEADER).ok_or_else(senseless)?;
        let whole = mapping::of_peer(&file, total, Described::is_writable(rights));
        let whole = whole.map_err(|source| match source.kind() {
            io::ErrorKind::InvalidData => broken(source.to_string()),
            _ => RegionError::NoMemory { len, source },
        })?;
        let window = self.window(owner, key, Described { rights, generation, len, whole })?;
        let window = Arc::new(window);
        self.imports.lock().insert((owner, key), Arc::downgrade(&window));
        Ok(RemoteRegion::mapping(window))
    }

    fn window(
        &self,
        owner: HostId,
        key: RegionKey,
        described: Described,
    ) -> Result<Window, RegionError> {
        match described.rights {
            Rights::NONE => Err(RegionError::Denied { owner, key }),
            _ => Ok(described.window(self.id, owner, key)),
        }
    }

    fn answer(&self, owner: HostId, importer: Importer, result: Result<RemoteRegion, RegionError>) {
        importer.answer(result, |thread, event| self.deliver(thread, owner, event));
    }
}
