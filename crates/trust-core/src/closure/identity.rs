//! Which build this is: an identity of the object that holds this crate and the table of closures,
//! compared before a peer's closure ids are believed.
//!
//! That object is the executable, or a shared library with Rust code in it that something else has
//! loaded (a `cdylib` in a database or an interpreter): then the executable says nothing about the
//! closures. It is found by an address inside it. If the linker has left its build id in it, a hash over
//! all that it linked, that is what tells builds apart. If not, its read-only segments are hashed
//! as they stand in memory: about a millisecond for each of their megabytes, and a program of tests has fifty.
//! They hold no relocated pointers, so every process of one build gets the same hash: what the
//! loader relocates, and protects afterwards, is in a segment that can be written. A time stamp would
//! say nothing.
//!
//! A linker that is told which id to write (`--build-id=0x...`) may write one into two builds. So
//! the sizes of the segments count, too, in which two builds seldom agree.

use std::ffi::c_int;
use std::sync::OnceLock;

/// The type of a note that is a build id, and the name of those who define it.
const BUILD_ID: (u32, &[u8]) = (3, b"GNU\0");
/// The shortest build id that is taken for a hash: linkers write 16 bytes or 20, and 8 if they are told to be
/// quick.
const SHORTEST: usize = 16;

/// The identity of this build: equal in every process of the same one, different (but for a hash
/// collision) in every build that differs in code, constants or the table of closures, unless the linker
/// was told to write the same build id into both.
pub fn build_identity() -> &'static [u8; 32] {
    static IDENTITY: OnceLock<[u8; 32]> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let object = object_with(build_identity as fn() -> _ as usize);
        identity(&object.expect("no loaded object contains this code"))
    })
}

/// A loaded object, as far as processes of one build agree on it.
struct Object {
    /// The segments that can be read and not written.
    constant: Vec<&'static [u8]>,
    /// The notes, which are in those segments.
    notes: Vec<&'static [u8]>,
}

fn identity(object: &Object) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for segment in &object.constant {
        hasher.update(&segment.len().to_le_bytes());
    }
    match object.notes.iter().find_map(|notes| build_id(notes)) {
        Some(id) => {
            hasher.update(id);
        }
        None => {
            hasher.update(b"all of them");
            for segment in &object.constant {
                hasher.update(segment);
            }
        }
    }
    *hasher.finalize().as_bytes()
}

/// The linker's build id in a segment of notes.
fn build_id(notes: &'static [u8]) -> Option<&'static [u8]> {
    let mut rest = notes;
    loop {
        let word;
        (word, rest) = rest.split_first_chunk::<12>()?;
        let [name, id, kind] = [0, 4, 8].map(|at| {
            u32::from_ne_bytes([word[at], word[at + 1], word[at + 2], word[at + 3]]) as usize
        });
        // Both are padded to whole words.
        let padded = |len: usize| len.checked_next_multiple_of(4);
        let (name_part, after) = rest.split_at_checked(padded(name)?)?;
        let (id_part, after) = after.split_at_checked(padded(id)?)?;
        let is_build_id = (kind as u32, name_part.get(..name)?) == BUILD_ID;
        if is_build_id && id >= SHORTEST {
            return id_part.get(..id);
        }
        rest = after;
    }
}

/// The address to look for, and the object that contains it.
struct Search {
    address: usize,
    found: Option<Object>,
}

/// The loaded object that contains `address`, if one does. It is never unloaded: it contains this code, or
/// is given up.
fn object_with(address: usize) -> Option<Object> {
    let mut search = Search { address, found: None };
    // SAFETY: the callback gets the search that lives on this stack frame until `dl_iterate_phdr`
    // returns, and no one else uses it meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(take_if_found), (&raw mut search).cast()) };
    search.found
}

/// Takes down an object and ends the iteration, if the object contains the address that is looked for.
///
/// # Safety
/// `info` describes a loaded object; if it contains the address, it is never unloaded. `data`
/// points to a [`Search`] that nothing else uses.
#[allow(clippy::disallowed_methods, reason = "the program's own code, which no peer can write")]
unsafe extern "C" fn take_if_found(
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
    let of_type = |wanted| headers.iter().filter(move |header| header.p_type == wanted);
    let start = |header: &libc::Elf64_Phdr| base.wrapping_add(header.p_vaddr as usize);
    let offset = |header| search.address.wrapping_sub(start(header));
    if !of_type(libc::PT_LOAD).any(|header| offset(header) < header.p_memsz as usize) {
        return 0;
    }
    let mut constant = Vec::new();
    for header in of_type(libc::PT_LOAD) {
        if header.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R {
            let segment = std::ptr::with_exposed_provenance::<u8>(start(header));
            // SAFETY: a loaded segment is mapped for its whole size as long as its object is
            // loaded, which by the contract is for ever, and this one is readable and never
            // written.
            constant.push(unsafe { std::slice::from_raw_parts(segment, header.p_memsz as usize) });
        }
    }
    let notes = of_type(libc::PT_NOTE).filter_map(|header| {
        constant.iter().find_map(|segment: &&'static [u8]| {
            let from = start(header).checked_sub(segment.as_ptr().addr())?;
            segment.get(from..from.checked_add(header.p_memsz as usize)?)
        })
    });
    let notes = notes.collect();
    search.found = Some(Object { constant, notes });
    1
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::closure::registry::core_image_start;

    fn contains(object: &Object, address: usize) -> bool {
        let mut ranges = object.constant.iter().map(|segment| segment.as_ptr_range());
        ranges.any(|range| (range.start.addr()..range.end.addr()).contains(&address))
    }

    /// A note: its type, its name and what it says, padded.
    fn note(kind: u32, name: &[u8], says: &[u8]) -> Vec<u8> {
        let lengths = [name.len() as u32, says.len() as u32, kind].map(u32::to_ne_bytes);
        let padded = |part: &[u8]| [part, &[0; 3][..part.len().wrapping_neg() % 4]].concat();
        [lengths.concat(), padded(name), padded(says)].concat()
    }

    #[test]
    fn code_constants_and_the_table_of_closures_count_and_nothing_that_changes() {
        static CONSTANT: [u32; 3] = [3, 1, 4];
        static VARIABLE: AtomicU32 = AtomicU32::new(1);
        let object = object_with(build_identity as fn() -> _ as usize).unwrap();
        assert!(contains(&object, build_identity as fn() -> _ as usize), "code");
        assert!(contains(&object, (&raw const CONSTANT).addr()), "constants");
        assert!(contains(&object, core_image_start()), "the table of closures");
        assert!(!contains(&object, (&raw const VARIABLE).addr()), "what is written");
    }

    #[test]
    fn an_object_is_found_by_an_address_inside_it() {
        // In the C library, which is another object and stays loaded.
        let elsewhere = libc::getpid as unsafe extern "C" fn() -> _ as usize;
        let [here, there] = [core_image_start(), elsewhere].map(|at| object_with(at).unwrap());
        assert!(contains(&there, elsewhere) && !contains(&there, core_image_start()));
        assert!(contains(&here, core_image_start()) && !contains(&here, elsewhere));
        assert_ne!(identity(&here), identity(&there));
        assert!(object_with(0).is_none(), "an object was found at no address");
    }

    #[test]
    fn builds_differ_in_their_build_id_or_in_their_segments() {
        let id = |byte: u8| &*note(3, b"GNU\0", &[byte; 20]).leak();
        let of = |constant: &[&'static [u8]], notes: &[&'static [u8]]| {
            identity(&Object { constant: constant.to_vec(), notes: notes.to_vec() })
        };
        let (code, other): (&[u8], &[u8]) = (&[1, 2, 3], &[1, 2, 4]);
        assert_eq!(of(&[code], &[]), of(&[code], &[]));
        assert_ne!(of(&[code], &[]), of(&[other], &[]), "without an id, each byte counts");
        assert_ne!(of(&[&[1, 2], &[3]], &[]), of(&[&[1], &[2, 3]], &[]));
        assert_eq!(of(&[code], &[id(1)]), of(&[other], &[id(1)]), "the linker has hashed them");
        assert_ne!(of(&[code], &[id(1)]), of(&[code], &[id(2)]));
        assert_ne!(of(&[code], &[id(1)]), of(&[code, code], &[id(1)]), "an id that was given");
        assert_ne!(of(&[code], &[id(1)]), of(&[code], &[]));
    }

    #[test]
    fn a_build_id_is_found_among_notes_and_only_if_it_is_a_hash() {
        let found = |notes: &[Vec<u8>]| build_id(notes.concat().leak()).map(<[u8]>::to_vec);
        let id = note(3, b"GNU\0", &[7; 20]);
        let tag = note(1, b"GNU\0", &[0; 16]);
        assert_eq!(
            found(&[tag.clone(), note(3, b"Go\0", &[8; 20]), id.clone()]),
            Some(vec![7; 20])
        );
        assert_eq!(found(&[note(3, b"GNU\0", &[7; 8]), tag.clone()]), None, "too short");
        assert_eq!(found(&[tag]), None);
        assert_eq!(found(&[]), None);
        for len in 0..id.len() {
            assert_eq!(build_id(id[..len].to_vec().leak()), None, "{len} bytes of it");
        }
        let endless = note(3, b"GNU\0", &[7; 20]).into_iter().enumerate();
        let endless = endless.map(|(at, byte)| if at < 8 { 0xff } else { byte }).collect();
        assert_eq!(found(&[endless]), None, "longer than any memory");
    }
}
