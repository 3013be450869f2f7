//! What this host holds of the regions of others.

use primitive::sync::{AtomicBool, Ordering};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};
use transport_api::{HostId, RegionKey};

/// A region of another host: where it is and what opens it.
#[derive(Debug)]
pub(crate) struct Remote {
    /// The transport that imported it.
    pub(crate) issuer: u64,
    pub(crate) region: RegionKey,
    /// Its first byte, as its owner's device knows it.
    pub(crate) address: u64,
    /// What its owner's device asks for.
    pub(crate) key: u32,
    live: AtomicBool,
}

impl Remote {
    pub(crate) fn new(issuer: u64, region: RegionKey, address: u64, key: u32) -> Self {
        Self { issuer, region, address, key, live: AtomicBool::new(true) }
    }

    /// Memory that is no exported region, and is not among the imports: it is never withdrawn.
    pub(crate) fn for_good(issuer: u64, address: u64, key: u32) -> Self {
        Self::new(issuer, RegionKey(u64::MAX), address, key)
    }

    /// Whether its owner has not withdrawn it. While the lock of the lane's desk is held, it is not
    /// withdrawn: see `service`.
    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    /// Nobody is to start anything on it any more.
    pub(crate) fn withdraw(&self) {
        self.live.store(false, Ordering::Release);
    }
}

type Name = (HostId, RegionKey, u32);

/// All regions of others that this process has imported, so that they can be withdrawn from it.
#[derive(Default)]
pub(crate) struct Imports(Mutex<HashMap<Name, Vec<Weak<Remote>>>>);

impl Imports {
    /// Remembers `remote`, a region of `owner` of this generation.
    pub(crate) fn add(&self, owner: HostId, generation: u32, remote: &Arc<Remote>) {
        // Changed in steps that leave it whole.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = all.entry((owner, remote.region, generation)).or_default();
        same.retain(|other| other.strong_count() > 0);
        same.push(Arc::downgrade(remote));
    }

    /// Nobody is to use that generation of `owner`'s region any more.
    pub(crate) fn withdraw(&self, owner: HostId, key: RegionKey, generation: u32) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for remote in all.remove(&(owner, key, generation)).unwrap_or_default() {
            if let Some(remote) = remote.upgrade() {
                remote.withdraw();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: HostId = HostId(1);
    const KEY: RegionKey = RegionKey(5);

    #[test]
    fn an_owner_withdraws_its_own_regions_of_one_generation_and_nothing_else() {
        let imports = Imports::default();
        let remote = || Arc::new(Remote::new(0, KEY, 4096, 9));
        let (old, new, others) = (remote(), remote(), remote());
        imports.add(OWNER, 0, &old);
        imports.add(OWNER, 1, &new);
        imports.add(HostId(2), 0, &others);
        // What nobody has imported can be withdrawn, too.
        imports.withdraw(OWNER, RegionKey(6), 0);
        imports.withdraw(HostId(3), KEY, 0);
        assert!(old.is_live());
        imports.withdraw(OWNER, KEY, 0);
        assert!(!old.is_live() && new.is_live() && others.is_live());
    }
}
