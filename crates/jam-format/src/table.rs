//! The table of a package: its header, and what its elements are, without their bytes.
//!
//! It has the digest of each element, so one signature covers them all. It is a few hundred bytes,
//! and a receiver that gets one jam of a package checks the signature with it alone
//! ([`Proof`](crate::Proof)).

pub(crate) use crate::package_error::VERSION;
use crate::{Digest, MAX_PACKAGE_BYTES, MAX_TYPES_BYTES, Machine, PackageError};

pub(crate) const MAGIC: [u8; 4] = *b"JAMP";
pub(crate) const HEADER_BYTES: usize = 40;
pub(crate) const ELEMENT_BYTES: usize = 28;
pub(crate) const PAD: usize = 16;
/// The bytes of the header with the length of the signature block, which no signature covers.
pub(crate) const BLOCK_LENGTH: std::ops::Range<usize> = 12..16;

/// What an element of a package is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ElementKind {
    /// A jam: its bytes are a blob.
    Jam = 1,
    /// A ried: its bytes are a shared library.
    Ried = 2,
}

/// An element of a package, as its table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry<'a> {
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
    /// Where its bytes begin in the package.
    pub(crate) offset: usize,
    /// How many they are.
    pub(crate) len: usize,
}

/// The table of a package, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table<'a> {
    bytes: &'a [u8],
    name: &'a str,
    entries: Vec<TableEntry<'a>>,
    /// The length of the package up to its signature block, and that of the block.
    pub(crate) content: usize,
    pub(crate) block: usize,
    /// The length of the text of types, which ends the content, and its digest.
    pub(crate) types: usize,
    pub(crate) types_digest: Digest,
}

impl<'a> Table<'a> {
    /// The table that `bytes` begin with.
    ///
    /// # Errors
    /// [`PackageError`], which says what they lack.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, PackageError> {
        if bytes.is_empty() {
            return Err(PackageError::Empty);
        }
        let found = &bytes[..bytes.len().min(MAGIC.len())];
        if !MAGIC.starts_with(found) {
            return Err(PackageError::Magic { found: found.to_vec() });
        }
        let too_few = PackageError::Length { len: bytes.len(), expected: HEADER_BYTES };
        let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(too_few)?;
        let version = u16::from_le_bytes(array(header, 4));
        if version != VERSION {
            return Err(PackageError::Version { found: version });
        }
        let (content, block) = (u32_at(header, 8) as usize, u32_at(header, BLOCK_LENGTH.start));
        let block = block as usize;
        if content + block > MAX_PACKAGE_BYTES {
            return Err(PackageError::TooLong { len: content + block });
        }
        check_zero(&header[17..20], 17)?;
        let (types, types_digest) =
            (u32_at(header, 20) as usize, Digest::from_bytes(array(header, 24)));
        if types > MAX_TYPES_BYTES {
            return Err(PackageError::Types { line: 1, expected: "at most 1 MiB of text" });
        }
        let count = usize::from(u16::from_le_bytes(array(header, 6)));
        let mut cut = Cut { bytes: &bytes[..bytes.len().min(content)], at: HEADER_BYTES };
        let records = cut.take(count * ELEMENT_BYTES)?.as_chunks::<ELEMENT_BYTES>().0;
        let name_lens = cut.take(count)?;
        let name = cut.name(header[16].into())?;
        let mut entries = Vec::with_capacity(count);
        for (record, len) in records.iter().zip(name_lens) {
            entries.push((record, cut.name(usize::from(*len))?));
        }
        let bytes = &bytes[..cut.at];
        let mut end = cut.at;
        let entries_here = Vec::with_capacity(count);
        let mut table =
            Self { bytes, name, entries: entries_here, content, block, types, types_digest };
        for (index, (record, name)) in entries.into_iter().enumerate() {
            let entry = entry(index, record, name)?;
            let wrong = |expected| Err(PackageError::Element { index, expected });
            if entry.offset != end.next_multiple_of(PAD) {
                return wrong("its bytes after those of the previous one");
            }
            if !table.entries.last().is_none_or(|before| is_next(before, &entry))
                || table.entries.is_empty() && entry.id != 0
            {
                return wrong("ids from 0 on in the order of names, and each machine once");
            }
            end = entry.offset + entry.len;
            table.entries.push(entry);
        }
        if types > 0 {
            end = end.next_multiple_of(PAD) + types;
        }
        if end != content {
            return Err(PackageError::Length { len: content, expected: end });
        }
        Ok(table)
    }

    /// The name of the package.
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// Its elements, sorted by id and machine.
    pub fn entries(&self) -> &[TableEntry<'a>] {
        &self.entries
    }

    /// Its bytes, which end where the elements begin.
    pub(crate) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The hash of its bytes, as they are without a signature: what a signature covers.
    pub(crate) fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.bytes[..BLOCK_LENGTH.start]);
        hasher.update(&[0; 4]);
        hasher.update(&self.bytes[BLOCK_LENGTH.end..]);
        *hasher.finalize().as_bytes()
    }
}

fn entry<'a>(
    index: usize,
    record: &[u8; ELEMENT_BYTES],
    name: &'a str,
) -> Result<TableEntry<'a>, PackageError> {
    let wrong = |expected| PackageError::Element { index, expected };
    Ok(TableEntry {
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
        offset: u32_at(record, 4) as usize,
        len: u32_at(record, 8) as usize,
    })
}

/// Whether `entry` may follow `before`.
fn is_next(before: &TableEntry<'_>, entry: &TableEntry<'_>) -> bool {
    if before.id == entry.id {
        return before.name == entry.name
            && before.kind == entry.kind
            && before.machine < entry.machine;
    }
    before.id.checked_add(1) == Some(entry.id) && before.name < entry.name
}

/// Takes one part after the other.
pub(crate) struct Cut<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Cut<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], PackageError> {
        let end = self.at.saturating_add(len);
        let part = self.bytes.get(self.at..end);
        self.at = end;
        part.ok_or(PackageError::Length { len: self.bytes.len(), expected: end })
    }

    pub(crate) fn name(&mut self, len: usize) -> Result<&'a str, PackageError> {
        let expected = "a name of 1 to 255 printable ASCII characters";
        let wrong = PackageError::Byte { at: self.at, expected };
        let name = self.take(len)?;
        let is_name = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
        str::from_utf8(name).ok().filter(|_| is_name).ok_or(wrong)
    }

    pub(crate) fn pad(&mut self) -> Result<(), PackageError> {
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
