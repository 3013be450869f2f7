//! Where the memory comes from: anonymous memory, sealed memfds, and the memfds of peers.
//!
//! This is the crate's only file with `unsafe`. What it must uphold: a mapping lives as long as the
//! [`SharedBytes`] that show it, and cannot be cut short underneath them. The second is what the
//! seals are for: touching a mapped page beyond the end of a file that shrank ends the process with
//! SIGBUS, so a peer's file is mapped only if it can never shrink again. So does touching a huge
//! page when the pool of them is empty, so it is mapped only if it is of ordinary pages.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use primitive::SharedBytes;
use rustix::fs::{
    FsWord, MemfdFlags, Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, fcntl_get_seals, fstat,
    fstatfs, ftruncate, memfd_create, open,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Seals without which a peer's file is not mapped: its size is final, and so are the seals.
const FIXED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The kind of file system that files in memory are on, unless they are made of huge pages
/// (`TMPFS_MAGIC` in statfs(2)).
const ORDINARY_PAGES: FsWord = 0x0102_1994;

/// A mapping that is unmapped when dropped.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the whole process; this struct offers no access to it by itself.
unsafe impl Send for Mapping {}
// SAFETY: the struct has no method that touches the memory, so sharing it shares nothing.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `adopt`'s callers with this very length, and unmapped only here, after
        // the last `SharedBytes` that shows it is gone. Failure would mean a wrong length.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// # Safety
/// `base..base + len` is a fresh mapping, readable, that nothing else unmaps or refers to; if it is
/// not writable, no caller writes through the result.
unsafe fn adopt(base: *mut core::ffi::c_void, len: usize) -> io::Result<SharedBytes> {
    let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
    let mapping = Arc::new(Mapping { base, len });
    // SAFETY: page-aligned; alive as long as `mapping`; the caller vouches for the rest.
    Ok(unsafe { SharedBytes::from_raw(base, len, mapping) })
}

/// Zeroed memory of this process alone. Untouched pages cost address space only.
pub(crate) fn private(len: usize) -> io::Result<SharedBytes> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing of ours.
    unsafe { adopt(mmap_anonymous(null_mut(), len, access, flags)?, len) }
}

/// Zeroed memory that can be handed to other processes by its descriptor: an unnamed file in
/// memory, which is gone when its last user is. With `peers_write` false, no process that gets
/// the descriptor can ever map it writable or write to it. Untouched pages cost nothing.
pub(crate) fn shared(len: usize, peers_write: bool) -> io::Result<(SharedBytes, OwnedFd)> {
    let file = memfd_create("gossamer-region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, len as u64)?;
    let memory = map(&file, len, true)?;
    // The seal on future writes leaves the mapping above writable, so it comes after it.
    let seals = if peers_write { FIXED } else { FIXED | SealFlags::FUTURE_WRITE };
    fcntl_add_seals(&file, seals)?;
    Ok((memory, file))
}

/// Whether `file`, which [`shared`] made, can be mapped writable by no process any more.
pub(crate) fn is_sealed(file: &OwnedFd) -> io::Result<bool> {
    Ok(fcntl_get_seals(file)?.contains(SealFlags::FUTURE_WRITE))
}

/// Another descriptor of `file`, which [`shared`] made, that cannot be mapped writable.
pub(crate) fn read_only(file: &OwnedFd) -> io::Result<OwnedFd> {
    // So that it cannot be opened for writing again, unless its permissions are changed back.
    fchmod(file, Mode::RUSR)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Maps what a peer handed over: at least `len` bytes, sealed, in ordinary pages. If `writable` is
/// false, the caller must never write to the result: the write would fault.
pub(crate) fn of_peer(file: &OwnedFd, len: usize, writable: bool) -> io::Result<SharedBytes> {
    let seals = fcntl_get_seals(file)?;
    if !seals.contains(FIXED) {
        let text = format!("a peer's memory must be sealed against resizing, and has {seals:?}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    // Huge pages may run out behind a mapping, and cannot be unmapped but as a whole.
    let kind = fstatfs(file)?.f_type;
    if kind != ORDINARY_PAGES {
        let text = format!(
            "a peer's memory must be of ordinary pages, and is on a file system of kind {kind:#x}"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let size = fstat(file)?.st_size;
    if u64::try_from(size).is_ok_and(|size| size >= len as u64) {
        return map(file, len, writable);
    }
    let text = format!("a peer's memory has {size} bytes where it promised {len}");
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}

fn map(file: &OwnedFd, len: usize, writable: bool) -> io::Result<SharedBytes> {
    let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours. The file
    // is as long as the mapping, cannot shrink, and is of ordinary pages: `shared` has just made
    // it, `of_peer` has checked.
    unsafe { adopt(mmap(null_mut(), len, access, flags, file.as_fd(), 0)?, len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_peers_may_not_write_they_cannot_map_for_writing() {
        let (memory, file) = shared(8192, false).expect("memory");
        let refused = of_peer(&file, 8192, true).expect_err("a seal");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(rustix::io::pwrite(&file, &[1], 0).is_err(), "nor write it as a file");
        let seen = of_peer(&file, 8192, false).expect("a mapping");
        memory.write_from(5, b"hello");
        let mut out = [0; 5];
        seen.read_into(5, &mut out);
        assert_eq!(&out, b"hello", "its owner still writes");
    }

    #[test]
    fn a_read_only_descriptor_cannot_be_mapped_for_writing_where_others_can() {
        let (memory, file) = shared(8192, true).expect("memory");
        let readable = read_only(&file).expect("a descriptor");
        let refused = of_peer(&readable, 8192, true).expect_err("it is read-only");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(rustix::io::pwrite(&readable, &[1], 0).is_err(), "nor write it as a file");
        let (seen, written) = (of_peer(&readable, 8192, false), of_peer(&file, 8192, true));
        written.expect("a mapping").write_from(5, b"hello");
        let mut out = [0; 5];
        seen.expect("a mapping").read_into(5, &mut out);
        assert_eq!(&out, b"hello");
        memory.read_into(5, &mut out);
        assert_eq!(&out, b"hello");
    }

    #[test]
    fn memory_that_could_shrink_is_refused() {
        let file = memfd_create("loose", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        let file = file.expect("a file");
        ftruncate(&file, 8192).expect("a size");
        fcntl_add_seals(&file, SealFlags::GROW).expect("a seal");
        let refused = of_peer(&file, 8192, true).expect_err("it may shrink");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn memory_in_huge_pages_is_refused() {
        // Making such a file takes no huge page: touching it would.
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let file = memfd_create("huge", flags).expect("a kernel with huge pages");
        ftruncate(&file, 1 << 30).expect("a size");
        fcntl_add_seals(&file, FIXED).expect("seals");
        let refused = of_peer(&file, 8192, true).expect_err("it may have no page");
        assert!(refused.to_string().contains("must be of ordinary pages"), "{refused}");
    }

    #[test]
    fn memory_that_is_too_short_is_refused() {
        let (_, file) = shared(4096, true).expect("memory");
        let refused = of_peer(&file, 4097, true).expect_err("it is too short");
        assert!(refused.to_string().contains("has 4096 bytes where it promised 4097"));
        assert!(ftruncate(&file, 1 << 20).is_err(), "and it cannot be made to fit");
    }
}
