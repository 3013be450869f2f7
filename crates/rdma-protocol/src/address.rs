//! [`Endpoint`] and [`MemoryDescriptor`]: the addresses that a host gives a peer.

use std::fmt;

use transport_api::Rights;

/// The address of one end of a connection, a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The global identifier of the device's port.
    pub gid: [u8; 16],
    /// The local identifier of the port, 0 over Ethernet.
    pub lid: u16,
    /// The code of the verbs for the bytes of a packet, 1 (256) to 5 (4,096).
    pub mtu: u8,
    /// The number of the queue pair, of 24 bits.
    pub qp: u32,
    /// The number of its first packet, of 24 bits.
    pub first: u32,
}

/// Registered memory as its owner describes it to a peer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MemoryDescriptor {
    /// What the peer may do to it.
    pub rights: Rights,
    /// Its length in bytes.
    pub len: u64,
    /// The address of its first byte at the owner.
    pub address: u64,
    /// What the peer's device has to show to access it, a secret.
    pub remote_key: u32,
}

impl MemoryDescriptor {
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
