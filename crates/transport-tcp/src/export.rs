//! The regions of this host, and how operations that arrive find them.

use primitive::{SharedBytes, sync::Ordering};
use std::{
    collections::HashMap,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    time::Instant,
};
use transport_api::{Access, HostId, Region, RegionError, RegionKey, Window};

/// An exported region.
pub(crate) struct Exported {
    pub(crate) key: RegionKey,
    pub(crate) generation: u32,
    pub(crate) access: Access,
    pub(crate) memory: SharedBytes,
    /// One more than the generation while it is exported, for lanes of this host to itself.
    live: SharedBytes,
}

impl Exported {
    pub(crate) fn new(name: (RegionKey, u32), access: Access, memory: SharedBytes) -> Self {
        let (key, generation) = name;
        let live = SharedBytes::heap(8);
        live.store(0, u64::from(generation) + 1, Ordering::Release);
        Self { key, generation, access, memory, live }
    }

    /// What this host holds of its own region.
    pub(crate) fn window(&self, issuer: u64, owner: HostId) -> Window {
        let Exported { key, generation, ref access, ref memory, ref live } = *self;
        let rights = access.of(owner);
        let (memory, live) = (memory.clone(), live.clone());
        Window::new((issuer, owner), (key, rights, generation), memory, live)
    }
}

#[derive(Default)]
struct Table {
    now: HashMap<RegionKey, Arc<Exported>>,
    /// How often each key has been exported so far.
    times: HashMap<RegionKey, u32>,
}

/// What is told of a region when it is withdrawn, so that nobody keeps it.
type Forget = Box<dyn Fn(RegionKey) + Send + Sync>;

/// The regions of this host.
pub(crate) struct Exports {
    table: Mutex<Table>,
    changed: Condvar,
    forget: Forget,
}

/// Withdraws a region when its last [`Region`] is dropped.
struct Guard {
    exports: Weak<Exports>,
    key: RegionKey,
    generation: u32,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(exports) = self.exports.upgrade() {
            exports.withdraw(self.key, Some(self.generation));
        }
    }
}

impl Exports {
    /// `forget` is called with the key of every region that is withdrawn.
    pub(crate) fn new(forget: impl Fn(RegionKey) + Send + Sync + 'static) -> Arc<Self> {
        let (table, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Self { table, changed, forget: Box::new(forget) })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change of the table is one insertion or removal: it is whole whoever panicked.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn export(
        self: &Arc<Self>,
        key: RegionKey,
        len: usize,
        access: Access,
    ) -> Result<Region, RegionError> {
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
        let mut table = self.table();
        if table.now.contains_key(&key) {
            return Err(RegionError::KeyTaken(key));
        }
        let times = table.times.entry(key).or_default();
        let generation = *times;
        *times += 1;
        let exported = Exported::new((key, generation), access.clone(), memory.clone());
        table.now.insert(key, Arc::new(exported));
        drop(table);
        self.changed.notify_all();
        let guard = Guard { exports: Arc::downgrade(self), key, generation };
        Ok(Region::new(key, access, generation, memory, Arc::new(guard)))
    }

    /// Takes `key` out (only `generation` of it, if given). No operation of a peer touches its
    /// memory once this has returned. False if it was not there.
    pub(crate) fn withdraw(&self, key: RegionKey, generation: Option<u32>) -> bool {
        let mut table = self.table();
        let matches = |e: &Arc<Exported>| generation.is_none_or(|g| g == e.generation);
        if !table.now.get(&key).is_some_and(matches) {
            return false;
        }
        let Some(region) = table.now.remove(&key) else { return false };
        region.live.store(0, 0, Ordering::SeqCst);
        drop(table);
        (self.forget)(key);
        true
    }

    /// The region that is exported under `key`, if there is one.
    pub(crate) fn get(&self, key: RegionKey) -> Option<Arc<Exported>> {
        self.table().now.get(&key).cloned()
    }

    /// Waits until `key` is exported, at most until `deadline`.
    pub(crate) fn wait(&self, key: RegionKey, deadline: Instant) -> Option<Arc<Exported>> {
        let mut table = self.table();
        loop {
            if let Some(region) = table.now.get(&key) {
                return Some(region.clone());
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let waited = self.changed.wait_timeout(table, left);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
