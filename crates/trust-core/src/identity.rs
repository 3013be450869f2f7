//! Which build this is: a hash over the program's machine code, compared before a peer's closure
//! ids are believed.
//!
//! The linker's own build id may be absent, and a time stamp says nothing, so the executable
//! segments are hashed as they stand in memory (hundreds of kilobytes: well under a millisecond).
//! They hold no relocated pointers, so every process of one binary gets the same hash.

use std::{ffi::c_int, sync::OnceLock};

/// The identity of this program: equal in every process of the same build, different (but for a
/// hash collision) in every other build.
pub fn build_identity() -> &'static [u8; 32] {
    static IDENTITY: OnceLock<[u8; 32]> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let mut hasher = blake3::Hasher::new();
        // SAFETY: the callback gets the hasher that lives on this stack frame until
        // `dl_iterate_phdr` returns, and no one else uses it meanwhile.
        unsafe { libc::dl_iterate_phdr(Some(hash_program), (&raw mut hasher).cast()) };
        *hasher.finalize().as_bytes()
    })
}

/// Hashes the executable segments of the first object, which is the program itself.
///
/// # Safety
/// `info` describes a loaded object and `data` points to a hasher that nobody else uses.
#[allow(clippy::disallowed_methods, reason = "the program's own code, which no peer can write")]
unsafe extern "C" fn hash_program(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    data: *mut libc::c_void,
) -> c_int {
    // SAFETY: the loader passes a valid description whose header table has `dlpi_phnum` entries,
    // and `data` is the hasher given to `dl_iterate_phdr`.
    let (headers, base, hasher) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        (headers, info.dlpi_addr as usize, &mut *data.cast::<blake3::Hasher>())
    };
    for header in headers {
        if header.p_type == libc::PT_LOAD
            && header.p_flags & (libc::PF_X | libc::PF_R) == libc::PF_X | libc::PF_R
        {
            let start = std::ptr::with_exposed_provenance(base + header.p_vaddr as usize);
            // SAFETY: a loaded segment is mapped for its whole size, and an executable one of a
            // running program is readable and not written.
            hasher.update(unsafe { std::slice::from_raw_parts(start, header.p_memsz as usize) });
        }
    }
    1
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_identity_is_of_something_and_stays() {
        assert_ne!(super::build_identity(), blake3::hash(b"").as_bytes(), "no segment was hashed");
        assert_eq!(super::build_identity(), super::build_identity());
    }
}
