//! [`RegionDescriptor`]: memory of a host, as it describes it to others.

use crate::verbs::Mr;
use transport_api::Rights;

/// Memory as its owner describes it to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionDescriptor {
    pub(crate) rights: Rights,
    pub(crate) generation: u32,
    pub(crate) len: u64,
    /// The address of its first byte at the owner.
    pub(crate) address: u64,
    pub(crate) remote_key: u32,
}

impl RegionDescriptor {
    /// All of `mr`, on which the peer has `rights` until the host ends.
    pub(crate) fn of(mr: &Mr, rights: Rights) -> Self {
        let (address, remote_key) = (mr.address(), mr.remote_key());
        RegionDescriptor {
            rights,
            generation: 0,
            len: mr.memory().len() as u64,
            address,
            remote_key,
        }
    }

    pub(crate) fn put_any(region: Option<&RegionDescriptor>, put: &mut impl FnMut(&[u8])) {
        put(&[region.is_some().into()]);
        if let Some(region) = region {
            region.put(put);
        }
    }

    pub(crate) fn put(&self, put: &mut impl FnMut(&[u8])) {
        put(&[self.rights.bits()]);
        put(&self.generation.to_le_bytes());
        put(&self.len.to_le_bytes());
        put(&self.address.to_le_bytes());
        put(&self.remote_key.to_le_bytes());
    }
}
