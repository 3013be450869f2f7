//! Exported memory: [`Region`] at its owner, [`RemoteRegion`] at a peer.
//!
//! These are the segments of Thekkath, Levy and Lazowska 1994, "Separating Data and Control
//! Transfer in Distributed Operating Systems", section 3: memory that its owner exports, with rights
//! that the owner grants to each importer, and a generation number that makes descriptors of a
//! revoked export useless. Their names come with a later layer.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use primitive::SharedBytes;
#[cfg(not(loom))]
use primitive::sync::{AtomicU64, Ordering};

use crate::{Access, HostId, OpError, RegionKey, Rights, Window};

/// For backends: a number that no other transport of this process has, whatever its kind, and never
/// 0. Regions that it imports carry it ([`RemoteRegion::check_origin`]).
// loom has no static atomics, and no transports.
#[cfg(not(loom))]
pub fn next_issuer() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Memory that this host exports. Clones are the same region; dropping the last one revokes it.
#[derive(Clone)]
pub struct Region {
    key: RegionKey,
    access: Access,
    generation: u32,
    memory: SharedBytes,
    keep: Arc<dyn Any + Send + Sync>,
}

impl Region {
    /// For backends: a region of `memory`; `keep` is dropped with the last clone and revokes it.
    pub fn new(
        key: RegionKey,
        access: Access,
        generation: u32,
        memory: SharedBytes,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { key, access, generation, memory, keep }
    }

    /// The key it is exported under.
    pub fn key(&self) -> RegionKey {
        self.key
    }

    /// What each host may do to it.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// How often this key had been exported before.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The memory itself, which peers write without asking.
    pub fn memory(&self) -> &SharedBytes {
        &self.memory
    }

    /// For backends: the `keep` given to [`new`](Self::new), if it is a `K`.
    pub fn keep<K: 'static>(&self) -> Option<&K> {
        let keep: &(dyn Any + Send + Sync) = &*self.keep;
        keep.downcast_ref()
    }
}

/// How the lanes of a backend find a region again.
#[derive(Clone)]
enum Found {
    Window(Arc<Window>),
    Handle(Arc<dyn Any + Send + Sync>),
}

/// What a host holds of a region after importing it. Only the lanes of the transport that made it
/// can use it.
#[derive(Clone)]
pub struct RemoteRegion {
    issuer: u64,
    owner: HostId,
    key: RegionKey,
    rights: Rights,
    generation: u32,
    len: usize,
    found: Found,
}

impl RemoteRegion {
    /// For backends: a region that this process cannot map, which `owner` exports with these rights
    /// and generation under the key. `issuer` tells the transport that imported it from every other
    /// of this process; `handle` is what the lanes of that transport need to find the region again.
    pub fn remote(
        (issuer, owner): (u64, HostId),
        (key, rights, generation): (RegionKey, Rights, u32),
        len: usize,
        handle: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { issuer, owner, key, rights, generation, len, found: Found::Handle(handle) }
    }

    /// For backends: a region that is mapped into this process.
    pub fn mapping(window: Arc<Window>) -> Self {
        let (issuer, owner, len) = (window.issuer(), window.owner(), window.len());
        let (key, rights, generation) = window.name();
        Self { issuer, owner, key, rights, generation, len, found: Found::Window(window) }
    }

    /// The host that exports it.
    pub fn owner(&self) -> HostId {
        self.owner
    }

    /// The key it is exported under.
    pub fn key(&self) -> RegionKey {
        self.key
    }

    /// What its owner allows this host.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// The generation that was imported.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Bytes of the region.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// For lanes: whether the transport `issuer` imported the region from `owner`.
    ///
    /// # Errors
    /// [`OpError::Foreign`].
    #[inline]
    pub fn check_origin(&self, issuer: u64, owner: HostId) -> Result<(), OpError> {
        let is_ours = self.issuer == issuer && self.owner == owner;
        if is_ours { Ok(()) } else { Err(OpError::Foreign(self.key)) }
    }

    /// Whether `count` bytes at `at` are inside the region and its owner, as far as is known here,
    /// allows this host what `needs` says.
    ///
    /// # Errors
    /// [`OpError::Rights`], [`OpError::OutOfBounds`].
    pub fn check(&self, at: usize, count: usize, needs: Rights) -> Result<(), OpError> {
        OpError::check(self.key, (self.rights, self.len), (at, count, needs))
    }

    /// As [`check`](Self::check), for a word.
    ///
    /// # Errors
    /// As [`check`](Self::check), and [`OpError::Misaligned`].
    pub fn check_word(&self, at: usize, needs: Rights) -> Result<(), OpError> {
        self.check(at, 8, needs)?;
        if at.is_multiple_of(8) { Ok(()) } else { Err(OpError::Misaligned(at)) }
    }

    /// The owner's memory itself, on transports that map it into this process (shared memory):
    /// writing there is writing to the owner. `None` on the others, and for regions that do not
    /// allow both [`Rights::READ`] and [`Rights::WRITE`]: bare memory cannot tell one from the
    /// other.
    pub fn mapped(&self) -> Option<&SharedBytes> {
        self.window().and_then(Window::bare)
    }

    /// For backends: the window given to [`mapping`](Self::mapping).
    #[inline(always)]
    pub fn window(&self) -> Option<&Window> {
        match &self.found {
            Found::Window(window) => Some(window),
            Found::Handle(_) => None,
        }
    }

    /// For backends: the handle given to [`remote`](Self::remote), if it is an `H`.
    pub fn handle<H: 'static>(&self) -> Option<&H> {
        match &self.found {
            Found::Window(_) => None,
            Found::Handle(handle) => handle.downcast_ref(),
        }
    }
}

impl fmt::Debug for RemoteRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, key, rights, generation, len, .. } = self;
        write!(f, "region {key:?} of {owner} ({rights:?}, {len} bytes, generation {generation})")
    }
}
