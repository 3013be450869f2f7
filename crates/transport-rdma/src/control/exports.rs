//! [`Exported`]: a region of this host, registered with its device.
//!
//! The carrier exports the memory as well: this host's threads access it there. What is added here is
//! one registration for each class of rights: a host knows the remote key of its class only, so the
//! device refuses it everything else.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use primitive::SharedBytes;
use transport_api::{Access, Event, HostId, OpError, Region, RegionError, RegionKey, Rights};
use transport_control::{Description, Export, Opaque};

use crate::error::advice;
use crate::verbs::{Mr, Pd};

/// Memory that is registered, and not exported yet.
pub(crate) struct Registered {
    registrations: Vec<(Rights, Mr)>,
}

impl Registered {
    /// `memory`, registered for each class of rights in `access`.
    ///
    /// # Errors
    /// [`RegionError::NoMemory`].
    pub(crate) fn new(
        pd: &Arc<Pd>,
        memory: &SharedBytes,
        access: &Access,
    ) -> Result<Self, RegionError> {
        let len = memory.len();
        let mut registrations = Vec::new();
        for rights in access.classes() {
            if len == 0 || rights == Rights::NONE {
                continue;
            }
            let mr = Mr::new(pd, memory, rights).map_err(|error| {
                let text = format!("the RDMA device refused it: {error}{}", advice(&error));
                RegionError::NoMemory { len, source: io::Error::new(error.kind(), text) }
            })?;
            registrations.push((rights, mr));
        }
        Ok(Self { registrations })
    }

    /// Exported by the carrier as `region`.
    pub(crate) fn exported(self, region: Region) -> Exported {
        let registrations = Mutex::new(self.registrations);
        Exported(Arc::new(Inner { region, registrations }))
    }
}

/// A region that this host exports. Clones are the same region.
#[derive(Clone)]
pub(crate) struct Exported(Arc<Inner>);

struct Inner {
    /// As the carrier exports it.
    region: Region,
    /// By class of rights; none if the region has no bytes, or was closed.
    registrations: Mutex<Vec<(Rights, Mr)>>,
}

impl Exported {
    /// The generation at the carrier.
    pub(crate) fn carrier_generation(&self) -> u32 {
        self.0.region.generation()
    }

    /// The memory.
    pub(crate) fn memory(&self) -> &SharedBytes {
        self.0.region.memory()
    }

    /// Address and remote key for hosts with `rights`; both are zero if the region has no bytes.
    pub(crate) fn remote(&self, rights: Rights) -> Option<(u64, u32)> {
        if self.memory().is_empty() {
            return Some((0, 0));
        }
        let all = self.0.registrations.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, mr) = all.iter().find(|(class, _)| *class == rights)?;
        Some((mr.address(), mr.remote_key()))
    }

    /// Whether `peer` may have written what `event`, a notification, claims. The device has checked
    /// the write in front of it, but not what it says of that.
    ///
    /// # Errors
    /// As a write.
    pub(crate) fn check_notification(&self, peer: HostId, event: &Event) -> Result<(), OpError> {
        let Event::Notified { key, at, len, .. } = *event else { return Ok(()) };
        let (rights, bytes) = (self.0.region.access().of(peer), self.memory().len());
        check_notification(key, (rights, bytes), (at, len))
    }

    /// Deregisters the memory: from now on the device refuses every access with its keys.
    pub(crate) fn close(&self) {
        self.0.registrations.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Export for Exported {
    fn describe(&self, importer: HostId) -> Option<Description> {
        let rights = self.0.region.access().of(importer);
        if rights == Rights::NONE {
            return None;
        }
        let remote = self.remote(rights)?;
        Some(Description { rights, len: self.memory().len() as u64, opaque: opaque(remote) })
    }
}

fn check_notification(
    key: RegionKey,
    (rights, bytes): (Rights, usize),
    (at, len): (u64, u64),
) -> Result<(), OpError> {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let count = usize::try_from(len).unwrap_or(usize::MAX);
    OpError::check(key, (rights, bytes), (at, count, Rights::WRITE))
}

/// Address and remote key in the descriptor of a region.
fn opaque((address, remote_key): (u64, u32)) -> Opaque {
    let bytes = [&address.to_le_bytes()[..], &remote_key.to_le_bytes()].concat();
    Opaque::new(&bytes).expect("12 bytes fit")
}

/// Address and remote key of a region of `len` bytes, if its descriptor has valid ones.
pub(crate) fn from_opaque(opaque: &Opaque, len: u64) -> Option<(u64, u32)> {
    let (address, rest) = opaque.bytes().split_first_chunk()?;
    let remote_key = rest.try_into().ok().map(u32::from_le_bytes)?;
    let address = u64::from_le_bytes(*address);
    // Memory cannot wrap around.
    address.checked_add(len).map(|_| (address, remote_key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_claims_what_its_sender_may_write() {
        let check = |rights, at, len| check_notification(RegionKey(1), (rights, 64), (at, len));
        assert_eq!(check(Rights::WRITE, 0, 64), Ok(()));
        assert_eq!(check(Rights::WRITE, 64, 0), Ok(()));
        assert!(check(Rights::READ | Rights::ATOMIC, 0, 8).is_err());
        for (at, len) in [(0, 65), (64, 1), (u64::MAX, 2), (1, u64::MAX)] {
            assert!(check(Rights::ALL, at, len).is_err(), "{len} bytes at {at}");
        }
    }

    #[test]
    fn address_and_key_are_decoded_as_encoded_and_do_not_wrap_around() {
        let region = (u64::MAX - 8, 0x1234_5678);
        assert_eq!(from_opaque(&opaque(region), 8), Some(region));
        assert_eq!(from_opaque(&opaque(region), 9), None);
        assert_eq!(from_opaque(&opaque((1, 1)), u64::MAX), None);
        for len in [0, 8, 11, 13] {
            let odd = Opaque::new(&[0; 16][..len]).expect("few bytes");
            assert_eq!(from_opaque(&odd, 8), None, "{len} bytes");
        }
    }
}
