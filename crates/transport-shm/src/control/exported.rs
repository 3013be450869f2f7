//! [`Exported`]: a region of this host, and what an importer gets of it.
//!
//! ```text
//!   | header page: word 0 = live | the region's bytes ...
//! ```
//!
//! `live` is one more than the region's generation while it is exported and zero once it is
//! revoked; every operation of a lane compares it with the generation that was imported. When the
//! operations that were under way have ended, the control plane reports it.
//!
//! A host that may write gets a descriptor that can be mapped writable, others get one that cannot,
//! so that an access that is not allowed faults at the hardware whatever the importer's lanes check.
//! Where some hosts may write and others may only read, the descriptor of the latter is opened for
//! reading; that holds back errors, and other users, but not a malicious process of the same user,
//! which could open it anew.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use primitive::SharedBytes;
use primitive::sync::Ordering;
use transport_api::{Access, HostId, RegionKey, Rights, Window};
use transport_control::{Description, Descriptor, Export, Opaque};

use crate::memory::mapping;

/// Bytes before a region's first byte: a page, so that regions are page-aligned.
pub(crate) const REGION_HEADER: usize = 4096;

/// Where `live` is in the header.
const LIVE: usize = 0;

/// Whether a host with these rights maps the region writable.
pub(crate) fn is_writable(rights: Rights) -> bool {
    rights.allow(Rights::WRITE) || rights.allow(Rights::ATOMIC)
}

/// What the transport `issuer` has of the region that `owner` exports under `key`, whose header and
/// bytes are mapped as `whole`.
pub(crate) fn window(
    issuer: u64,
    (owner, key): (HostId, RegionKey),
    region: &Descriptor,
    whole: &SharedBytes,
) -> Window {
    let len = whole.len() - REGION_HEADER;
    let (live, memory) = (whole.slice(LIVE, 8), whole.slice(REGION_HEADER, len));
    Window::new((issuer, owner), (key, region.rights, region.generation), memory, live)
}

/// A region that this host exports.
pub(crate) struct Exported {
    access: Access,
    /// The header and the bytes.
    whole: SharedBytes,
    /// `None` in a rack of one host.
    files: Option<Files>,
}

/// What importers get: those that may write, and those that may not.
struct Files {
    writable: Arc<OwnedFd>,
    readable: Arc<OwnedFd>,
}

impl Exported {
    /// A region of `len` zeroed bytes, not yet [published](Self::publish). `is_shared` says whether
    /// other processes import it.
    pub(crate) fn allocate(len: usize, access: Access, is_shared: bool) -> io::Result<Self> {
        let total = len.checked_add(REGION_HEADER).filter(|n| *n <= isize::MAX as usize);
        let total = total.ok_or(io::ErrorKind::OutOfMemory)?;
        if !is_shared {
            return Ok(Self { access, whole: mapping::private(total)?, files: None });
        }
        let classes = access.classes();
        let any_writes = classes.iter().any(|class| is_writable(*class));
        let all_write = classes.iter().all(|class| is_writable(*class));
        let (whole, file) = mapping::shared(total, any_writes)?;
        let writable = Arc::new(file);
        let readable = match any_writes && !all_write {
            true => Arc::new(mapping::read_only(&writable)?),
            false => writable.clone(),
        };
        Ok(Self { access, whole, files: Some(Files { writable, readable }) })
    }

    /// Operations of importers of `generation` succeed from now on.
    pub(crate) fn publish(&self, generation: u32) {
        self.whole.store(LIVE, u64::from(generation) + 1, Ordering::Release);
    }

    /// Operations that importers start from now on fail.
    pub(crate) fn revoke(&self) {
        self.whole.store(LIVE, 0, Ordering::SeqCst);
    }

    /// The header and the bytes.
    pub(crate) fn whole(&self) -> &SharedBytes {
        &self.whole
    }

    /// The bytes.
    pub(crate) fn memory(&self) -> SharedBytes {
        self.whole.slice(REGION_HEADER, self.whole.len() - REGION_HEADER)
    }

    /// The descriptor that `importer` gets.
    pub(crate) fn file_for(&self, importer: HostId) -> Option<&OwnedFd> {
        let files = self.files.as_ref()?;
        Some(match is_writable(self.access.of(importer)) {
            true => &files.writable,
            false => &files.readable,
        })
    }
}

impl Export for Exported {
    fn describe(&self, importer: HostId) -> Option<Description> {
        let rights = self.access.of(importer);
        let len = (self.whole.len() - REGION_HEADER) as u64;
        let is_allowed = rights != Rights::NONE;
        is_allowed.then_some(Description { rights, len, opaque: Opaque::EMPTY })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_importer_gets_the_descriptor_of_its_rights() {
        let access = Access::all(Rights::READ).with(HostId(1), Rights::ALL);
        let access = access.with(HostId(2), Rights::NONE);
        let exported = Exported::allocate(8, access, true).expect("memory");
        assert_eq!(exported.describe(HostId(2)), None);
        let rights = |host| exported.describe(HostId(host)).map(|region| region.rights);
        assert_eq!((rights(0), rights(1)), (Some(Rights::READ), Some(Rights::ALL)));
        let map = |host| {
            let file = exported.file_for(HostId(host)).expect("a descriptor");
            mapping::of_peer(file, REGION_HEADER + 8, true)
        };
        assert!(map(1).is_ok() && map(0).is_err());
    }
}
