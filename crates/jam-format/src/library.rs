//! The form of a shared library, as far as a receiver must know it before the system's loader maps
//! it: that loader trusts its input, and ends the process where a file is shorter than it says.
//!
//! This finds mistakes: bytes that are something else, a file that was cut, another machine. It does not
//! make a library harmless. A library runs code when it is loaded, so who answers for it has been
//! asked before: digest and policy are the border of trust, not this.

use thiserror::Error;

use crate::Machine;

const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const SECTION_BYTES: usize = 64;
/// Segments that a library has at most: linkers make about ten.
const MAX_SEGMENTS: usize = 64;
/// Memory that a library takes at most, in bytes.
const MAX_MEMORY: u64 = 1 << 30;
/// No segment is aligned to more: the largest page of a supported machine, in bytes.
const MAX_PAGE: u64 = 1 << 21;

/// `e_type` of a shared library.
const ET_DYN: u16 = 3;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;

/// The bytes of a shared library: all that its header says is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Library<'a> {
    bytes: &'a [u8],
    machine: Machine,
}

/// Why bytes are not a shared library.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// They do not begin as an ELF file does.
    #[error(
        "not a shared library: it begins with {found:02x?}, expected the header of an ELF file"
    )]
    Magic {
        /// The first bytes, at most four.
        found: Vec<u8>,
    },
    /// It is of another class or byte order, or not a shared library.
    #[error("ELF file with {field} {found}, expected {expected}")]
    Kind {
        /// The field of its header.
        field: &'static str,
        /// Its value.
        found: u16,
        /// What it should be.
        expected: &'static str,
    },
    /// It ends before something that its header says it has.
    #[error("shared library of {len} bytes ends before its {part}: it was cut")]
    Truncated {
        /// Its length in bytes.
        len: usize,
        /// What is missing.
        part: &'static str,
    },
    /// A segment of it cannot be mapped.
    #[error("segment {index} of a shared library: expected {expected}")]
    Segment {
        /// Which of the segments.
        index: usize,
        /// What was expected.
        expected: &'static str,
    },
}

impl<'a> Library<'a> {
    /// Checks `bytes`, which only this process may be able to change.
    ///
    /// # Errors
    /// [`LibraryError`], which says what they lack to be a shared library.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, LibraryError> {
        if !bytes.starts_with(b"\x7fELF") {
            return Err(LibraryError::Magic { found: bytes[..bytes.len().min(4)].to_vec() });
        }
        let truncated = |part| LibraryError::Truncated { len: bytes.len(), part };
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or_else(|| truncated("header"))?;
        let kind = |field, found, expected| LibraryError::Kind { field, found, expected };
        for (at, field, expected) in
            [(4, "class", (2, "2 (64 bits)")), (5, "byte order", (1, "1 (little-endian)"))]
        {
            if header[at] != expected.0 {
                return Err(kind(field, header[at].into(), expected.1));
            }
        }
        let what = u16_at(header, 16);
        if what != ET_DYN {
            return Err(kind("type", what, "3 (a shared library)"));
        }
        let machine = match u16_at(header, 18) {
            62 => Machine::X86_64,
            183 => Machine::Aarch64,
            other => return Err(kind("machine", other, "62 (x86_64) or 183 (aarch64)")),
        };
        let library = Self { bytes, machine };
        let (size, count) = (u16_at(header, 54), usize::from(u16_at(header, 56)));
        if usize::from(size) != SEGMENT_BYTES {
            return Err(kind("segment size", size, "56"));
        }
        if count == 0 || count > MAX_SEGMENTS {
            return Err(kind("segment count", count as u16, "1 to 64"));
        }
        let table = library.part(u64_at(header, 32), count * SEGMENT_BYTES);
        let table = table.ok_or_else(|| truncated("table of segments"))?;
        library.check_segments(table.as_chunks().0)?;
        // The loader does not need sections, but they are where a file ends.
        let (size, count) = (usize::from(u16_at(header, 58)), usize::from(u16_at(header, 60)));
        if count > 0 && library.part(u64_at(header, 40), count * size.max(SECTION_BYTES)).is_none()
        {
            return Err(truncated("table of sections"));
        }
        Ok(library)
    }

    fn check_segments(&self, segments: &[[u8; SEGMENT_BYTES]]) -> Result<(), LibraryError> {
        let (mut loads, mut dynamics) = (0, 0);
        for (index, segment) in segments.iter().enumerate() {
            let wrong = |expected| Err(LibraryError::Segment { index, expected });
            let (offset, address) = (u64_at(segment, 8), u64_at(segment, 16));
            let (in_file, in_memory) = (u64_at(segment, 32), u64_at(segment, 40));
            let kind = u32_at(segment, 0);
            loads += usize::from(kind == PT_LOAD);
            dynamics += usize::from(kind == PT_DYNAMIC);
            if !matches!(kind, PT_LOAD | PT_DYNAMIC) {
                continue;
            }
            if usize::try_from(in_file).ok().and_then(|len| self.part(offset, len)).is_none() {
                let part = if kind == PT_LOAD { "code and data" } else { "dynamic section" };
                return Err(LibraryError::Truncated { len: self.bytes.len(), part });
            }
            if in_file > in_memory {
                return wrong("no more bytes in the file than in memory");
            }
            if address.checked_add(in_memory).is_none_or(|end| end > MAX_MEMORY) {
                return wrong("an end below 1 GiB");
            }
            let align = u64_at(segment, 48);
            if kind == PT_LOAD
                && (!align.is_power_of_two()
                    || align > MAX_PAGE
                    || offset % align != address % align)
            {
                return wrong("an alignment that file and memory share");
            }
        }
        let index = segments.len();
        match (loads, dynamics) {
            (1.., 1) => Ok(()),
            (0, _) => Err(LibraryError::Segment { index, expected: "one that is loaded" }),
            _ => Err(LibraryError::Segment { index, expected: "one dynamic section" }),
        }
    }

    /// The machine that it is for.
    pub const fn machine(&self) -> Machine {
        self.machine
    }

    /// Its bytes.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn part(&self, offset: u64, len: usize) -> Option<&'a [u8]> {
        self.bytes.get(usize::try_from(offset).ok()?..)?.get(..len)
    }
}

fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// The `M` bytes at `at`, which are there.
fn array<const N: usize, const M: usize>(bytes: &[u8; N], at: usize) -> [u8; M] {
    *bytes[at..].first_chunk().expect("a field is inside its record")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A library of two segments, without any code.
    pub(crate) fn library() -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(256, 0);
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(16, &ET_DYN.to_le_bytes());
        put(18, &62u16.to_le_bytes());
        put(32, &64u64.to_le_bytes());
        put(54, &56u16.to_le_bytes());
        put(56, &2u16.to_le_bytes());
        for (at, kind, offset, len, align) in
            [(64, PT_LOAD, 0u64, 256u64, 4096u64), (120, PT_DYNAMIC, 176, 16, 8)]
        {
            put(at, &kind.to_le_bytes());
            put(at + 8, &offset.to_le_bytes());
            put(at + 16, &offset.to_le_bytes());
            put(at + 32, &len.to_le_bytes());
            put(at + 40, &len.to_le_bytes());
            put(at + 48, &align.to_le_bytes());
        }
        put(40, &192u64.to_le_bytes());
        put(58, &64u16.to_le_bytes());
        put(60, &1u16.to_le_bytes());
        bytes
    }

    /// What is wrong with [`library`] when `part` is at `at`.
    fn error(at: usize, part: &[u8]) -> String {
        let mut bytes = library();
        bytes[at..at + part.len()].copy_from_slice(part);
        Library::parse(&bytes).map_or_else(|error| error.to_string(), |_| "none".to_owned())
    }

    #[test]
    fn a_whole_library_is_one_and_no_part_of_it() {
        let bytes = library();
        let parsed = Library::parse(&bytes).unwrap();
        assert_eq!((parsed.machine(), parsed.bytes()), (Machine::X86_64, &bytes[..]));
        for len in 0..bytes.len() {
            let error = Library::parse(&bytes[..len]).unwrap_err().to_string();
            let expected = if len < 4 { "not a shared library" } else { "it was cut" };
            assert!(error.contains(expected), "{len}: {error}");
        }
        let own = std::fs::read(std::env::current_exe().expect("this program")).expect("its file");
        assert_eq!(Library::parse(&own).map(|own| Some(own.machine())), Ok(Machine::CURRENT));
    }

    #[test]
    fn errors_name_the_field() {
        assert!(
            error(0, b"#!/b").starts_with("not a shared library: it begins with [23, 21, 2f, 62]")
        );
        assert_eq!(error(4, &[1]), "ELF file with class 1, expected 2 (64 bits)");
        assert_eq!(error(5, &[2]), "ELF file with byte order 2, expected 1 (little-endian)");
        assert_eq!(error(16, &[1]), "ELF file with type 1, expected 3 (a shared library)");
        let machine = "ELF file with machine 243, expected 62 (x86_64) or 183 (aarch64)";
        assert_eq!(error(18, &[243]), machine);
        assert_eq!(error(18, &[183]), "none");
        assert_eq!(error(54, &[32]), "ELF file with segment size 32, expected 56");
        assert_eq!(error(56, &[0]), "ELF file with segment count 0, expected 1 to 64");
        assert_eq!(error(56, &[65]), "ELF file with segment count 65, expected 1 to 64");
        let cut = |part| format!("shared library of 256 bytes ends before its {part}: it was cut");
        assert_eq!(error(32, &[200]), cut("table of segments"));
        assert_eq!(error(40, &[193]), cut("table of sections"));
        assert_eq!(error(64 + 32, &[1, 1]), cut("code and data"));
        assert_eq!(error(120 + 8, &[0xff; 8]), cut("dynamic section"));
        let segment = |expected| format!("segment 0 of a shared library: expected {expected}");
        assert_eq!(error(64 + 40, &[9, 0]), segment("no more bytes in the file than in memory"));
        assert_eq!(error(64 + 16, &[0xff; 8]), segment("an end below 1 GiB"));
        assert_eq!(error(64 + 48, &[3]), segment("an alignment that file and memory share"));
        assert_eq!(error(64 + 16, &[8]), segment("an alignment that file and memory share"));
        assert!(error(64, &[0]).ends_with("expected one that is loaded"));
        assert!(error(120, &[1]).ends_with("expected one dynamic section"));
        assert!(error(120, &[7]).ends_with("expected one dynamic section"));
    }
}
