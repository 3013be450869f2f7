//! The memory a fiber runs on: one anonymous mapping with a guard below it and a coloured top.
//!
//! ```text
//! low                                                                       high
//! +-----------+---------------------------------------------+----------------+
//! | guard     | usable: at least what was asked for         | colour: unused |
//! +-----------+---------------------------------------------+----------------+
//! ^ limit                                                   ^ top
//! ```
//!
//! A stack grows down and faults in the guard. The guard is many pages: Rust's functions touch
//! every page of a large frame in order, so that one page would stop them, but C's usually do not,
//! and some of glibc's have frames of 20 KiB, which would step over a guard of one page. It costs
//! address space only: untouched pages take no memory, and the kernel counts a guard as one mapping
//! whatever its size. The colour, 0 to 31 steps of 128 bytes, moves the
//! hottest lines of different stacks into different cache sets: with page-aligned tops they would
//! all compete for the same ones, which doubles the cost of a switch with 64 fibers.

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::{self, NonNull};

/// The smallest stack, in bytes: room for a panic to be raised and caught. Smaller requests are
/// raised to it.
pub const MIN_STACK_BYTES: usize = 16 * 1024;

/// Bytes below a stack whose touch is reported as an overflow, rounded up to whole pages.
const GUARD_BYTES: usize = 64 * 1024;

const COLOURS: usize = 32;
const COLOUR_BYTES: usize = 128;

/// One mapped stack; unmapped when dropped.
pub(crate) struct Stack {
    mapping: NonNull<u8>,
    mapped_bytes: usize,
    guard_bytes: usize,
    top: NonZeroUsize,
}

impl Stack {
    /// Maps a stack of at least `usable_bytes`, coloured by `index`.
    pub(crate) fn map(usable_bytes: usize, index: usize) -> io::Result<Stack> {
        let page = page_bytes();
        let guard_bytes = GUARD_BYTES.next_multiple_of(page);
        let usable = usable_bytes.max(MIN_STACK_BYTES).checked_next_multiple_of(page);
        let total = usable.and_then(|bytes| bytes.checked_add(guard_bytes + page));
        let Some(mapped_bytes) = total else {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        };
        // SAFETY: a fresh private mapping at an address the kernel chooses touches no memory that
        // is in use.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = NonNull::new(address.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped a stack at address zero"))?;
        // At most 31 * 128 bytes, so always inside the extra page above the usable bytes.
        let colour = (index % COLOURS) * COLOUR_BYTES;
        let top = mapping
            .addr()
            .checked_add(mapped_bytes - colour)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let stack = Stack { mapping, mapped_bytes, guard_bytes, top };
        // SAFETY: the range is the lowest part of the mapping made above, which nothing uses yet.
        if unsafe { libc::mprotect(address, guard_bytes, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stack)
    }

    /// Where the stack begins: one past its highest usable byte.
    #[cfg(any(not(target_arch = "x86_64"), switch_portable, test))]
    pub(crate) fn top(&self) -> NonZeroUsize {
        self.top
    }

    /// A place `bytes` below the top, as a pointer into the mapping; aligned to 16 if `bytes` is.
    #[cfg(all(target_arch = "x86_64", not(switch_portable)))]
    pub(crate) fn at_top(&self, bytes: usize) -> *mut u8 {
        self.mapping.as_ptr().with_addr(self.top.get() - bytes)
    }

    /// The lowest address, guard included.
    pub(crate) fn limit(&self) -> NonZeroUsize {
        self.mapping.addr()
    }

    /// The addresses whose touch means that the stack has overflowed.
    pub(crate) fn guard(&self) -> Range<usize> {
        let low = self.limit().get();
        low..low + self.guard_bytes
    }

    /// Bytes between the guard and the top.
    pub(crate) fn usable_bytes(&self) -> usize {
        self.top.get() - self.guard().end
    }

    /// The size that was asked for, rounded up to whole pages: without the page for the colour.
    pub(crate) fn asked_bytes(&self) -> usize {
        self.mapped_bytes - self.guard_bytes - page_bytes()
    }

    /// The lowest usable byte, for handing the memory to the kernel as a signal stack.
    pub(crate) fn usable_start(&self) -> *mut u8 {
        self.mapping.as_ptr().wrapping_add(self.guard_bytes)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: `mapping` and `mapped_bytes` describe exactly the mapping made in `map`, and its
        // owner drops it only when nothing runs on it or refers into it any more.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped_bytes) };
    }
}

fn page_bytes() -> usize {
    // SAFETY: sysconf reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_the_bytes_asked_for_under_every_colour() {
        for index in 0..2 * COLOURS {
            let stack = Stack::map(64 * 1024, index).unwrap();
            assert!(stack.usable_bytes() >= 64 * 1024);
            assert_eq!(stack.guard().len(), 64 * 1024);
            assert_eq!(stack.top().get() % 128, 0);
            let colour = stack.limit().get() + stack.mapped_bytes - stack.top().get();
            assert_eq!(colour, index % COLOURS * COLOUR_BYTES);
        }
    }

    #[test]
    fn raises_tiny_requests_and_refuses_absurd_ones() {
        assert!(Stack::map(0, 0).unwrap().usable_bytes() >= MIN_STACK_BYTES);
        assert!(Stack::map(usize::MAX, 0).is_err());
        assert!(Stack::map(usize::MAX / 2, 0).is_err());
    }
}
