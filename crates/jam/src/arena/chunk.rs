//! [`Chunk`]: one memfd with its two views.
//!
//! The memory is shared between the views, so what is written through one is what the other runs. It
//! belongs to this process alone: the descriptor is closed as soon as both views exist, and a child
//! made by `fork` has neither of them.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use crate::arena::{CHUNK, DATA_DISTANCE};

/// Memory for code, mapped to be written at one address and to be run at another.
pub(super) struct Chunk {
    write: NonNull<u8>,
    run: NonNull<u8>,
}

// SAFETY: the pointers are to mappings of the process, not of a thread. Every byte of a place is
// written by the one who holds its `Draft` only.
unsafe impl Send for Chunk {}
// SAFETY: as above; `write` takes the part of a draft, which has one owner.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Maps fresh memory, all of it present: linking takes no page fault.
    pub(super) fn new() -> io::Result<Chunk> {
        let file = memory_file()?;
        // SAFETY: a length change of a file that nothing has mapped.
        check(unsafe { libc::ftruncate(file.as_raw_fd(), CHUNK as libc::off_t) })?;
        let shared = libc::MAP_SHARED | libc::MAP_POPULATE;
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        let write = map(None, CHUNK, writable, shared, Some((&file, 0)))?;
        // Both halves of the run view in one reservation, so that their distance is as it must be.
        let reserve = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let reserved = map(None, CHUNK, libc::PROT_NONE, reserve, None);
        let Ok(run) = reserved else {
            unmap(write);
            return reserved.map(|_| unreachable!());
        };
        let chunk = Chunk { write, run };
        let fixed = shared | libc::MAP_FIXED;
        let executable = libc::PROT_READ | libc::PROT_EXEC;
        map(Some(run), DATA_DISTANCE, executable, fixed, Some((&file, 0)))?;
        // SAFETY: inside the reservation.
        let data = unsafe { run.add(DATA_DISTANCE) };
        map(Some(data), DATA_DISTANCE, libc::PROT_READ, fixed, Some((&file, DATA_DISTANCE)))?;
        for view in [write, run] {
            // SAFETY: advice about mappings of this chunk, which no reference points into.
            check(unsafe { libc::madvise(view.as_ptr().cast(), CHUNK, libc::MADV_DONTFORK) })?;
        }
        chunk.close(0, DATA_DISTANCE);
        Ok(chunk)
    }

    /// A place is free: what accesses it from now on is an error for AddressSanitizer.
    pub(super) fn close(&self, at: usize, len: usize) {
        for bytes in self.all_of(at, len) {
            sanitizer::poison(bytes);
        }
    }

    /// A place is a draft's.
    pub(super) fn open(&self, at: usize, len: usize) {
        for bytes in self.all_of(at, len) {
            sanitizer::unpoison(bytes);
        }
    }

    /// The bytes of a place, in both halves of both views.
    fn all_of(&self, at: usize, len: usize) -> [*const [u8]; 4] {
        assert!(at.checked_add(len).is_some_and(|end| end <= DATA_DISTANCE), "outside a half");
        let halves = [self.write, self.run].map(|view| {
            [at, DATA_DISTANCE + at].map(|at| {
                ptr::slice_from_raw_parts(view.as_ptr().wrapping_add(at).cast_const(), len)
            })
        });
        let [[a, b], [c, d]] = halves;
        [a, b, c, d]
    }

    /// Where the run view begins.
    pub(super) fn run_address(&self) -> usize {
        self.run.addr().get()
    }

    /// Copies `bytes` to this offset of the chunk. The caller has the place there for itself, as a
    /// draft.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= CHUNK), "outside the chunk");
        // SAFETY: inside the write view, by the assertion, to which no reference exists; nothing
        // else accesses these bytes through any view while they are a draft's.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.write.as_ptr().add(at), bytes.len())
        }
    }

    /// What the run view has there.
    #[cfg(test)]
    pub(super) fn read(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= CHUNK);
        // SAFETY: inside the run view, which is readable; tests write nothing meanwhile.
        (at..at + len).map(|at| unsafe { self.run.as_ptr().add(at).read_volatile() }).collect()
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // The addresses are for other mappings.
        self.open(0, DATA_DISTANCE);
        unmap(self.write);
        unmap(self.run);
    }
}

/// Tells AddressSanitizer which bytes are free. Only with `--cfg address_sanitizer` (`cargo xtask asan`);
/// elsewhere its functions are empty. It sees what Rust and the functions of C access, and not what jams do.
#[cfg(not(address_sanitizer))]
mod sanitizer {
    pub(super) fn poison(_: *const [u8]) {}
    pub(super) fn unpoison(_: *const [u8]) {}
}

#[cfg(address_sanitizer)]
mod sanitizer {
    use std::ffi::c_void;

    // SAFETY: as in `sanitizer/asan_interface.h`.
    unsafe extern "C" {
        fn __asan_poison_memory_region(address: *const c_void, bytes: usize);
        fn __asan_unpoison_memory_region(address: *const c_void, bytes: usize);
    }

    pub(super) fn poison(bytes: *const [u8]) {
        // SAFETY: only notes that nothing may access these bytes, which are mapped.
        unsafe { __asan_poison_memory_region(bytes.cast(), bytes.len()) }
    }

    pub(super) fn unpoison(bytes: *const [u8]) {
        // SAFETY: only notes that these bytes, which are mapped, may be accessed.
        unsafe { __asan_unpoison_memory_region(bytes.cast(), bytes.len()) }
    }
}

/// A file without a name, that may be executed where the system asks for that to be said.
fn memory_file() -> io::Result<OwnedFd> {
    const MFD_EXEC: u32 = 0x10;
    let name = c"gossamer-jams".as_ptr();
    // SAFETY: a system call with a valid string.
    let create = |flags| unsafe { libc::memfd_create(name, libc::MFD_CLOEXEC | flags) };
    let mut file = create(MFD_EXEC);
    if file < 0 {
        // Kernels before 6.3 do not know the flag.
        file = create(0);
    }
    check(file)?;
    // SAFETY: a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

fn map(
    at: Option<NonNull<u8>>,
    len: usize,
    protection: c_int,
    flags: c_int,
    file: Option<(&OwnedFd, usize)>,
) -> io::Result<NonNull<u8>> {
    let wanted = at.map_or(ptr::null_mut(), NonNull::as_ptr).cast();
    let (file, offset) = file.map_or((-1, 0), |(file, offset)| (file.as_raw_fd(), offset));
    // SAFETY: a new mapping at an address that the system chooses; or, with MAP_FIXED, over a part of
    // a reservation of the chunk that is being made, to which nothing refers.
    let mapped = unsafe {
        libc::mmap(wanted, len, protection, flags, file, offset as libc::off_t).cast::<u8>()
    };
    if mapped == libc::MAP_FAILED.cast() {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(mapped).ok_or_else(|| io::Error::other("memory was mapped at address zero"))
}

/// Unmaps a view.
fn unmap(view: NonNull<u8>) {
    // SAFETY: a view of this length of a chunk that is being dropped: no place of it is left, since
    // each holds the chunk.
    unsafe { libc::munmap(view.as_ptr().cast(), CHUNK) };
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const CHILD: &str = "GOSSAMER_JAM_TEST_CHILD";

    #[cfg(target_arch = "x86_64")]
    const RETURN: &[u8] = &[0xc3];
    #[cfg(target_arch = "aarch64")]
    const RETURN: &[u8] = &0xd65f_03c0u32.to_le_bytes();

    /// Runs `fault` in a child, which must end by a segmentation fault there, and nowhere before.
    fn faults(test: &str, fault: impl FnOnce(&Chunk)) {
        if std::env::var_os(CHILD).is_some() {
            let chunk = Chunk::new().unwrap();
            chunk.open(0, DATA_DISTANCE);
            chunk.write(0, RETURN);
            chunk.write(DATA_DISTANCE, RETURN);
            crate::arena::icache::publish(chunk.run_address(), CHUNK);
            jump_to(chunk.run_address());
            println!("the text half runs");
            fault(&chunk);
            println!("no fault");
            std::process::exit(0);
        }
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([&format!("arena::chunk::tests::{test}"), "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(said.contains("the text half runs"), "{said}");
        assert!(!said.contains("no fault"), "{said}");
        assert_eq!(child.status.signal(), Some(libc::SIGSEGV), "{said}");
    }

    fn jump_to(address: usize) {
        // SAFETY: the address has one instruction that returns, or must not be executable: the child
        // then ends by a signal, which is what it is for.
        unsafe { std::mem::transmute::<usize, extern "C" fn()>(address)() }
    }

    #[test]
    fn the_data_half_does_not_run() {
        faults("the_data_half_does_not_run", |chunk| jump_to(chunk.run_address() + DATA_DISTANCE));
    }

    #[test]
    fn the_write_view_does_not_run() {
        faults("the_write_view_does_not_run", |chunk| jump_to(chunk.write.addr().get()));
    }

    #[test]
    fn the_text_half_of_the_run_view_is_not_written() {
        faults("the_text_half_of_the_run_view_is_not_written", |chunk| {
            // SAFETY: mapped, and not writable: the child ends here.
            unsafe { chunk.run.as_ptr().write_volatile(0) }
        });
    }

    #[test]
    fn the_data_half_of_the_run_view_is_not_written() {
        faults("the_data_half_of_the_run_view_is_not_written", |chunk| {
            // SAFETY: mapped, and not writable: the child ends here.
            unsafe { chunk.run.as_ptr().add(DATA_DISTANCE).write_volatile(0) }
        });
    }

    #[test]
    #[cfg(address_sanitizer)]
    fn a_place_that_is_free_is_not_accessed() {
        if let Some(which) = std::env::var_os(CHILD) {
            let chunk = Chunk::new().unwrap();
            chunk.open(64, 64);
            chunk.write(64, &[1; 64]);
            assert_eq!(chunk.read(64, 64), [1; 64]);
            println!("a draft is accessed");
            match which.to_str() {
                Some("write behind it") => chunk.write(127, &[1; 2]),
                Some("read before it") => drop(chunk.read(63, 1)),
                _ => {
                    chunk.close(64, 64);
                    drop(chunk.read(64, 1));
                }
            }
            std::process::exit(0);
        }
        for access in ["write behind it", "read before it", "read it when it is free"] {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["arena::chunk::tests::a_place_that_is_free_is_not_accessed", "--exact"])
                .arg("--nocapture")
                .env(CHILD, access)
                .output()
                .unwrap();
            let output = [child.stdout, child.stderr].concat();
            let output = String::from_utf8_lossy(&output);
            assert!(output.contains("a draft is accessed"), "{access}: {output}");
            assert!(output.contains("use-after-poison"), "{access}: {output}");
        }
    }

    #[test]
    fn no_mapping_is_writable_and_executable() {
        let chunk = Chunk::new().unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let ours: Vec<_> = maps.lines().filter(|line| line.contains("gossamer-jams")).collect();
        assert!(ours.len() >= 3, "three mappings of {}: {ours:?}", chunk.run_address());
        assert!(ours.iter().all(|line| !line.contains("rwx") && !line.contains("-wx")), "{ours:?}");
    }
}
