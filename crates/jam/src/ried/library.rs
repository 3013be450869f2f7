//! A ried in memory: its bytes in a sealed file without a name, which the system's loader maps.
//!
//! The loader knows a library by the text of its path, and gives back an old one where the text is that
//! of one which it has mapped. The number of a closed descriptor is used again, so `/proc/self/fd/7`
//! may name another file than before. So every path is written in another way ([`path_of`]).

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use jam_abi::{RIED_SYMBOL, RiedData};
use primitive::sync::{AtomicU32, Ordering};

/// Maps a library, and runs its initialisers. It is never unmapped: its functions may be in tables,
/// and on stacks.
///
/// # Safety
/// The bytes are those of a shared library whose code may run in this process.
pub(super) unsafe fn map(bytes: &[u8]) -> Result<&'static RiedData, String> {
    let file = sealed(bytes).map_err(|error| format!("no memory file for it: {error}"))?;
    static MAPPED: AtomicU32 = AtomicU32::new(0);
    let path = path_of(file.as_raw_fd(), MAPPED.fetch_add(1, Ordering::Relaxed));
    let path = CString::new(path).expect("a path of digits, points and strokes");
    // SAFETY: a path; the caller answers for the code. The error is this thread's.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(loader_error().replace(&*path.to_string_lossy(), "the library"));
    }
    let symbol = CString::new(RIED_SYMBOL).expect("a name");
    // SAFETY: a library that is mapped, and a name.
    let data = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
    // SAFETY: null, or the symbol that only `ried::interface!` and jam-build make, of this type, of a
    // library that is never unmapped.
    unsafe { data.cast::<RiedData>().as_ref() }.ok_or_else(|| {
        format!("no symbol {RIED_SYMBOL}: declare its functions by ried::interface!")
    })
}

/// What the loader says of the last error of this thread.
fn loader_error() -> String {
    // SAFETY: null, or text that stays until this thread calls the loader again.
    unsafe {
        let error = libc::dlerror();
        if error.is_null() {
            return "the loader does not say why".to_owned();
        }
        CStr::from_ptr(error).to_string_lossy().into_owned()
    }
}

/// A file without a name that has these bytes, which nothing can change any more.
fn sealed(bytes: &[u8]) -> io::Result<File> {
    const MFD_EXEC: u32 = 0x10;
    // SAFETY: a system call with a valid string.
    let create = |flags| unsafe {
        libc::memfd_create(
            c"gossamer-ried".as_ptr(),
            libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | flags,
        )
    };
    let mut number = create(MFD_EXEC);
    if number < 0 {
        // Kernels before 6.3 do not know the flag.
        number = create(0);
    }
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which has no other owner.
    let mut file = unsafe { File::from_raw_fd(number) };
    file.write_all(bytes)?;
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: a system call on this file.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// A path of a descriptor that no other `serial` has: between the folder and the number it has the
/// bits of `serial`, `/` for 0 and `/.` for 1, all of which are the folder itself.
fn path_of(number: RawFd, serial: u32) -> String {
    let bits = (0..u32::BITS).map(|bit| if serial >> bit & 1 == 0 { "/" } else { "/." });
    format!("/proc/self/fd{}/{number}", bits.collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn every_path_of_a_file_is_another_text() {
        let file = sealed(b"some bytes").unwrap();
        let serials = (0..40).chain([1 << 20, u32::MAX]);
        let paths: Vec<_> = serials.map(|serial| path_of(file.as_raw_fd(), serial)).collect();
        assert_eq!(paths.iter().collect::<HashSet<_>>().len(), paths.len());
        for path in paths {
            assert_eq!(std::fs::read(&path).unwrap(), b"some bytes", "{path}");
        }
    }

    #[test]
    fn a_sealed_file_does_not_change() {
        let file = sealed(&[7; 5000]).unwrap();
        let mut other = File::from(file.as_fd().try_clone_to_owned().unwrap());
        let denied = io::ErrorKind::PermissionDenied;
        assert_eq!(other.write(&[1]).unwrap_err().kind(), denied);
        assert_eq!(other.set_len(10).unwrap_err().kind(), denied);
        assert_eq!(other.set_len(9000).unwrap_err().kind(), denied);
    }

    #[test]
    fn what_the_loader_does_not_take_is_an_error() {
        // SAFETY: the loader maps no executable, so nothing of it runs.
        let own = unsafe { map(&std::fs::read(std::env::current_exe().unwrap()).unwrap()) };
        let error = own.unwrap_err();
        assert!(error.starts_with("the library: "), "{error}");
    }
}
