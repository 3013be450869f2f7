//! The memory that this process shares with that of an executor: a sealed memfd and a view of it.
//!
//! The process may write some of it at any moment, so it is [`SharedBytes`]: read by copies, never
//! through a reference.

use std::ffi::c_uint;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use primitive::SharedBytes;

/// A view, unmapped when dropped.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process; this struct gives no access to it.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `Memory::new` with this length; the last `SharedBytes` of it is gone.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// The memory of an executor.
pub(crate) struct Memory {
    pub(crate) file: File,
    pub(crate) bytes: SharedBytes,
}

impl Memory {
    /// Zeroed memory of `len` bytes. Pages that nothing touches take none.
    pub(crate) fn new(len: usize) -> io::Result<Memory> {
        let file = memory_file(c"gossamer-executor", libc::MFD_ALLOW_SEALING)?;
        file.set_len(len as u64)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: a call about a descriptor that is open.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the system chooses.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), len, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        let mapping = Arc::new(Mapping { base, len });
        // SAFETY: advice about a mapping that nothing refers to: processes that this one forks have
        // no use for it.
        unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTFORK) };
        // SAFETY: page-aligned, readable and writable as long as `mapping` lives; the file cannot
        // shrink; no reference into it is ever made.
        Ok(Memory { file, bytes: unsafe { SharedBytes::from_raw(base, len, mapping) } })
    }

    /// Makes a range of whole pages zero, and gives its memory back to the system.
    pub(crate) fn clear(&self, at: usize, len: usize) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (at, len) = (at as libc::off_t, len as libc::off_t);
        // SAFETY: a call about a descriptor that is open; the bytes are read by copies only.
        let done = unsafe { libc::fallocate(self.file.as_raw_fd(), mode, at, len) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// A file without a name, which may be executed where the system asks for that to be said.
pub(crate) fn memory_file(name: &std::ffi::CStr, flags: c_uint) -> io::Result<File> {
    const MFD_EXEC: c_uint = 0x10;
    // SAFETY: a system call with a valid string.
    let create =
        |more| unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | flags | more) };
    let mut file = create(MFD_EXEC);
    if file < 0 {
        // Kernels before 6.3 do not know the flag.
        file = create(0);
    }
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which has no other owner.
    Ok(unsafe { File::from_raw_fd(file) })
}
