//! The regions that this host exports, and what an importer holds of one.
//!
//! ```text
//!   | header page: word 0 = live | the region's bytes ...
//! ```
//!
//! `live` is one more than the region's generation while it is exported and zero once it is
//! revoked; every operation of a lane compares it with the generation that was imported.

use crate::mapping;
use parking_lot::{Condvar, Mutex};
use primitive::{SharedBytes, sync::Ordering};
use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    sync::{Arc, Weak},
    time::Instant,
};
use transport_api::{HostId, Region, RegionError, RegionKey, Rights, Window};

/// Bytes before a region's first byte: a page, so that regions are page-aligned.
pub(crate) const REGION_HEADER: usize = 4096;

/// Where `live` is in the header.
const LIVE: usize = 0;

/// A region as its owner tells a peer about it.
pub(crate) struct Told {
    pub(crate) rights: Rights,
    pub(crate) generation: u32,
    pub(crate) len: usize,
    /// The mapped header and bytes.
    pub(crate) whole: SharedBytes,
}

impl Told {
    /// Whether peers map the region writable.
    pub(crate) fn peers_write(rights: Rights) -> bool {
        rights.allow(Rights::WRITE) || rights.allow(Rights::ATOMIC)
    }

    /// What the transport `issuer` makes of it.
    pub(crate) fn window(self, issuer: u64, owner: HostId, key: RegionKey) -> Window {
        let Told { rights, generation, len, whole } = self;
        let (live, memory) = (whole.slice(LIVE, 8), whole.slice(REGION_HEADER, len));
        Window::new((issuer, owner), (key, rights, generation), memory, live)
    }
}

struct Exported {
    rights: Rights,
    generation: u32,
    len: usize,
    whole: SharedBytes,
    file: Option<Arc<OwnedFd>>,
}

#[derive(Default)]
struct Table {
    now: HashMap<RegionKey, Exported>,
    /// How often each key has been exported so far.
    times: HashMap<RegionKey, u32>,
}

/// The regions of this host. Clones are the same table.
#[derive(Clone)]
pub(crate) struct Exports {
    shared: bool,
    table: Arc<(Mutex<Table>, Condvar)>,
}

/// Withdraws a region when its last [`Region`] is dropped.
struct Guard {
    table: Weak<(Mutex<Table>, Condvar)>,
    key: RegionKey,
    generation: u32,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            withdraw(&table, self.key, Some(self.generation));
        }
    }
}

/// Takes `key` out (only `generation` of it, if given) and marks it as revoked.
fn withdraw(table: &(Mutex<Table>, Condvar), key: RegionKey, generation: Option<u32>) -> bool {
    let mut table = table.0.lock();
    let matches = |e: &Exported| generation.is_none_or(|g| g == e.generation);
    if !table.now.get(&key).is_some_and(matches) {
        return false;
    }
    let Some(region) = table.now.remove(&key) else { return false };
    region.whole.store(LIVE, 0, Ordering::SeqCst);
    true
}

impl Exports {
    /// `shared` says whether other processes import from here.
    pub(crate) fn new(shared: bool) -> Self {
        Self { shared, table: Arc::default() }
    }

    pub(crate) fn export(
        &self,
        key: RegionKey,
        len: usize,
        rights: Rights,
    ) -> Result<Region, RegionError> {
        if self.table.0.lock().now.contains_key(&key) {
            return Err(RegionError::KeyTaken(key));
        }
        let (whole, file) =
            self.allocate(len, rights).map_err(|source| RegionError::NoMemory { len, source })?;
        let mut table = self.table.0.lock();
        if table.now.contains_key(&key) {
            return Err(RegionError::KeyTaken(key));
        }
        let times = table.times.entry(key).or_default();
        let generation = *times;
        *times += 1;
        whole.store(LIVE, u64::from(generation) + 1, Ordering::Release);
        let memory = whole.slice(REGION_HEADER, len);
        table.now.insert(key, Exported { rights, generation, len, whole, file });
        drop(table);
        self.table.1.notify_all();
        let guard = Guard { table: Arc::downgrade(&self.table), key, generation };
        Ok(Region::new(key, rights, generation, memory, Arc::new(guard)))
    }

    fn allocate(
        &self,
        len: usize,
        rights: Rights,
    ) -> io::Result<(SharedBytes, Option<Arc<OwnedFd>>)> {
        let total = len.checked_add(REGION_HEADER).filter(|n| *n <= isize::MAX as usize);
        let total = total.ok_or(io::ErrorKind::OutOfMemory)?;
        if !self.shared {
            return Ok((mapping::private(total)?, None));
        }
        let (memory, file) = mapping::shared(total, Told::peers_write(rights))?;
        Ok((memory, Some(Arc::new(file))))
    }

    pub(crate) fn revoke(&self, key: RegionKey, local: HostId) -> Result<(), RegionError> {
        if withdraw(&self.table, key, None) {
            return Ok(());
        }
        Err(RegionError::Unknown { owner: local, key })
    }

    /// What a peer is told about `key`, and the descriptor that it gets, if `key` is exported.
    pub(crate) fn tell(&self, key: RegionKey) -> Option<(Told, Option<Arc<OwnedFd>>)> {
        self.table.0.lock().now.get(&key).map(tell)
    }

    /// Waits until `key` is exported, at most until `deadline`.
    pub(crate) fn wait(&self, key: RegionKey, deadline: Instant) -> Option<Told> {
        let mut table = self.table.0.lock();
        let is_missing = |table: &mut Table| !table.now.contains_key(&key);
        self.table.1.wait_while_until(&mut table, is_missing, deadline);
        table.now.get(&key).map(|region| tell(region).0)
    }
}

fn tell(region: &Exported) -> (Told, Option<Arc<OwnedFd>>) {
    let Exported { rights, generation, len, ref whole, ref file } = *region;
    (Told { rights, generation, len, whole: whole.clone() }, file.clone())
}
