//! [`MemoryDescriptor`]: registered memory of a host, as it describes it to a peer.

use std::fmt;

use transport_api::Rights;

use crate::verbs::Mr;

/// Registered memory as its owner describes it to a peer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryDescriptor {
    /// What the peer may do to it.
    pub(crate) rights: Rights,
    pub(crate) len: u64,
    /// The address of its first byte at the owner.
    pub(crate) address: u64,
    pub(crate) remote_key: u32,
}

impl MemoryDescriptor {
    /// All of `mr`, on which the peer has `rights`.
    pub(crate) fn of(mr: &Mr, rights: Rights) -> Self {
        let (address, remote_key) = (mr.address(), mr.remote_key());
        Self { rights, len: mr.memory().len() as u64, address, remote_key }
    }

    /// Whether its bytes do not wrap around the end of the address space.
    pub(crate) fn is_valid(&self) -> bool {
        self.address.checked_add(self.len).is_some()
    }
}

impl fmt::Debug for MemoryDescriptor {
    /// Without the remote key, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rights, len, address, .. } = self;
        write!(f, "{len} bytes at {address:#x} ({rights:?})")
    }
}
