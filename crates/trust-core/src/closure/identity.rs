//! Which build this is: an identity of the object that holds this crate and the table of closures,
//! compared before a peer's closure ids are believed.
//!
//! That object is the executable, or a shared library with Rust code in it that something else has
//! loaded (a `cdylib` in a database or an interpreter): then the executable says nothing about the
//! closures. It is found by an address inside it.
//!
//! If the linker wrote a build id, a hash of its output, the identity is derived from that. Otherwise it
//! is a hash of the object's read-only segments as they stand in memory, which takes about half a
//! millisecond for each megabyte; a program of tests has fifty. They hold no relocated
//! pointers, so every process of one build gets the same hash: what the loader relocates, and protects
//! afterwards, is in a segment that can be written.
//!
//! A build id may be wrong: a linker writes the one it is given (`--build-id=0x..`), and GNU's, if it is told
//! to write none, keeps that of an input. So the table of closures counts as well, and the sizes of the
//! segments. The table holds distances to code, which nearly every change of code changes. Captures of the
//! feature `nightly` are believed byte for byte; with it, all segments are hashed.

use std::ffi::c_int;
use std::sync::OnceLock;

use crate::closure::registry::core_image_table;

/// `NT_GNU_BUILD_ID`, and the owner of notes of that type.
const BUILD_ID: (u32, &[u8]) = (3, b"GNU\0");
/// The shortest build id that is believed: those of MD5 and UUIDs have 16 bytes, those of other hashes
/// more. `--build-id=fast` writes 8.
const SHORTEST: usize = 16;

/// The identity of this build: equal in every process of the same one, different (but for a hash
/// collision) in every build that differs in code, constants or the table of closures, unless a build id
/// is wrong, and the table and the sizes of the segments agree.
pub fn build_identity() -> &'static [u8; 32] {
    static IDENTITY: OnceLock<[u8; 32]> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let object = object_with(build_identity as fn() -> _ as usize);
        identity(&object.expect("no loaded object contains this code"))
    })
}

/// A loaded object, as far as processes of one build agree on it.
#[derive(Default)]
struct Object {
    /// The segments that can be read and not written.
    constant: Vec<&'static [u8]>,
    /// The linker's build id, where it is believed.
    build_id: Option<&'static [u8]>,
    /// The table of closures, if this object has it.
    table: &'static [u8],
}

impl Object {
    /// `len` bytes of the constant segments.
    fn part(&self, at: usize, len: usize) -> Option<&'static [u8]> {
        self.constant.iter().find_map(|segment| {
            let from = at.checked_sub(segment.as_ptr().addr())?;
            segment.get(from..from.checked_add(len)?)
        })
    }
}

fn identity(object: &Object) -> [u8; 32] {
    assert!(!object.constant.is_empty(), "an object without a read-only segment has no identity");
    let mut hasher = blake3::Hasher::new();
    for segment in &object.constant {
        hasher.update(&segment.len().to_le_bytes());
    }
    match object.build_id {
        Some(id) => {
            hasher.update(&object.table.len().to_le_bytes()).update(object.table).update(id);
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
        let head;
        (head, rest) = rest.split_first_chunk::<12>()?;
        let [name, id, kind] = [0, 4, 8]
            .map(|at| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
        // Both parts are padded to 4 bytes. In a segment aligned to 8, lengths that are not multiples of 8
        // would misplace the notes that follow; then no id is found, and everything is hashed.
        let [name, id] = [name, id].map(|len| len as usize);
        let (name_part, after) = rest.split_at_checked(name.next_multiple_of(4))?;
        let (id_part, after) = after.split_at_checked(id.next_multiple_of(4))?;
        if (kind, &name_part[..name]) == BUILD_ID && id >= SHORTEST {
            return Some(&id_part[..id]);
        }
        rest = after;
    }
}

/// The address to look for, and the object that contains it.
struct Search {
    address: usize,
    found: Option<Object>,
}

/// The loaded object that contains `address`, if one does. Callers pass an address in an object that is
/// never unloaded.
fn object_with(address: usize) -> Option<Object> {
    let mut search = Search { address, found: None };
    // SAFETY: the callback gets the search that lives on this stack frame until `dl_iterate_phdr`
    // returns, and no one else uses it meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(record_if_found), (&raw mut search).cast()) };
    search.found
}

/// Records an object and ends the iteration, if the object contains the address that is looked for.
///
/// # Safety
/// `info` describes a loaded object; if it contains the address, it is never unloaded. `data`
/// points to a [`Search`] that nothing else uses.
#[allow(clippy::disallowed_methods, reason = "the program's own code, which no peer can write")]
unsafe extern "C" fn record_if_found(
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
    let mut object = Object::default();
    for header in of_type(libc::PT_LOAD) {
        if header.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R {
            let segment = std::ptr::with_exposed_provenance::<u8>(start(header));
            // SAFETY: a loaded segment is mapped for its whole size as long as its object is
            // loaded, which by the contract is for ever, and this one is readable and never
            // written.
            let segment = unsafe { std::slice::from_raw_parts(segment, header.p_memsz as usize) };
            object.constant.push(segment);
        }
    }
    if !cfg!(feature = "nightly") {
        let part = |header: &libc::Elf64_Phdr| object.part(start(header), header.p_memsz as usize);
        object.build_id = of_type(libc::PT_NOTE).filter_map(part).find_map(build_id);
    }
    let table = core_image_table();
    object.table = object.part(table.start, table.len()).unwrap_or_default();
    search.found = Some(object);
    1
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    fn here() -> Object {
        object_with(build_identity as fn() -> _ as usize).unwrap()
    }

    fn contains(object: &Object, address: usize) -> bool {
        object.part(address, 1).is_some()
    }

    /// A note: its type, its owner and what it says, padded.
    fn note(kind: u32, owner: &[u8], says: &[u8]) -> Vec<u8> {
        let lengths = [owner.len() as u32, says.len() as u32, kind].map(u32::to_ne_bytes);
        let padded = |part: &[u8]| [part, &[0; 3][..part.len().wrapping_neg() % 4]].concat();
        [lengths.concat(), padded(owner), padded(says)].concat()
    }

    #[test]
    fn constant_segments_hold_code_constants_and_the_table_and_nothing_that_changes() {
        static CONSTANT: [u32; 3] = [3, 1, 4];
        static VARIABLE: AtomicU32 = AtomicU32::new(1);
        let object = here();
        assert!(contains(&object, build_identity as fn() -> _ as usize), "code");
        assert!(contains(&object, (&raw const CONSTANT).addr()), "constants");
        assert!(!contains(&object, (&raw const VARIABLE).addr()), "what is written");
        assert_eq!(object.table.as_ptr().addr(), core_image_table().start);
        assert_eq!(object.table.len(), core_image_table().len());
    }

    #[test]
    fn an_object_is_found_by_an_address_inside_it() {
        // In the C library, which is another object and stays loaded.
        let elsewhere = libc::getpid as unsafe extern "C" fn() -> _ as usize;
        let (here, there) = (here(), object_with(elsewhere).unwrap());
        let table = core_image_table().start;
        assert!(contains(&there, elsewhere) && !contains(&there, table));
        assert!(contains(&here, table) && !contains(&here, elsewhere));
        assert_ne!(identity(&here), identity(&there));
        assert_eq!(identity(&here), *build_identity());
        assert!(object_with(0).is_none(), "an object was found at no address");
    }

    /// Whether linkers write one is their configuration; if this one did, it is found.
    #[test]
    fn the_build_id_of_this_program_is_found() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let word = |at: usize| u32::from_ne_bytes(program[at..at + 4].try_into().unwrap());
        let is_id = |at: &usize| {
            (word(*at), word(at + 8)) == (BUILD_ID.1.len() as u32, BUILD_ID.0)
                && program[at + 12..at + 16] == *BUILD_ID.1
                && (SHORTEST..=64).contains(&(word(at + 4) as usize))
        };
        // Notes are aligned to four bytes.
        let written = (0..program.len() - 16).step_by(4).find(is_id);
        let wanted = written.filter(|_| !cfg!(feature = "nightly"));
        let wanted = wanted.map(|at| &program[at + 16..][..word(at + 4) as usize]);
        assert_eq!(here().build_id, wanted);
    }

    #[test]
    fn builds_differ_in_their_build_id_their_closures_or_their_segments() {
        let of = |constant: &[&'static [u8]], build_id: Option<&'static [u8]>, table| {
            identity(&Object { constant: constant.to_vec(), build_id, table })
        };
        let (code, other): (&[u8], &[u8]) = (&[1, 2, 3], &[1, 2, 4]);
        let (id, other_id): (&[u8], &[u8]) = (&[1; 20], &[2; 20]);
        assert_eq!(of(&[code], None, &[]), of(&[code], None, &[]));
        assert_ne!(
            of(&[code], None, &[]),
            of(&[other], None, &[]),
            "without an id, each byte counts"
        );
        assert_ne!(of(&[&[1, 2], &[3]], None, &[]), of(&[&[1], &[2, 3]], None, &[]));
        assert_ne!(of(&[code], Some(id), &[]), of(&[code], Some(other_id), &[]));
        assert_ne!(of(&[code], Some(id), &[]), of(&[code, code], Some(id), &[]), "a given id");
        assert_ne!(of(&[code], Some(id), &[1]), of(&[code], Some(id), &[2]), "a given id");
        assert_ne!(of(&[code], Some(id), &[]), of(&[code], None, &[]));
        assert_eq!(of(&[code], Some(id), &[]), of(&[other], Some(id), &[]), "the linker hashed it");
    }

    #[test]
    #[should_panic(expected = "without a read-only segment")]
    fn an_object_without_constant_segments_has_no_identity() {
        identity(&Object::default());
    }

    #[test]
    fn a_build_id_is_found_among_notes_if_it_is_long_enough() {
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
        let endless = id.into_iter().enumerate();
        let endless = endless.map(|(at, byte)| if at < 8 { 0xff } else { byte }).collect();
        assert_eq!(found(&[endless]), None, "longer than any memory");
    }
}
