//! Which build this is: a hash over the machine code and constants of the object that holds this
//! crate and the table of closures, compared before a peer's closure ids are believed.
//!
//! That object is the executable, or a shared library with Rust code in it that something else has
//! loaded (a `cdylib` in a database or an interpreter): then the executable says nothing about the
//! closures. It is found by an address inside it, and its read-only segments are hashed as
//! they stand in memory (a megabyte or a few: about as many milliseconds); a linker's build id may
//! be absent, and a time stamp says nothing. The segments hold no relocated pointers, so every
//! process of one build gets the same hash: what the loader relocates, and protects afterwards, is
//! in a segment that can be written.

use std::ffi::c_int;
use std::sync::OnceLock;

/// The identity of this build: equal in every process of the same one, different (but for a hash
/// collision) in every build that differs in code, constants or the table of closures.
pub fn build_identity() -> &'static [u8; 32] {
    static IDENTITY: OnceLock<[u8; 32]> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let segments = constant_segments(build_identity as fn() -> _ as usize);
        assert!(!segments.is_empty(), "no loaded object contains this code");
        let mut hasher = blake3::Hasher::new();
        for segment in segments {
            hasher.update(segment);
        }
        *hasher.finalize().as_bytes()
    })
}

/// The address to look for, and the segments found.
struct Search {
    address: usize,
    segments: Vec<&'static [u8]>,
}

/// The segments that can be read and not written, of the loaded object that contains `address`:
/// none if no object does. The object is never unloaded: it contains this code, or is given up.
fn constant_segments(address: usize) -> Vec<&'static [u8]> {
    let mut search = Search { address, segments: Vec::new() };
    // SAFETY: the callback gets the search that lives on this stack frame until `dl_iterate_phdr`
    // returns, and no one else uses it meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(list_if_found), (&raw mut search).cast()) };
    search.segments
}

/// Lists the constant segments of an object and ends the iteration, if the object contains the
/// address that is looked for.
///
/// # Safety
/// `info` describes a loaded object; if it contains the address, it is never unloaded. `data`
/// points to a [`Search`] that nothing else uses.
#[allow(clippy::disallowed_methods, reason = "the program's own code, which no peer can write")]
unsafe extern "C" fn list_if_found(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    data: *mut libc::c_void,
) -> c_int {
    // SAFETY: the loader passes a valid description whose header table has `dlpi_phnum` entries,
    // and `data` is the search given to `dl_iterate_phdr`.
    let (headers, base, search) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        (headers, info.dlpi_addr as usize, &mut *data.cast::<Search>())
    };
    let loaded = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let start = |header: &libc::Elf64_Phdr| base.wrapping_add(header.p_vaddr as usize);
    let offset = |header| search.address.wrapping_sub(start(header));
    if !loaded().any(|header| offset(header) < header.p_memsz as usize) {
        return 0;
    }
    for header in loaded() {
        if header.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R {
            let segment = std::ptr::with_exposed_provenance(start(header));
            // SAFETY: a loaded segment is mapped for its whole size as long as its object is
            // loaded, which by the contract is for ever, and this one is readable and never
            // written.
            let segment = unsafe { std::slice::from_raw_parts(segment, header.p_memsz as usize) };
            search.segments.push(segment);
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::closure::registry::core_image_start;

    fn count(segments: &[&[u8]], address: usize) -> bool {
        let mut ranges = segments.iter().map(|segment| segment.as_ptr_range());
        ranges.any(|range| (range.start.addr()..range.end.addr()).contains(&address))
    }

    #[test]
    fn the_identity_is_of_something_and_stays() {
        assert_ne!(build_identity(), blake3::hash(b"").as_bytes(), "no segment was hashed");
        assert_eq!(build_identity(), build_identity());
    }

    #[test]
    fn code_constants_and_the_table_of_closures_count_and_nothing_that_changes() {
        static CONSTANT: [u32; 3] = [3, 1, 4];
        static VARIABLE: AtomicU32 = AtomicU32::new(1);
        let segments = constant_segments(build_identity as fn() -> _ as usize);
        assert!(count(&segments, build_identity as fn() -> _ as usize), "code");
        assert!(count(&segments, (&raw const CONSTANT).addr()), "constants");
        assert!(count(&segments, core_image_start()), "the table of closures");
        assert!(!count(&segments, (&raw const VARIABLE).addr()), "what is written");
    }

    #[test]
    fn an_object_is_found_by_an_address_inside_it() {
        // In the C library, which is another object and stays loaded.
        let elsewhere = libc::getpid as unsafe extern "C" fn() -> _ as usize;
        let (here, there) = (constant_segments(core_image_start()), constant_segments(elsewhere));
        assert!(count(&there, elsewhere) && !count(&there, core_image_start()));
        assert!(count(&here, core_image_start()) && !count(&here, elsewhere));
        assert!(constant_segments(0).is_empty(), "an object was found at no address");
    }
}
