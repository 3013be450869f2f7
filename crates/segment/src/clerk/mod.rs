//! [`Clerk`]: the names that this process publishes, and what it knows of those of others (section 4
//! of the paper). There is one in each process and no central server.
//!
//! ```text
//!   add, remove --> table in the registry region <--- READ by other hosts, one entry at a time
//!                             ^
//!   find (this host)  --------+-- answers to requests (requests.rs), for lookups that do not probe
//!   cache: entries of other hosts, until they are found stale
//! ```

pub(crate) mod requests;

use std::hash::Hash;

use foldhash::HashMap;
use parking_lot::Mutex;
use primitive::sync::{Ordering, fence};
use transport_api::{HostId, Namespace, Region, RegionKey, RemoteRegion, Rights, Transport};

use crate::error::{Label, SegmentError};
use crate::name::Name;
use crate::table::{
    ENTRY_BYTES, ENTRY_WORDS, Entry, Published, REGISTRY_BYTES, SLOTS, Table, TableError,
    home_slot, is_intact,
};

/// The key of every host's registry.
pub(crate) const REGISTRY: RegionKey = RegionKey::new(Namespace::SEGMENTS, 0);

/// The most names in each map of the cache: as many as four hosts can publish at once. A name that its host
/// has withdrawn is dropped when it is looked up again, which may never happen.
const CACHED: usize = 4 * SLOTS;

/// The names that this process publishes.
struct Registry {
    table: Table,
    _region: Region,
}

/// Results of lookups. To look up a name that was dropped costs one more READ.
#[derive(Default)]
struct Cache {
    /// Entries of other hosts.
    entries: HashMap<(HostId, Name), Known>,
    /// The host that alone published a name when all were asked. An entry of a lookup at one host
    /// says nothing about the others.
    only: HashMap<Name, HostId>,
    /// By host: its registry, if it was imported.
    registries: Vec<Option<RemoteRegion>>,
}

impl Cache {
    /// The registry of a host.
    #[inline]
    fn registry(&self, host: HostId) -> Option<&RemoteRegion> {
        self.registries.get(host.0 as usize)?.as_ref()
    }

    /// Whether this object is known, with this generation.
    #[inline]
    fn knows(&self, host: HostId, name: &Name, (generation, what): (u32, Published)) -> bool {
        let known = self.entries.get(&(host, *name));
        known
            .is_some_and(|Known { entry, .. }| entry.generation == generation && entry.what == what)
    }
}

/// Inserts what was learnt. A map that is full is emptied: that is rare, and needs no order of use.
fn insert<K: Hash + Eq, V>(map: &mut HashMap<K, V>, key: K, value: V) {
    if map.len() >= CACHED && !map.contains_key(&key) {
        map.clear();
    }
    map.insert(key, value);
}

/// A cached name of another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) entry: Entry,
    /// The generation of the region that an open of this very entry has found, if it was opened.
    pub(crate) region: Option<u32>,
}

/// The names that this process publishes, and what it knows of those of others.
#[derive(Default)]
pub(crate) struct Clerk {
    /// `None` until the first name is published.
    registry: Mutex<Option<Registry>>,
    cache: Mutex<Cache>,
}

/// ADDNAME, DELETENAME, and LOOKUPNAME of this host's own names.
impl Clerk {
    /// Publishes a name.
    ///
    /// # Errors
    /// [`SegmentError::NameTaken`], [`SegmentError::NamesFull`]; [`SegmentError::Region`], if the
    /// registry cannot be exported.
    pub(crate) fn add(&self, transport: &dyn Transport, entry: Entry) -> Result<(), SegmentError> {
        let mut registry = self.registry.lock();
        if registry.is_none() {
            let label = Label { name: entry.name, host: transport.local() };
            let region = transport
                .export(REGISTRY, REGISTRY_BYTES, Rights::READ.into())
                .map_err(|error| SegmentError::region(label, error))?;
            let table = Table::new(region.memory().clone());
            *registry = Some(Registry { table, _region: region });
        }
        let Some(Registry { table, .. }) = &mut *registry else { return Ok(()) };
        table.insert(entry).map_err(|error| match error {
            TableError::Full { slots, .. } => SegmentError::NamesFull(slots),
            _ => SegmentError::NameTaken(entry.name),
        })
    }

    /// Whether a name may be published.
    ///
    /// # Errors
    /// [`SegmentError::NameTaken`].
    pub(crate) fn check_free(&self, name: &Name) -> Result<(), SegmentError> {
        match self.find(name) {
            None => Ok(()),
            Some(_) => Err(SegmentError::NameTaken(*name)),
        }
    }

    /// Withdraws a name, if it still belongs to this export.
    pub(crate) fn remove(&self, name: &Name, generation: u32) {
        if let Some(Registry { table, .. }) = &mut *self.registry.lock()
            && table.find(name).is_some_and(|entry| entry.generation == generation)
        {
            table.remove(name);
        }
    }

    /// What this host publishes under a name.
    pub(crate) fn find(&self, name: &Name) -> Option<Entry> {
        self.registry.lock().as_ref()?.table.find(name).copied()
    }
}

/// What is known of other hosts.
impl Clerk {
    pub(crate) fn cached(&self, host: HostId, name: &Name) -> Option<Known> {
        self.cache.lock().entries.get(&(host, *name)).copied()
    }

    /// The host that alone published a name when all were last asked.
    pub(crate) fn only_host(&self, name: &Name) -> Option<HostId> {
        self.cache.lock().only.get(name).copied()
    }

    /// All hosts were asked for a name: `only` is the one that publishes it, if one alone does.
    pub(crate) fn learn_only(&self, name: &Name, only: Option<HostId>) {
        let only_hosts = &mut self.cache.lock().only;
        match only {
            Some(host) => insert(only_hosts, *name, host),
            None => _ = only_hosts.remove(name),
        }
    }

    /// Every host whose entry of a name is known.
    pub(crate) fn all_cached(&self) -> Vec<(HostId, Entry)> {
        let cache = self.cache.lock();
        cache.entries.iter().map(|((host, _), known)| (*host, known.entry)).collect()
    }

    /// `host` publishes `entry` now.
    #[cold]
    #[inline(never)]
    pub(crate) fn learn(&self, host: HostId, entry: Entry) {
        let mut cache = self.cache.lock();
        if !cache.knows(host, &entry.name, (entry.generation, entry.what)) {
            insert(&mut cache.entries, (host, entry.name), Known { entry, region: None });
        }
    }

    /// Looks a name up in the registry of another host, if that is mapped, by one READ of the first
    /// slot. Returns the generation and object, and caches them unless `is_lost`. `None` says nothing
    /// about the name: it may be in another slot, or the slot may be torn.
    #[inline]
    pub(crate) fn read_first(
        &self,
        host: HostId,
        name: &Name,
        is_lost: impl FnOnce() -> bool,
    ) -> Option<(u32, Published)> {
        let at = home_slot(name, SLOTS) * ENTRY_BYTES;
        let mut words = [0; ENTRY_WORDS];
        let cache = self.cache.lock();
        let window = cache.registry(host)?.window()?;
        window.load_words(at, ENTRY_WORDS, |index, word| words[index] = word).ok()?;
        // As in `Probe::take`.
        fence(Ordering::Acquire);
        let found = Entry::decode_of(name, &words)?;
        let is_known = cache.knows(host, name, found);
        // The checksum takes longer than the rest, so the processor computes it while it goes on.
        drop(cache);
        if !is_intact(&words) || is_lost() {
            return None;
        }
        if !is_known {
            self.learn(host, Entry { name: *name, generation: found.0, what: found.1 });
        }
        Some(found)
    }

    /// The region of `entry` was imported with this generation, and the entry was the same after it.
    pub(crate) fn learn_region(&self, host: HostId, entry: &Entry, generation: u32) {
        let mut cache = self.cache.lock();
        if let Some(known) = cache.entries.get_mut(&(host, entry.name))
            && known.entry == *entry
        {
            known.region = Some(generation);
        }
    }

    pub(crate) fn forget(&self, host: HostId, name: &Name) {
        self.cache.lock().entries.remove(&(host, *name));
    }

    /// `host` is gone, with its names.
    pub(crate) fn forget_host(&self, host: HostId) {
        let mut cache = self.cache.lock();
        cache.entries.retain(|(of, _), _| *of != host);
        cache.only.retain(|_, of| *of != host);
        let registry = cache.registries.get_mut(host.0 as usize).and_then(Option::take);
        drop(cache);
        // Unmapped without the lock.
        drop(registry);
    }

    pub(crate) fn registry_of(&self, host: HostId) -> Option<RemoteRegion> {
        self.cache.lock().registry(host).cloned()
    }

    pub(crate) fn learn_registry(&self, host: HostId, region: RemoteRegion) {
        let (registries, at) = (&mut self.cache.lock().registries, host.0 as usize);
        if registries.len() <= at {
            registries.resize_with(at + 1, || None);
        }
        registries[at] = Some(region);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// An entry of the name with this number.
    fn entry(number: usize) -> Entry {
        let name = Name::new(&format!("name/{number}")).expect("a name");
        Entry { name, generation: 0, what: Published::Trust { thread: 0, id: 0 } }
    }

    #[test]
    fn names_that_come_and_go_fill_a_bounded_cache() {
        let (clerk, host) = (Clerk::default(), HostId(1));
        for number in 0..=2 * CACHED {
            let entry = entry(number);
            clerk.learn(host, entry);
            clerk.learn_only(&entry.name, Some(host));
            assert_eq!(clerk.cached(host, &entry.name).map(|known| known.entry), Some(entry));
            assert_eq!(clerk.only_host(&entry.name), Some(host));
        }
        let cache = clerk.cache.lock();
        assert!(cache.entries.len() <= CACHED, "{} entries", cache.entries.len());
        assert!(cache.only.len() <= CACHED, "{} names", cache.only.len());
    }
}
