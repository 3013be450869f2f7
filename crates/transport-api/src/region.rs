//! Exported memory: [`Region`] at its owner, [`RemoteRegion`] at a peer (the named segments of
//! Thekkath, Levy and Lazowska 1994, section 3, without the names: those come with a later layer).

use crate::{HostId, OpError, Window};
use primitive::SharedBytes;
use std::{any::Any, fmt, ops::BitOr, sync::Arc};

/// What peers may do to a region.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// Peers may read.
    pub const READ: Rights = Rights(1);
    /// Peers may write and signal.
    pub const WRITE: Rights = Rights(2);
    /// Peers may compare-and-swap and fetch-and-add.
    pub const ATOMIC: Rights = Rights(4);
    /// Everything.
    pub const ALL: Rights = Rights(7);

    /// Whether all of `needed` is allowed.
    #[inline]
    pub fn allow(self, needed: Rights) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// The rights as bits, for messages between processes.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Rights from bits, `None` if there are bits that mean nothing.
    pub fn from_bits(bits: u8) -> Option<Rights> {
        (bits <= Rights::ALL.0).then_some(Rights(bits))
    }
}

impl BitOr for Rights {
    type Output = Rights;
    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [(Rights::READ, "READ"), (Rights::WRITE, "WRITE"), (Rights::ATOMIC, "ATOMIC")];
        let names: Vec<_> = named.iter().filter(|(r, _)| self.allow(*r)).map(|(_, n)| *n).collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(" | "))
    }
}

/// The number under which a host exports a region. Exporter and importer agree on it beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionKey(pub u64);

/// Memory that this host exports. Clones are the same region; dropping the last one revokes it.
#[derive(Clone)]
pub struct Region {
    key: RegionKey,
    rights: Rights,
    generation: u32,
    memory: SharedBytes,
    _keep: Arc<dyn Any + Send + Sync>,
}

impl Region {
    /// For backends: a region of `memory`; `keep` is dropped with the last clone and revokes it.
    pub fn new(
        key: RegionKey,
        rights: Rights,
        generation: u32,
        memory: SharedBytes,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { key, rights, generation, memory, _keep: keep }
    }

    /// The number it is exported under.
    pub fn key(&self) -> RegionKey {
        self.key
    }

    /// What peers may do to it.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// How often this key had been exported before.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The memory itself, which peers write without asking.
    pub fn memory(&self) -> &SharedBytes {
        &self.memory
    }
}

/// How the lanes of a backend find a region again.
#[derive(Clone)]
enum Access {
    Window(Arc<Window>),
    Handle(Arc<dyn Any + Send + Sync>),
}

/// What a host holds of a region after importing it. Only the lanes of the transport that made it
/// can use it.
#[derive(Clone)]
pub struct RemoteRegion {
    owner: HostId,
    key: RegionKey,
    rights: Rights,
    generation: u32,
    len: usize,
    access: Access,
}

impl RemoteRegion {
    /// For backends: a region that this process cannot map. `handle` is what the backend's lanes
    /// need to find it again.
    pub fn remote(
        owner: HostId,
        region: (RegionKey, Rights, u32),
        len: usize,
        handle: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let (key, rights, generation) = region;
        Self { owner, key, rights, generation, len, access: Access::Handle(handle) }
    }

    /// For backends: a region that is mapped into this process.
    pub fn mapping(window: Arc<Window>) -> Self {
        let (owner, len) = (window.owner(), window.len());
        let (key, rights, generation) = window.name();
        Self { owner, key, rights, generation, len, access: Access::Window(window) }
    }

    /// The host that exports it.
    pub fn owner(&self) -> HostId {
        self.owner
    }

    /// The number it is exported under.
    pub fn key(&self) -> RegionKey {
        self.key
    }

    /// What its owner allows.
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

    /// Whether its owner, as far as is known here, will do to `count` bytes at `at` what needs
    /// `needs`.
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
        match &self.access {
            Access::Window(window) => Some(window),
            Access::Handle(_) => None,
        }
    }

    /// For backends: the handle given to [`remote`](Self::remote), if it is an `H`.
    pub fn handle<H: 'static>(&self) -> Option<&H> {
        match &self.access {
            Access::Window(_) => None,
            Access::Handle(handle) => handle.downcast_ref(),
        }
    }
}
