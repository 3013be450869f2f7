//! A package: the elements of one folder of sources, as a file. All numbers are little-endian.
//!
//! ```text
//!  0 magic "JAMP"     4 version u16 (2)   6 elements u16
//!  8 content length u32 (from the start of the file)   12 signature block length u32 (0: none)
//! 16 length of the package's name u8  17 zeros, 3
//! 20 length of the types u32   24 digest of the types 16
//! 40 elements: { kind u8, machine u8, id u16, offset u32, length u32, digest 16 } each
//!    lengths of the elements' names: u8 each
//!    names: the package's, the elements'
//!    for each element: zeros up to a multiple of 16, its bytes
//!    if there are types: zeros up to a multiple of 16, the text of the types (`types.rs`)
//!    the signature block (`signature.rs`), which signs all before the elements' bytes
//! ```
//!
//! Elements are sorted by id and machine. Ids count from 0 in the order of names; the builds of one
//! element for several machines have its id and name. A package has one encoding.

use crate::table::{
    BLOCK_LENGTH, Cut, ELEMENT_BYTES, HEADER_BYTES, MAGIC, PAD, Table, TableEntry, VERSION,
};
use crate::types::{self, NewFunction, Types};
use crate::{Digest, ElementKind, MAX_PACKAGE_BYTES, Machine, PackageError, Parsed};

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

/// A package whose bytes have been checked, with all of its elements.
#[derive(Clone, Debug)]
pub struct Package<'a> {
    bytes: &'a [u8],
    table: Table<'a>,
    elements: Vec<PackageElement<'a>>,
    types: Types<'a>,
}

impl<'a> Package<'a> {
    /// Checks `bytes`, which only this process may be able to change. The signature block is not
    /// looked at.
    ///
    /// # Errors
    /// [`PackageError`], which says what they lack to be a package.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PackageError> {
        if bytes.len() > MAX_PACKAGE_BYTES {
            return Err(PackageError::TooLong { len: bytes.len() });
        }
        let table = Table::parse(bytes)?;
        let (content, all) = (table.content, table.content + table.block);
        if all != bytes.len() {
            return Err(PackageError::Length { len: bytes.len(), expected: all });
        }
        let mut cut = Cut { bytes: &bytes[..content], at: table.bytes().len() };
        let mut elements = Vec::with_capacity(table.entries().len());
        for (index, entry) in table.entries().iter().enumerate() {
            cut.pad()?;
            let &TableEntry { kind, machine, id, name, digest, len, .. } = entry;
            let bytes = cut.take(len)?;
            check(index, entry, bytes)?;
            elements.push(PackageElement { kind, machine, id, name, digest, bytes });
        }
        if table.types > 0 {
            cut.pad()?;
        }
        let text = cut.take(table.types)?;
        if Digest::of(text) != table.types_digest {
            return Err(PackageError::Types { line: 1, expected: "the digest of its text" });
        }
        let types = Types::parse(text, table.entries())?;
        Ok(Self { bytes, table, elements, types })
    }

    /// Its name.
    pub const fn name(&self) -> &'a str {
        self.table.name()
    }

    /// Its table.
    pub const fn table(&self) -> &Table<'a> {
        &self.table
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

    /// The types of its functions, as text for people; there may be none. A signature covers them.
    pub const fn types(&self) -> Types<'a> {
        self.types
    }

    /// All of it but the signature block.
    pub fn content(&self) -> &'a [u8] {
        &self.bytes[..self.table.content]
    }

    /// The signature block, not checked; empty if the package is not signed.
    pub fn signature_block(&self) -> &'a [u8] {
        &self.bytes[self.table.content..]
    }
}

/// Checks that `bytes` are the element that the table says.
fn check(index: usize, entry: &TableEntry<'_>, bytes: &[u8]) -> Result<(), PackageError> {
    let wrong = |expected| Err(PackageError::Element { index, expected });
    if Digest::of(bytes) != entry.digest {
        return Err(PackageError::Changed { index });
    }
    if entry.kind == ElementKind::Jam {
        let blob = Parsed::parse(bytes);
        let blob = blob.map_err(|source| PackageError::Blob { index, source })?;
        if (blob.machine(), blob.name()) != (entry.machine, entry.name) {
            return wrong("machine and name of its blob");
        }
    }
    Ok(())
}

/// The bytes of a package without a signature, with these elements in any order.
///
/// # Errors
/// [`PackageError`], if [`Package::parse`] would reject them.
pub fn encode_package(name: &str, elements: &[NewElement<'_>]) -> Result<Vec<u8>, PackageError> {
    encode_typed_package(name, elements, &[])
}

/// As [`encode_package`], with the types of functions of these elements; of two lines of one function
/// it takes one. It leaves out functions whose text a package cannot have: their names and types are for
/// people, and code works without them.
///
/// # Errors
/// [`PackageError`], if [`Package::parse`] would reject them.
pub fn encode_typed_package(
    name: &str,
    elements: &[NewElement<'_>],
    functions: &[NewFunction<'_>],
) -> Result<Vec<u8>, PackageError> {
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
    let mut ids = Vec::new();
    for element in &elements {
        id += u16::from(before.is_some_and(|before| before != element.name));
        before = Some(element.name);
        ids.push((element.name, id));
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
    let id_of = |name: &str| ids.iter().find(|(known, _)| *known == name).map(|(_, id)| *id);
    let types = types::encode(functions, id_of)?;
    if !types.is_empty() {
        contents.resize(contents.len() + at.next_multiple_of(PAD) - at, 0);
        at = at.next_multiple_of(PAD) + types.len();
        contents.extend_from_slice(types.as_bytes());
    }
    if at > MAX_PACKAGE_BYTES {
        return Err(PackageError::TooLong { len: at });
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes.extend_from_slice(&(at as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&[len(name)?, 0, 0, 0]);
    bytes.extend_from_slice(&(types.len() as u32).to_le_bytes());
    bytes.extend_from_slice(Digest::of(types.as_bytes()).as_bytes());
    bytes.extend([records, lens, names, contents].concat());
    Package::parse(&bytes)?;
    Ok(bytes)
}

/// The bytes of a package with a signature block in place of the one that it has.
///
/// # Errors
/// [`PackageError`], if it is too long then.
pub fn sign_package(package: &Package<'_>, block: &[u8]) -> Result<Vec<u8>, PackageError> {
    let len = package.content().len() + block.len();
    if len > MAX_PACKAGE_BYTES {
        return Err(PackageError::TooLong { len });
    }
    let mut bytes = [package.content(), block].concat();
    bytes[BLOCK_LENGTH].copy_from_slice(&(block.len() as u32).to_le_bytes());
    Ok(bytes)
}
