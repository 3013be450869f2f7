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

/// A region that this host exports, or has revoked and may export again.
pub(crate) struct Exported {
    access: Access,
    /// The header and the bytes, which all exports of the memory share.
    whole: SharedBytes,
    /// `None` in a rack of one host.
    files: Option<Files>,
}

/// What importers get: those that may write, and those that may not.
struct Files {
    writable: Arc<OwnedFd>,
    readable: Arc<OwnedFd>,
}

impl Files {
    /// Those of a new file, for hosts that `access` names.
    fn new(file: OwnedFd, access: &Access) -> io::Result<Self> {
        let writable = Arc::new(file);
        Self { readable: writable.clone(), writable }.with_access(access)
    }

    /// The same with other access. Hosts that may not write get a descriptor of their own, unless no
    /// host can write the file, which is sealed then.
    fn with_access(&self, access: &Access) -> io::Result<Self> {
        let Self { writable, readable } = self;
        let is_one = Arc::ptr_eq(writable, readable);
        let all_write = access.classes().iter().all(|class| is_writable(*class));
        let readable = match is_one && !all_write && !mapping::is_sealed(writable)? {
            true => Arc::new(mapping::read_only(writable)?),
            false => readable.clone(),
        };
        Ok(Self { writable: writable.clone(), readable })
    }
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
        let any_writes = access.classes().iter().any(|class| is_writable(*class));
        let (whole, file) = mapping::shared(total, any_writes)?;
        let files = Some(Files::new(file, &access)?);
        Ok(Self { access, whole, files })
    }

    /// The same memory for hosts that `access` names, each of which has no more rights than in the
    /// first export. Not yet [published](Self::publish).
    pub(crate) fn with_access(&self, access: Access) -> io::Result<Self> {
        let files = self.files.as_ref().map(|files| files.with_access(&access)).transpose()?;
        Ok(Self { access, whole: self.whole.clone(), files })
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

    #[test]
    fn exported_again_its_descriptors_are_those_of_the_new_rights() {
        let can_write = |exported: &Exported, host| {
            let file = exported.file_for(HostId(host)).expect("a descriptor");
            mapping::of_peer(file, REGION_HEADER + 8, true).is_ok()
        };
        let all = Exported::allocate(8, Access::all(Rights::ALL), true).expect("memory");
        assert!(can_write(&all, 0) && can_write(&all, 1));
        let one = all.with_access(Access::all(Rights::READ).with(HostId(1), Rights::ALL));
        let one = one.expect("another descriptor");
        assert_eq!((can_write(&one, 0), can_write(&one, 1)), (false, true));
        let none = one.with_access(Access::all(Rights::READ)).expect("the same");
        assert_eq!((can_write(&none, 0), can_write(&none, 1)), (false, false));
        let again = none.with_access(Access::all(Rights::ALL)).expect("the first");
        assert!(can_write(&again, 0) && can_write(&again, 1));
        let sealed = Exported::allocate(8, Access::all(Rights::READ), true).expect("memory");
        let sealed = sealed.with_access(Access::none()).expect("the same");
        assert!(!can_write(&sealed, 0));
    }

    #[test]
    fn what_is_published_again_has_the_bytes_and_the_new_generation() {
        let first = Exported::allocate(8, Access::all(Rights::ALL), true).expect("memory");
        first.publish(0);
        first.memory().store(0, 77, Ordering::Relaxed);
        let import = |generation| {
            let region =
                Descriptor { generation, rights: Rights::ALL, len: 8, opaque: Opaque::EMPTY };
            window(1, (HostId(0), RegionKey(1)), &region, first.whole())
        };
        let stale = import(0);
        assert!(stale.is_live());
        first.revoke();
        let second = first.with_access(Access::all(Rights::READ)).expect("descriptors");
        assert!(!stale.is_live() && !import(1).is_live(), "not published yet");
        second.publish(1);
        assert!(!stale.is_live() && import(1).is_live());
        assert_eq!(second.memory().load(0, Ordering::Relaxed), 77);
    }
}
