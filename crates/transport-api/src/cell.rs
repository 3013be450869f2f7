//! [`Cell`]: memory that two threads hand back and forth, made from one or two regions.
//!
//! Delegation replies in place: a trustee writes its replies over the requests. Where memory is
//! shared there is one copy, and handing it over is one signal. Elsewhere each side has a copy of
//! its own, and handing over is writing what changed into the other's copy, then the signal:
//!
//! ```text
//!   mapped:     client ----------> [ trustee's region ] <---------- trustee
//!   otherwise:  client [ client's region ] <--- write, signal ---> [ trustee's region ] trustee
//! ```
//!
//! Both cases are the same calls: a `write` from the memory that it is to reach does nothing.

use std::time::Duration;

use primitive::SharedBytes;

use crate::{HostId, Region, RegionError, RegionKey, RemoteRegion, Rights, Transport};

/// One side's view of memory that two hosts hand back and forth.
pub struct Cell {
    local: SharedBytes,
    remote: RemoteRegion,
    _export: Option<Region>,
}

impl Cell {
    /// The owner's side: exports `len` bytes under `key`. Call [`Offer::accept`] once the peer has
    /// had its chance to [`join`](Cell::join).
    ///
    /// # Errors
    /// As [`Transport::export`].
    pub fn offer(
        transport: &dyn Transport,
        key: RegionKey,
        len: usize,
    ) -> Result<Offer, RegionError> {
        let rights = Rights::READ | Rights::WRITE;
        Ok(Offer { region: transport.export(key, len, rights.into())? })
    }

    /// The other side: imports what `owner` offers under `key`, and on transports that do not map
    /// it exports a copy of its own under `mirror`.
    ///
    /// # Errors
    /// As [`Transport::import`] and [`Transport::export`].
    pub fn join(
        transport: &dyn Transport,
        owner: HostId,
        key: RegionKey,
        mirror: RegionKey,
        timeout: Duration,
    ) -> Result<Cell, RegionError> {
        let remote = transport.import(owner, key, timeout)?;
        if let Some(mapped) = remote.mapped() {
            return Ok(Cell { local: mapped.clone(), remote, _export: None });
        }
        let export =
            transport.export(mirror, remote.len(), (Rights::READ | Rights::WRITE).into())?;
        Ok(Cell { local: export.memory().clone(), remote, _export: Some(export) })
    }

    /// The memory this side reads and composes in.
    pub fn local(&self) -> &SharedBytes {
        &self.local
    }

    /// Where this side writes what it composed, and the signal, so that the other side has them.
    pub fn remote(&self) -> &RemoteRegion {
        &self.remote
    }
}

/// A cell that its owner has exported and the peer has not joined yet.
pub struct Offer {
    region: Region,
}

impl Offer {
    /// The memory that requests will arrive in.
    pub fn memory(&self) -> &SharedBytes {
        self.region.memory()
    }

    /// Completes the owner's side towards `peer`, which joined with the key `mirror`.
    ///
    /// # Errors
    /// As [`Transport::import`].
    pub fn accept(
        &self,
        transport: &dyn Transport,
        peer: HostId,
        mirror: RegionKey,
        timeout: Duration,
    ) -> Result<Cell, RegionError> {
        let own = transport.import(transport.local(), self.region.key(), timeout)?;
        let peer_maps = transport.maps(peer);
        let remote = if peer_maps { own } else { transport.import(peer, mirror, timeout)? };
        Ok(Cell { local: self.region.memory().clone(), remote, _export: Some(self.region.clone()) })
    }
}
