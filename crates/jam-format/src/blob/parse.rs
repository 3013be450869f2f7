//! Reading a blob that a peer sent.

use super::{
    BlobError, DATA_DISTANCE, ELEMENT_LIMIT, HEADER_BYTES, Import, MAGIC, MAX_ARGS_BYTES,
    MAX_BLOB_BYTES, MAX_REPLY_BYTES, NEEDS_PAGE, NameKind, PAD, RELOCATION_BYTES, Relocation,
    SLOT_BYTES,
};
use crate::{Features, Machine};

/// A blob whose bytes have been checked: every range is inside it, every name is printable, every
/// relocation points into text or data. Nothing is known about what its code does.
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'a> {
    bytes: &'a [u8],
    machine: Machine,
    header: &'a [u8; HEADER_BYTES],
    parts: Parts<'a>,
}

/// The parts after the header, as [the layout](super) has them.
#[derive(Clone, Copy, Debug)]
struct Parts<'a> {
    signatures: &'a [[u8; 8]],
    relocations: &'a [[u8; RELOCATION_BYTES]],
    name_lens: &'a [u8],
    name: &'a str,
    property: &'a str,
    import_names: &'a str,
    text: &'a [u8],
    data: &'a [u8],
}

impl<'a> Parsed<'a> {
    /// Checks `bytes`, which only this process may be able to change.
    ///
    /// # Errors
    /// [`BlobError`], which says what they lack to be a blob.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BlobError> {
        let Some((header, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(BlobError::needs_header(bytes.len()));
        };
        if bytes.len() > MAX_BLOB_BYTES {
            return Err(BlobError::TooLong { len: bytes.len() });
        }
        let found = array(header, 0);
        if found != MAGIC {
            return Err(BlobError::Magic { found });
        }
        let machine =
            Machine::from_number(header[4]).ok_or(BlobError::Machine { number: header[4] })?;
        if header[5] & !NEEDS_PAGE != 0 {
            return Err(BlobError::Flags { flags: header[5] });
        }
        let parts = Parts::split(bytes, header)?;
        let parsed = Self { bytes, machine, header, parts };
        parsed.check_header()?;
        parsed.check_imports()?;
        parsed.check_relocations()?;
        Ok(parsed)
    }

    /// How long the blob that `bytes` begin with says it is; `None` if they are too few.
    pub(crate) fn claimed_length(bytes: &[u8]) -> Option<usize> {
        let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        Some(u32::from_le_bytes(array(header, 52)) as usize)
    }

    /// All of its bytes.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The machine that its code is for.
    pub const fn machine(&self) -> Machine {
        self.machine
    }

    /// The features that the processor must have.
    pub fn features(&self) -> Features {
        Features::from_bits(u64::from_le_bytes(array(self.header, 24)))
    }

    /// The alignment that text needs in memory, in bytes: [`ARENA_UNIT`](super::ARENA_UNIT) or
    /// [`MAX_ALIGN`](super::MAX_ALIGN).
    pub const fn alignment(&self) -> usize {
        if self.header[5] & NEEDS_PAGE != 0 { super::MAX_ALIGN } else { super::ARENA_UNIT }
    }

    /// The name of the jam.
    pub const fn name(&self) -> &'a str {
        self.parts.name
    }

    /// The name of the property that it works on, if it does.
    pub const fn property(&self) -> Option<&'a str> {
        if self.parts.property.is_empty() { None } else { Some(self.parts.property) }
    }

    /// The offset in text at which it is entered.
    pub fn entry(&self) -> u32 {
        self.u32(16)
    }

    /// The hash of the types of property, arguments, payload and result.
    pub fn entry_signature(&self) -> u64 {
        u64::from_le_bytes(array(self.header, 32))
    }

    /// The size of the arguments in bytes; 0 if it takes none.
    pub fn args_bytes(&self) -> u32 {
        self.u32(40)
    }

    /// The size of an element of the payload in bytes; 0 if it takes no payload.
    pub fn element_bytes(&self) -> u32 {
        self.u32(44)
    }

    /// The size of the result in bytes.
    pub fn reply_bytes(&self) -> u32 {
        self.u32(48)
    }

    /// Its imports, sorted by name. The slot of the `i`th is at `8 * i` in data.
    pub fn imports(&self) -> impl ExactSizeIterator<Item = Import<'a>> + use<'a> {
        let mut names = self.parts.import_names;
        self.parts.signatures.iter().zip(self.parts.name_lens).map(move |(signature, len)| {
            let (name, rest) = names.split_at(usize::from(*len));
            names = rest;
            Import { name, signature: u64::from_le_bytes(*signature) }
        })
    }

    /// Its relocations, sorted by place.
    pub fn relocations(&self) -> impl ExactSizeIterator<Item = Relocation> + use<'a> {
        self.parts.relocations.iter().map(|bytes| Relocation {
            place: u32::from_le_bytes(array(bytes, 0)),
            value: u32::from_le_bytes(array(bytes, 4)),
        })
    }

    /// Machine code.
    pub const fn text(&self) -> &'a [u8] {
        self.parts.text
    }

    /// Read-only data, with the imports' slots in front.
    pub const fn data(&self) -> &'a [u8] {
        self.parts.data
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(array(self.header, at))
    }

    fn check_header(&self) -> Result<(), BlobError> {
        if !self.features().are_of(self.machine) {
            return Err(BlobError::Features { bits: self.features().bits() });
        }
        let (entry, text) = (self.entry(), self.u32(8));
        let is_instruction = self.machine == Machine::X86_64 || entry.is_multiple_of(4);
        if entry >= text || !is_instruction {
            return Err(BlobError::Entry { entry, text });
        }
        let limited = |bytes: u32, limit: usize| usize::try_from(bytes).is_ok_and(|b| b <= limit);
        if !limited(self.args_bytes(), MAX_ARGS_BYTES) {
            return Err(BlobError::Args { bytes: self.args_bytes() });
        }
        if !limited(self.element_bytes(), ELEMENT_LIMIT) {
            return Err(BlobError::Element { bytes: self.element_bytes() });
        }
        if !limited(self.reply_bytes(), MAX_REPLY_BYTES) {
            return Err(BlobError::Reply { bytes: self.reply_bytes() });
        }
        Ok(())
    }

    fn check_imports(&self) -> Result<(), BlobError> {
        let mut before = "";
        for (index, import) in self.imports().enumerate() {
            if import.name.is_empty() {
                return Err(BlobError::Name { of: NameKind::Import(index) });
            }
            if import.name <= before {
                return Err(BlobError::ImportOrder { index });
            }
            before = import.name;
        }
        let imports = self.parts.signatures.len();
        let Some(slots) = self.data().get(..imports * SLOT_BYTES) else {
            return Err(BlobError::Slots { data: self.u32(12), imports });
        };
        let start = self.bytes.len() - self.data().len();
        check_zero(slots, start)
    }

    fn check_relocations(&self) -> Result<(), BlobError> {
        let (text, data) = (self.u32(8), self.u32(12));
        let mut free = self.parts.signatures.len() * SLOT_BYTES;
        for (index, Relocation { place, value }) in self.relocations().enumerate() {
            let wrong = |why| Err(BlobError::Relocation { index, place, why });
            let at = usize::try_from(place).unwrap_or(usize::MAX);
            if !at.is_multiple_of(SLOT_BYTES) {
                return wrong("expected a multiple of 8");
            }
            if at < free {
                return wrong("expected a place after the imports and the previous relocation");
            }
            let Some(word) = self.data().get(at..).and_then(|rest| rest.first_chunk::<8>()) else {
                return wrong("expected a place in data");
            };
            if *word != [0; 8] {
                return wrong("expected the word to be 0");
            }
            let is_in_data = value.checked_sub(DATA_DISTANCE).is_some_and(|value| value <= data);
            if value > text && !is_in_data {
                return wrong("expected a value in text or data");
            }
            free = at + SLOT_BYTES;
        }
        Ok(())
    }
}

impl<'a> Parts<'a> {
    /// Cuts a blob into its parts, whose lengths its header has.
    fn split(bytes: &'a [u8], header: &[u8; HEADER_BYTES]) -> Result<Self, BlobError> {
        let u32_at = |at| u32::from_le_bytes(array(header, at)) as usize;
        let u16_at = |at| usize::from(u16::from_le_bytes(array(header, at)));
        if u32_at(52) != bytes.len() {
            return Err(BlobError::Length { len: bytes.len(), expected: u32_at(52) });
        }
        let mut cut = Cut { bytes, at: HEADER_BYTES };
        let imports = u16_at(6);
        let signatures = cut.take(imports * 8)?.as_chunks().0;
        let relocations = cut.take(u16_at(20) * RELOCATION_BYTES)?.as_chunks().0;
        let name_lens = cut.take(imports)?;
        let name = cut.name(header[22].into(), NameKind::Jam)?;
        if name.is_empty() {
            return Err(BlobError::Name { of: NameKind::Jam });
        }
        let property = cut.name(header[23].into(), NameKind::Property)?;
        let all_names = name_lens.iter().map(|len| usize::from(*len)).sum();
        let import_names = cut.name(all_names, NameKind::Import(0))?;
        cut.pad()?;
        let text = cut.take(u32_at(8))?;
        cut.pad()?;
        let data = cut.take(u32_at(12))?;
        if cut.at != bytes.len() {
            return Err(BlobError::Length { len: bytes.len(), expected: cut.at });
        }
        Ok(Self { signatures, relocations, name_lens, name, property, import_names, text, data })
    }
}

/// Takes one part after the other.
struct Cut<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cut<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], BlobError> {
        let end = self.at.saturating_add(len);
        let part = self.bytes.get(self.at..end);
        let truncated = BlobError::Truncated { len: self.bytes.len(), expected: end };
        self.at = end;
        part.ok_or(truncated)
    }

    fn name(&mut self, len: usize, of: NameKind) -> Result<&'a str, BlobError> {
        let name = self.take(len)?;
        let is_printable = name.iter().all(u8::is_ascii_graphic);
        let name = str::from_utf8(name).ok().filter(|_| is_printable);
        name.ok_or(BlobError::Name { of })
    }

    fn pad(&mut self) -> Result<(), BlobError> {
        let start = self.at;
        check_zero(self.take(start.next_multiple_of(PAD) - start)?, start)
    }
}

/// Checks that bytes, which begin at `start` of the blob, are zero.
fn check_zero(bytes: &[u8], start: usize) -> Result<(), BlobError> {
    match bytes.iter().position(|byte| *byte != 0) {
        Some(index) => Err(BlobError::Padding { at: start + index }),
        None => Ok(()),
    }
}

/// The `N` bytes at `at`, which are there.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("a field is inside its record")
}
