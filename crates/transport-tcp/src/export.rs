//! [`Exported`]: a region of this host, and how operations that arrive find it.

use primitive::SharedBytes;
use primitive::sync::Ordering;
use transport_api::{Access, HostId, RegionKey, Rights, Window};
use transport_control::{Description, Export, Opaque};

/// An exported region.
pub(crate) struct Exported {
    pub(crate) key: RegionKey,
    pub(crate) generation: u32,
    pub(crate) access: Access,
    pub(crate) memory: SharedBytes,
    /// One more than the generation while it is exported.
    live: SharedBytes,
}

impl Exported {
    pub(crate) fn new(name: (RegionKey, u32), access: Access, memory: SharedBytes) -> Self {
        let (key, generation) = name;
        let live = SharedBytes::heap(8);
        live.store(0, u64::from(generation) + 1, Ordering::Release);
        Self { key, generation, access, memory, live }
    }

    /// From now on, connections and lanes of this host to itself refuse it.
    pub(crate) fn revoke(&self) {
        self.live.store(0, 0, Ordering::SeqCst);
    }

    /// Whether it is exported.
    pub(crate) fn is_live(&self) -> bool {
        self.live.load(0, Ordering::Acquire) != 0
    }

    /// What this host holds of its own region.
    pub(crate) fn window(&self, issuer: u64, owner: HostId) -> Window {
        let Exported { key, generation, ref access, ref memory, ref live } = *self;
        let rights = access.of(owner);
        let (memory, live) = (memory.clone(), live.clone());
        Window::new((issuer, owner), (key, rights, generation), memory, live)
    }
}

impl Export for Exported {
    fn describe(&self, importer: HostId) -> Option<Description> {
        let (rights, len) = (self.access.of(importer), self.memory.len() as u64);
        (rights != Rights::NONE).then_some(Description { rights, len, opaque: Opaque::EMPTY })
    }
}
