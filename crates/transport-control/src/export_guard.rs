//! [`ExportGuard`]: what a [`Region`] keeps of the transport that exported it: it revokes the region
//! when the last clone is dropped, and has what exporting the same memory again needs.

use std::sync::{Arc, Weak};

use transport_api::{Access, Region, RegionError, RegionKey};

/// A host of a transport, as the guards of its regions use it.
pub trait Revoker: Send + Sync + 'static {
    /// Hosts of the rack.
    fn hosts(&self) -> u32;

    /// Revokes `generation` of the region under `key`, if this host still exports it. Does not wait
    /// for peers.
    fn revoke_generation(self: &Arc<Self>, key: RegionKey, generation: u32);
}

/// The first export of a region's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstExport {
    /// Its generation.
    pub generation: u32,
    /// What it allowed.
    pub access: Access,
}

/// Revokes a region of `host` when its last [`Region`] is dropped. `memory` is the transport's own
/// part of the memory, which lives as long, revoked or not.
pub struct ExportGuard<H: Revoker, M> {
    host: Weak<H>,
    key: RegionKey,
    generation: u32,
    first: FirstExport,
    memory: M,
}

impl<H: Revoker, M: Send + Sync + 'static> ExportGuard<H, M> {
    /// For a region that `host` exports under this key and generation, whose memory it exported
    /// first as `first`.
    pub fn new(host: &Arc<H>, name: (RegionKey, u32), first: FirstExport, memory: M) -> Self {
        let (key, generation) = name;
        Self { host: Arc::downgrade(host), key, generation, first, memory }
    }

    /// The guard of `region`, whose memory `host` may export again with `access`.
    ///
    /// # Errors
    /// [`RegionError::Foreign`] if `host` has not exported it; [`RegionError::Broader`].
    pub fn check_reexport<'a>(
        host: &Arc<H>,
        region: &'a Region,
        access: &Access,
    ) -> Result<&'a Self, RegionError> {
        let key = region.key();
        let guard = region.keep::<Self>().filter(|guard| guard.host.as_ptr() == Arc::as_ptr(host));
        let guard = guard.ok_or(RegionError::Foreign(key))?;
        RegionError::check_reexport(key, (&guard.first.access, access), host.hosts())?;
        Ok(guard)
    }

    /// The first export of the memory.
    pub fn first(&self) -> &FirstExport {
        &self.first
    }

    /// The transport's part of the memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }
}

impl<H: Revoker, M> Drop for ExportGuard<H, M> {
    fn drop(&mut self) {
        if let Some(host) = self.host.upgrade() {
            host.revoke_generation(self.key, self.generation);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use primitive::SharedBytes;
    use transport_api::{HostId, Rights};

    use super::*;

    #[derive(Default)]
    struct Host(Mutex<Vec<(RegionKey, u32)>>);

    impl Revoker for Host {
        fn hosts(&self) -> u32 {
            2
        }
        fn revoke_generation(self: &Arc<Self>, key: RegionKey, generation: u32) {
            self.0.lock().expect("a list").push((key, generation));
        }
    }

    #[test]
    fn a_region_is_revoked_by_the_last_clone_and_exported_again_by_its_host_only() {
        let (host, other) = (Arc::new(Host::default()), Arc::new(Host::default()));
        let (key, access) = (RegionKey(3), Access::all(Rights::READ));
        let first = FirstExport { generation: 5, access: access.clone() };
        let guard = ExportGuard::new(&host, (key, 7), first.clone(), "memory");
        let region = Region::new(key, access, 7, SharedBytes::heap(8), Arc::new(guard));
        type Guard = ExportGuard<Host, &'static str>;
        let check = |host, access: &Access| Guard::check_reexport(host, &region, access);
        let guard = check(&host, &Access::none()).expect("less than before");
        assert_eq!((guard.memory(), guard.first()), (&"memory", &first));
        let broader = Access::all(Rights::READ).with(HostId(1), Rights::ATOMIC);
        let refused = check(&host, &broader).map(drop);
        assert!(matches!(refused, Err(RegionError::Broader { host: HostId(1), .. })));
        let refused = check(&other, &Access::none()).map(drop);
        assert!(matches!(refused, Err(RegionError::Foreign(RegionKey(3)))));
        let clone = region.clone();
        drop(region);
        assert!(host.0.lock().expect("a list").is_empty());
        drop(clone);
        assert_eq!(*host.0.lock().expect("a list"), [(key, 7)]);
    }
}
