//! Pages to register: huge ones if the system has some, so that the device and the processor need few
//! translation entries for them.
//!
//! 1. From the system's pool (`vm.nr_hugepages`), while it lasts.
//! 2. Else transparent huge pages (`madvise`), if the system has them.
//! 3. Else ordinary ones.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::{fmt, io};

use primitive::SharedBytes;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes of a huge page.
pub(crate) const HUGE: usize = 2 << 20;

/// The kind of pages of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Huge pages of the system's pool.
    Pool,
    /// Transparent huge pages, where the system can provide them.
    Advised,
    /// Ordinary pages.
    Ordinary,
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pool => "huge pages of the system's pool",
            Self::Advised => "transparent huge pages where possible",
            Self::Ordinary => "ordinary pages",
        })
    }
}

/// A mapping that is unmapped when dropped.
struct Mapping {
    base: NonNull<c_void>,
    len: usize,
}

// SAFETY: the mapping belongs to the whole process; this struct offers no access to it by itself.
unsafe impl Send for Mapping {}
// SAFETY: the struct has no method that touches the memory, so sharing it shares nothing.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize, flags: MapFlags) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | flags);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing of
        // ours.
        let base = unsafe { mmap_anonymous(null_mut(), len, access, flags)? };
        Ok(Self { base: NonNull::new(base).ok_or(Errno::NOMEM)?, len })
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        // SAFETY: the whole of a mapping of ours; neither advice that is given here changes what
        // can be read there, which is zeros: the mapping is not shared yet.
        unsafe { madvise(self.base.as_ptr(), self.len, advice) }.map_err(io::Error::from)
    }

    /// `len` bytes from the first on that is aligned to a huge page; they are inside.
    fn show(self, len: usize) -> SharedBytes {
        let address = self.base.as_ptr().addr();
        let before = address.next_multiple_of(HUGE) - address;
        assert!(before + len <= self.len, "{len} bytes behind {before} of {}", self.len);
        // SAFETY: inside the mapping, as was just checked.
        let base = unsafe { self.base.cast::<u8>().add(before) };
        // SAFETY: aligned to a huge page; mapped for reading and writing as long as the `Mapping`;
        // no reference into it exists, since its address has not been given out.
        unsafe { SharedBytes::from_raw(base, len, Arc::new(self)) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, unmapped only here, after the last
        // `SharedBytes` that shows it is gone. Failure would mean a wrong length.
        let _ = unsafe { munmap(self.base.as_ptr(), self.len) };
    }
}

/// Zeroed memory of at least `len` bytes, in whole huge pages, and the kind of its pages.
///
/// # Errors
/// The error of the system if it has no memory.
pub(crate) fn map(len: usize) -> io::Result<(SharedBytes, Pages)> {
    let len = len.max(1).checked_next_multiple_of(HUGE).ok_or(Errno::NOMEM)?;
    if let Ok(memory) = from_pool(len) {
        return Ok((memory, Pages::Pool));
    }
    // A huge page begins at a multiple of its size, an ordinary mapping anywhere.
    let mapping = Mapping::new(len.checked_add(HUGE).ok_or(Errno::NOMEM)?, MapFlags::empty())?;
    let is_advised = mapping.advise(Advice::LinuxHugepage).is_ok();
    let pages = if is_advised { Pages::Advised } else { Pages::Ordinary };
    Ok((mapping.show(len), pages))
}

fn from_pool(len: usize) -> io::Result<SharedBytes> {
    let mapping = Mapping::new(len, MapFlags::HUGETLB | MapFlags::HUGE_2MB)?;
    // Beyond a limit of the control group, touching a page kills the process; populating it here
    // returns an error instead.
    mapping.advise(Advice::LinuxPopulateWrite)?;
    Ok(mapping.show(len))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use primitive::sync::Ordering;

    use super::*;

    /// Free huge pages in the system's pool.
    fn free() -> usize {
        let text = fs::read_to_string("/proc/meminfo").unwrap();
        let count = |name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map_or(0, |count| count.trim().parse::<usize>().unwrap())
        };
        count("HugePages_Free:") - count("HugePages_Rsvd:")
    }

    fn is_zeroed_and_keeps(memory: &SharedBytes) {
        for at in [0, memory.len() - 8] {
            assert_eq!(memory.load(at, Ordering::Relaxed), 0);
            memory.store(at, at as u64 + 1, Ordering::Relaxed);
            assert_eq!(memory.load(at, Ordering::Relaxed), at as u64 + 1);
        }
        assert!(memory.address().as_ptr().addr().is_multiple_of(HUGE));
    }

    #[test]
    #[ignore = "needs huge pages, as the guests of `cargo xtask rdma-test` have"]
    fn the_pool_is_used_as_far_as_it_goes_and_gets_back_what_it_gave() {
        let before = free();
        assert!(before > 1, "nothing to test with: no huge page is free (vm.nr_hugepages)");
        let (memory, pages) = map(HUGE + 1).unwrap();
        assert_eq!((memory.len(), pages, free()), (2 * HUGE, Pages::Pool, before - 2));
        is_zeroed_and_keeps(&memory);
        let (more, pages) = map((before - 1) * HUGE).unwrap();
        assert_ne!(pages, Pages::Pool, "fewer pages are left in the pool");
        assert_eq!(free(), before - 2);
        is_zeroed_and_keeps(&more);
        drop((memory, more));
        assert_eq!(free(), before);
    }

    #[test]
    fn more_than_any_pool_has_comes_from_elsewhere() {
        let (memory, pages) = map((free() + 1) * HUGE).unwrap();
        assert_ne!(pages, Pages::Pool);
        is_zeroed_and_keeps(&memory);
        is_zeroed_and_keeps(&map(1).unwrap().0);
        for len in [usize::MAX, isize::MAX as usize] {
            let error = map(len).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory, "{error}");
        }
    }
}
