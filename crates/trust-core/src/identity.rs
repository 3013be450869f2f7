//! Which build this is: a hash over the program's machine code and constants, compared before a
//! peer's closure ids are believed.
//!
//! The linker's own build id may be absent, and a time stamp says nothing, so the segments that
//! nobody writes are hashed as they stand in memory (a megabyte or a few: about as many
//! milliseconds). They hold no relocated pointers, so every process of one binary gets the same
//! hash: what the loader relocates, and protects afterwards, is in a segment that can be written.

use std::{ffi::c_int, sync::OnceLock};

/// The identity of this program: equal in every process of the same binary, different (but for a
/// hash collision) in every build that differs in code, constants or the table of closures.
pub fn build_identity() -> &'static [u8; 32] {
    static IDENTITY: OnceLock<[u8; 32]> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let mut hasher = blake3::Hasher::new();
        for segment in constant_segments() {
            hasher.update(segment);
        }
        *hasher.finalize().as_bytes()
    })
}

/// The segments of this program that can be read and not written.
fn constant_segments() -> Vec<&'static [u8]> {
    let mut segments = Vec::new();
    // SAFETY: the callback gets the list that lives on this stack frame until `dl_iterate_phdr`
    // returns, and no one else uses it meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(list_program), (&raw mut segments).cast()) };
    segments
}

/// Lists the constant segments of the first object, which is the program itself.
///
/// # Safety
/// `info` describes a loaded object that is never unloaded, and `data` points to a list of segments
/// that nobody else uses.
#[allow(clippy::disallowed_methods, reason = "the program's own code, which no peer can write")]
unsafe extern "C" fn list_program(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    data: *mut libc::c_void,
) -> c_int {
    // SAFETY: the loader passes a valid description whose header table has `dlpi_phnum` entries,
    // and `data` is the list given to `dl_iterate_phdr`.
    let (headers, base, segments) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        (headers, info.dlpi_addr as usize, &mut *data.cast::<Vec<&'static [u8]>>())
    };
    for header in headers {
        if header.p_type == libc::PT_LOAD
            && header.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R
        {
            let start = std::ptr::with_exposed_provenance(base + header.p_vaddr as usize);
            // SAFETY: a loaded segment is mapped for its whole size as long as its program runs,
            // and this one is readable and never written.
            segments.push(unsafe { std::slice::from_raw_parts(start, header.p_memsz as usize) });
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::core_image_start;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn the_identity_is_of_something_and_stays() {
        assert_ne!(build_identity(), blake3::hash(b"").as_bytes(), "no segment was hashed");
        assert_eq!(build_identity(), build_identity());
    }

    #[test]
    fn code_constants_and_the_table_of_closures_count_and_nothing_that_changes() {
        static CONSTANT: [u32; 3] = [3, 1, 4];
        static VARIABLE: AtomicU32 = AtomicU32::new(1);
        let segments = constant_segments();
        let counts = |address: usize| {
            let mut ranges = segments.iter().map(|segment| segment.as_ptr_range());
            ranges.any(|range| (range.start.addr()..range.end.addr()).contains(&address))
        };
        assert!(counts(build_identity as fn() -> _ as usize), "code");
        assert!(counts((&raw const CONSTANT).addr()), "constants");
        assert!(counts(core_image_start()), "the table of closures");
        assert!(!counts((&raw const VARIABLE).addr()), "what is written");
    }
}
