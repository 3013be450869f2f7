//! [`Imports`]: the regions of other hosts that this host has imported, so that they can be revoked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use transport_api::{HostId, RegionKey};

use crate::memory::remote::RemoteMemory;

type Name = (HostId, RegionKey, u32);

/// The imported regions of other hosts, by owner, key and generation.
#[derive(Default)]
pub(crate) struct Imports(Mutex<HashMap<Name, Vec<Weak<RemoteMemory>>>>);

impl Imports {
    /// Adds `remote`, a region of `owner` of this generation.
    pub(crate) fn add(&self, owner: HostId, generation: u32, remote: &Arc<RemoteMemory>) {
        // Consistent even if a thread has panicked.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = all.entry((owner, remote.region, generation)).or_default();
        same.retain(|other| other.strong_count() > 0);
        same.push(Arc::downgrade(remote));
    }

    /// From now on no operation may start on that generation of `owner`'s region.
    pub(crate) fn revoke(&self, owner: HostId, key: RegionKey, generation: u32) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for remote in all.remove(&(owner, key, generation)).unwrap_or_default() {
            if let Some(remote) = remote.upgrade() {
                remote.revoke();
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
    fn an_owner_revokes_its_own_regions_of_one_generation_and_no_others() {
        let imports = Imports::default();
        let remote = || Arc::new(RemoteMemory::new((KEY, 0), 4096, 9));
        let (old, new, others) = (remote(), remote(), remote());
        imports.add(OWNER, 0, &old);
        imports.add(OWNER, 1, &new);
        imports.add(HostId(2), 0, &others);
        // Regions that are not imported can be revoked, too.
        imports.revoke(OWNER, RegionKey(6), 0);
        imports.revoke(HostId(3), KEY, 0);
        assert!(old.is_live());
        imports.revoke(OWNER, KEY, 0);
        assert!(!old.is_live() && new.is_live() && others.is_live());
    }
}
