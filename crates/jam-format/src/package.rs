//! A package: the elements of one folder of sources, as a file. All numbers are little-endian.
//!
//! ```text
//!  0 magic "JAMP"     4 version u16   6 elements u16
//!  8 content length u32 (from the start of the file)   12 signature block length u32 (0: none)
//! 16 length of the package's name u8  17 zeros, 3
//! 20 elements: { kind u8, machine u8, id u16, offset u32, length u32, digest 16 } each
//!    lengths of the elements' names: u8 each
//!    names: the package's, the elements'
//!    for each element: zeros up to a multiple of 16, its bytes
//!    the signature block, which signs the content
//! ```
//!
//! Elements are sorted by id and machine. Ids count from 0 in the order of names; the builds of one
//! element for several machines have its id and name. A package has one encoding.

use thiserror::Error;

use crate::{BlobError, Digest, Machine, Parsed};

const MAGIC: [u8; 4] = *b"JAMP";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 20;
const ELEMENT_BYTES: usize = 28;
const PAD: usize = 16;
/// The length of the longest package, in bytes.
pub const MAX_PACKAGE_BYTES: usize = 64 << 20;

/// What an element of a package is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ElementKind {
    /// A jam: its bytes are a blob.
    Jam = 1,
    /// A ried: its bytes are a shared library.
    Ried = 2,
}

/// An element of a package, for one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackageElement<'a> {
    /// What it is.
    pub kind: ElementKind,
    /// The machine that it is for.
    pub machine: Machine,
    /// Its id in the package.
    pub id: u16,
    /// Its name.
    pub name: &'a str,
    /// The digest of its bytes.
    pub digest: Digest,
    /// A blob, or a shared library.
    pub bytes: &'a [u8],
}

/// An element to be written; its id follows from its name.
#[derive(Clone, Copy, Debug)]
pub struct NewElement<'a> {
    /// What it is.
    pub kind: ElementKind,
    /// The machine that it is for.
    pub machine: Machine,
    /// Its name.
    pub name: &'a str,
    /// A blob, or a shared library.
    pub bytes: &'a [u8],
}

/// Why bytes are not a package.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PackageError {
    /// They are too few, too many, or not as many as its header says.
    #[error("package of {len} bytes, expected {expected} by its header")]
    Length {
        /// How many there are.
        len: usize,
        /// How many there should be.
        expected: usize,
    },
    /// It exceeds the limit.
    #[error("package of {len} bytes, expected at most {MAX_PACKAGE_BYTES}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// They do not begin as a package does.
    #[error("not a package: it begins with {found:02x?}, expected \"JAMP\"")]
    Magic {
        /// How they begin.
        found: [u8; 4],
    },
    /// It is of another version.
    #[error("package of version {found}, expected {VERSION}")]
    Version {
        /// Its version.
        found: u16,
    },
    /// A field of an element is wrong.
    #[error("element {index} of a package: expected {expected}")]
    Element {
        /// Which of the elements.
        index: usize,
        /// What was expected.
        expected: &'static str,
    },
    /// An element that is a jam is not a blob.
    #[error("element {index} of a package is not a jam")]
    Blob {
        /// Which of the elements.
        index: usize,
        /// Why.
        #[source]
        source: BlobError,
    },
    /// A name has other than 1 to 255 printable ASCII characters, or padding is not zero.
    #[error("byte {at} of a package, expected {expected}")]
    Byte {
        /// Its offset.
        at: usize,
        /// What was expected.
        expected: &'static str,
    },
    /// It has more elements than its header can count. Only when writing.
    #[error("package of {count} elements, expected at most 65535")]
    TooMany {
        /// How many.
        count: usize,
    },
}

/// A package whose bytes have been checked, with all of its elements.
#[derive(Clone, Debug)]
pub struct Package<'a> {
    bytes: &'a [u8],
    content: usize,
    name: &'a str,
    elements: Vec<PackageElement<'a>>,
}

impl<'a> Package<'a> {
    /// Checks `bytes`, which only this process may be able to change.
    ///
    /// # Errors
    /// [`PackageError`], which says what they lack to be a package.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PackageError> {
        let length = |expected| PackageError::Length { len: bytes.len(), expected };
        let (header, _) =
            bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(|| length(HEADER_BYTES))?;
        if bytes.len() > MAX_PACKAGE_BYTES {
            return Err(PackageError::TooLong { len: bytes.len() });
        }
        let found = array(header, 0);
        if found != MAGIC {
            return Err(PackageError::Magic { found });
        }
        let version = u16::from_le_bytes(array(header, 4));
        if version != VERSION {
            return Err(PackageError::Version { found: version });
        }
        let content = u32::from_le_bytes(array(header, 8)) as usize;
        let all = content.saturating_add(u32::from_le_bytes(array(header, 12)) as usize);
        if all != bytes.len() {
            return Err(length(all));
        }
        let mut cut = Cut { bytes: &bytes[..content], at: HEADER_BYTES };
        check_zero(&header[17..], 17)?;
        let count = usize::from(u16::from_le_bytes(array(header, 6)));
        let records = cut.take(count * ELEMENT_BYTES)?.as_chunks::<ELEMENT_BYTES>().0;
        let name_lens = cut.take(count)?;
        let name = cut.name(header[16].into())?;
        let mut elements = Vec::with_capacity(count);
        for (record, len) in records.iter().zip(name_lens) {
            let name = cut.name(usize::from(*len))?;
            elements.push((record, name));
        }
        let mut package = Self { bytes, content, name, elements: Vec::with_capacity(count) };
        for (index, (record, name)) in elements.into_iter().enumerate() {
            let wrong = |expected| PackageError::Element { index, expected };
            cut.pad()?;
            let (offset, len) = (u32_at(record, 4) as usize, u32_at(record, 8) as usize);
            if offset != cut.at {
                return Err(wrong("its bytes behind those of the one before"));
            }
            let element = PackageElement {
                kind: match record[0] {
                    1 => ElementKind::Jam,
                    2 => ElementKind::Ried,
                    _ => return Err(wrong("a jam (1) or a ried (2)")),
                },
                machine: Machine::from_number(record[1])
                    .ok_or_else(|| wrong("a machine, 1 (x86_64) or 2 (aarch64)"))?,
                id: u16::from_le_bytes(array(record, 2)),
                name,
                digest: Digest::from_bytes(array(record, 12)),
                bytes: cut.take(len)?,
            };
            package.add(index, element)?;
        }
        if cut.at != content {
            return Err(PackageError::Length { len: content, expected: cut.at });
        }
        Ok(package)
    }

    /// Adds an element behind the others, if it may be there.
    fn add(&mut self, index: usize, element: PackageElement<'a>) -> Result<(), PackageError> {
        let wrong = |expected| Err(PackageError::Element { index, expected });
        let is_next = match self.elements.last() {
            None => element.id == 0,
            Some(before) if before.id == element.id => {
                before.name == element.name
                    && before.kind == element.kind
                    && before.machine < element.machine
            }
            Some(before) => {
                before.id.checked_add(1) == Some(element.id) && before.name < element.name
            }
        };
        if !is_next {
            return wrong("ids from 0 on in the order of names, and each machine once");
        }
        if Digest::of(element.bytes) != element.digest {
            return wrong("the digest of its bytes");
        }
        if element.kind == ElementKind::Jam {
            let blob = Parsed::parse(element.bytes);
            let blob = blob.map_err(|source| PackageError::Blob { index, source })?;
            if (blob.machine(), blob.name()) != (element.machine, element.name) {
                return wrong("machine and name of its blob");
            }
        }
        self.elements.push(element);
        Ok(())
    }

    /// Its name.
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// Its elements, sorted by id and machine.
    pub fn elements(&self) -> &[PackageElement<'a>] {
        &self.elements
    }

    /// The element with this id for a machine.
    pub fn element(&self, id: u16, machine: Machine) -> Option<&PackageElement<'a>> {
        let at = self.elements.binary_search_by_key(&(id, machine), |e| (e.id, e.machine)).ok()?;
        Some(&self.elements[at])
    }

    /// What a signature covers.
    pub fn content(&self) -> &'a [u8] {
        &self.bytes[..self.content]
    }

    /// The signature block, not checked; empty if the package is not signed.
    pub fn signature_block(&self) -> &'a [u8] {
        &self.bytes[self.content..]
    }
}

/// The bytes of a package without a signature, with these elements in any order.
///
/// # Errors
/// [`PackageError`], if [`Package::parse`] would reject them.
pub fn encode_package(name: &str, elements: &[NewElement<'_>]) -> Result<Vec<u8>, PackageError> {
    let mut elements = elements.to_vec();
    elements.sort_by_key(|element| (element.name, element.machine));
    let len = |name: &str| {
        let expected = "a name of 1 to 255 printable ASCII characters";
        u8::try_from(name.len()).map_err(|_| PackageError::Byte { at: HEADER_BYTES, expected })
    };
    let count = u16::try_from(elements.len());
    let count = count.map_err(|_| PackageError::TooMany { count: elements.len() })?;
    let mut lens = Vec::new();
    let mut names = name.as_bytes().to_vec();
    for element in &elements {
        lens.push(len(element.name)?);
        names.extend_from_slice(element.name.as_bytes());
    }
    let mut at = HEADER_BYTES + elements.len() * (ELEMENT_BYTES + 1) + names.len();
    let (mut records, mut contents) = (Vec::new(), Vec::new());
    let (mut id, mut before) = (0_u16, None);
    for element in &elements {
        id += u16::from(before.is_some_and(|before| before != element.name));
        before = Some(element.name);
        let start = at.next_multiple_of(PAD);
        contents.resize(contents.len() + start - at, 0);
        contents.extend_from_slice(element.bytes);
        at = start + element.bytes.len();
        if at > MAX_PACKAGE_BYTES {
            return Err(PackageError::TooLong { len: at });
        }
        records.extend_from_slice(&[element.kind as u8, element.machine as u8]);
        records.extend_from_slice(&id.to_le_bytes());
        records.extend_from_slice(&(start as u32).to_le_bytes());
        records.extend_from_slice(&(element.bytes.len() as u32).to_le_bytes());
        records.extend_from_slice(Digest::of(element.bytes).as_bytes());
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes.extend_from_slice(&(at as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&[len(name)?, 0, 0, 0]);
    bytes.extend([records, lens, names, contents].concat());
    Package::parse(&bytes)?;
    Ok(bytes)
}

/// The bytes of a package with a signature block in place of the one that it has.
///
/// # Errors
/// [`PackageError`], if it is too long then.
pub fn sign_package(package: &Package<'_>, block: &[u8]) -> Result<Vec<u8>, PackageError> {
    let len = package.content + block.len();
    if len > MAX_PACKAGE_BYTES {
        return Err(PackageError::TooLong { len });
    }
    let mut bytes = [package.content(), block].concat();
    bytes[12..16].copy_from_slice(&(block.len() as u32).to_le_bytes());
    Ok(bytes)
}

/// Takes one part after the other.
struct Cut<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cut<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], PackageError> {
        let end = self.at.saturating_add(len);
        let part = self.bytes.get(self.at..end);
        self.at = end;
        part.ok_or(PackageError::Length { len: self.bytes.len(), expected: end })
    }

    fn name(&mut self, len: usize) -> Result<&'a str, PackageError> {
        let expected = "a name of 1 to 255 printable ASCII characters";
        let wrong = PackageError::Byte { at: self.at, expected };
        let name = self.take(len)?;
        let is_name = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
        str::from_utf8(name).ok().filter(|_| is_name).ok_or(wrong)
    }

    fn pad(&mut self) -> Result<(), PackageError> {
        let start = self.at;
        check_zero(self.take(start.next_multiple_of(PAD) - start)?, start)
    }
}

fn check_zero(bytes: &[u8], start: usize) -> Result<(), PackageError> {
    match bytes.iter().position(|byte| *byte != 0) {
        Some(index) => Err(PackageError::Byte { at: start + index, expected: "0" }),
        None => Ok(()),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// The `N` bytes at `at`, which are there.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("a field is inside its record")
}
