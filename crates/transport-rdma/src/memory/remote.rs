//! [`RemoteMemory`]: memory of another host, as work requests name it.

use primitive::sync::{AtomicBool, Ordering};
use transport_api::{OpError, RegionKey};

/// A region of another host, or memory that it offers for good: address and remote key.
#[derive(Debug)]
pub(crate) struct RemoteMemory {
    pub(crate) region: RegionKey,
    /// Its generation.
    pub(crate) generation: u32,
    /// The address of its first byte at its owner.
    pub(crate) address: u64,
    /// The remote key.
    pub(crate) key: u32,
    live: AtomicBool,
}

impl RemoteMemory {
    pub(crate) fn new((region, generation): (RegionKey, u32), address: u64, key: u32) -> Self {
        Self { region, generation, address, key, live: AtomicBool::new(true) }
    }

    /// Memory that is not an exported region, and is never revoked.
    pub(crate) fn permanent(address: u64, key: u32) -> Self {
        Self::new((RegionKey(u64::MAX), 0), address, key)
    }

    /// Why operations on it are refused once it is revoked.
    pub(crate) fn refusal(&self) -> OpError {
        OpError::Revoked { key: self.region, generation: self.generation }
    }

    /// Whether its owner has not revoked it. Check it with the thread's connections locked: after a
    /// revocation the service thread locks them once, so no operation starts behind that.
    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    /// From now on no operation may start on it.
    pub(crate) fn revoke(&self) {
        self.live.store(false, Ordering::Release);
    }
}
