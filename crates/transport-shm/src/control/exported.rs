//! The regions that this host exports, and what an importer holds of one.
//!
//! ```text
//!   | header page: word 0 = live | the region's bytes ...
//! ```
//!
//! `live` is one more than the region's generation while it is exported and zero once it is
//! revoked; every operation of a lane compares it with the generation that was imported. When those
//! that were under way have ended, `quiet.rs` knows.
//!
//! Who may write gets a descriptor that can be mapped writable, others get one that cannot, so that
//! an access that is not allowed faults at the hardware whatever the importer's lanes check. Where
//! some hosts may write and others may only read, the descriptor of the latter is opened for
//! reading; that holds back errors, and other users, but not a malicious process of the same user,
//! which could open it anew.

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
use transport_api::{Access, HostId, Region, RegionError, RegionKey, Rights, Window};

/// Bytes before a region's first byte: a page, so that regions are page-aligned.
pub(crate) const REGION_HEADER: usize = 4096;

/// Where `live` is in the header.
const LIVE: usize = 0;

/// A region as its owner describes it to an importer.
pub(crate) struct Described {
    pub(crate) rights: Rights,
    pub(crate) generation: u32,
    pub(crate) len: usize,
    /// The mapped header and bytes.
    pub(crate) whole: SharedBytes,
}

impl Described {
    /// Whether a host with these rights maps the region writable.
    pub(crate) fn is_writable(rights: Rights) -> bool {
        rights.allow(Rights::WRITE) || rights.allow(Rights::ATOMIC)
    }

    /// What the transport `issuer` makes of it.
    pub(crate) fn window(self, issuer: u64, owner: HostId, key: RegionKey) -> Window {
        let Described { rights, generation, len, whole } = self;
        let (live, memory) = (whole.slice(LIVE, 8), whole.slice(REGION_HEADER, len));
        Window::new((issuer, owner), (key, rights, generation), memory, live)
    }
}

struct Exported {
    access: Access,
    generation: u32,
    len: usize,
    whole: SharedBytes,
    files: Option<Files>,
}

/// What importers get: those that may write, and those that may not.
struct Files {
    writable: Arc<OwnedFd>,
    readable: Arc<OwnedFd>,
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
    local: HostId,
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
    /// Those of `local`; `shared` says whether other processes import from here.
    pub(crate) fn new(local: HostId, shared: bool) -> Self {
        Self { local, shared, table: Arc::default() }
    }

    pub(crate) fn export(
        &self,
        key: RegionKey,
        len: usize,
        access: Access,
    ) -> Result<Region, RegionError> {
        if self.table.0.lock().now.contains_key(&key) {
            return Err(RegionError::KeyTaken(key));
        }
        let (whole, files) =
            self.allocate(len, &access).map_err(|source| RegionError::NoMemory { len, source })?;
        let mut table = self.table.0.lock();
        if table.now.contains_key(&key) {
            return Err(RegionError::KeyTaken(key));
        }
        let times = table.times.entry(key).or_default();
        let generation = *times;
        *times += 1;
        whole.store(LIVE, u64::from(generation) + 1, Ordering::Release);
        let memory = whole.slice(REGION_HEADER, len);
        let exported = Exported { access: access.clone(), generation, len, whole, files };
        table.now.insert(key, exported);
        drop(table);
        self.table.1.notify_all();
        let guard = Guard { table: Arc::downgrade(&self.table), key, generation };
        Ok(Region::new(key, access, generation, memory, Arc::new(guard)))
    }

    fn allocate(&self, len: usize, access: &Access) -> io::Result<(SharedBytes, Option<Files>)> {
        let total = len.checked_add(REGION_HEADER).filter(|n| *n <= isize::MAX as usize);
        let total = total.ok_or(io::ErrorKind::OutOfMemory)?;
        if !self.shared {
            return Ok((mapping::private(total)?, None));
        }
        let classes = access.classes();
        let any_writes = classes.iter().any(|class| Described::is_writable(*class));
        let all_write = classes.iter().all(|class| Described::is_writable(*class));
        let (memory, file) = mapping::shared(total, any_writes)?;
        let writable = Arc::new(file);
        let readable = match any_writes && !all_write {
            true => Arc::new(mapping::read_only(&writable)?),
            false => writable.clone(),
        };
        Ok((memory, Some(Files { writable, readable })))
    }

    pub(crate) fn revoke(&self, key: RegionKey) -> Result<(), RegionError> {
        if withdraw(&self.table, key, None) {
            return Ok(());
        }
        Err(RegionError::Unknown { owner: self.local, key })
    }

    /// What `host` is told about `key`, if it is exported, and the descriptor that it gets if it
    /// has any right there.
    pub(crate) fn describe(
        &self,
        key: RegionKey,
        host: HostId,
    ) -> Option<(Described, Option<Arc<OwnedFd>>)> {
        self.table.0.lock().now.get(&key).map(|region| region.describe(host))
    }

    /// Waits until `key` is exported, at most until `deadline`; what this host is told.
    pub(crate) fn wait(&self, key: RegionKey, deadline: Instant) -> Option<Described> {
        let mut table = self.table.0.lock();
        let is_missing = |table: &mut Table| !table.now.contains_key(&key);
        self.table.1.wait_while_until(&mut table, is_missing, deadline);
        table.now.get(&key).map(|region| region.describe(self.local).0)
    }
}

impl Exported {
    fn describe(&self, host: HostId) -> (Described, Option<Arc<OwnedFd>>) {
        let Exported { ref access, generation, len, ref whole, ref files } = *self;
        let rights = access.of(host);
        let file = files.as_ref().filter(|_| rights != Rights::NONE);
        let file = file.map(|files| match Described::is_writable(rights) {
            true => files.writable.clone(),
            false => files.readable.clone(),
        });
        (Described { rights, generation, len, whole: whole.clone() }, file)
    }
}
