//! [`Exported`]: a region of this host, and how operations that arrive find it.

use primitive::{SharedBytes, sync::Ordering};
use transport_api::{HostId, RegionKey, Rights, Window};
use transport_control::{Description, Export, Opaque};

/// An exported region.
pub(crate) struct Exported {
    pub(crate) key: RegionKey,
    pub(crate) generation: u32,
    pub(crate) rights: Rights,
    pub(crate) memory: SharedBytes,
    /// One more than the generation while it is exported, for lanes of this host to itself.
    live: SharedBytes,
}

impl Exported {
    pub(crate) fn new(name: (RegionKey, u32), rights: Rights, memory: SharedBytes) -> Self {
        let (key, generation) = name;
        let live = SharedBytes::heap(8);
        live.store(0, u64::from(generation) + 1, Ordering::Release);
        Self { key, generation, rights, memory, live }
    }

    /// From now on, lanes of this host to itself refuse it.
    pub(crate) fn revoke(&self) {
        self.live.store(0, 0, Ordering::SeqCst);
    }

    /// What this host holds of its own region.
    pub(crate) fn window(&self, issuer: u64, owner: HostId) -> Window {
        let Exported { key, generation, rights, ref memory, ref live } = *self;
        let (memory, live) = (memory.clone(), live.clone());
        Window::new((issuer, owner), (key, rights, generation), memory, live)
    }
}

impl Export for Exported {
    fn describe(&self, _: HostId) -> Option<Description> {
        let (rights, len) = (self.rights, self.memory.len() as u64);
        Some(Description { rights, len, opaque: Opaque::EMPTY })
    }
}
