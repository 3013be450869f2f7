//! Writing a blob.

use super::{
    BlobError, HEADER_BYTES, Import, MAGIC, NEEDS_PAGE, NameKind, PAD, Parsed, Relocation,
};
use crate::{Features, Machine};

/// What a blob consists of.
#[derive(Clone, Debug)]
pub struct Blob<'a> {
    /// The machine that its code is for.
    pub machine: Machine,
    /// The features that the processor must have.
    pub features: Features,
    /// Whether text must be at a multiple of 4 KiB in memory.
    pub needs_page: bool,
    /// The name of the jam.
    pub name: &'a str,
    /// The name of the property that it works on, if it does.
    pub property: Option<&'a str>,
    /// The offset in text at which it is entered.
    pub entry: u32,
    /// The hash of the types of property, arguments, payload and result.
    pub entry_signature: u64,
    /// The size of the arguments in bytes; 0 if it takes none.
    pub args_bytes: u32,
    /// The size of an element of the payload in bytes; 0 if it takes no payload.
    pub element_bytes: u32,
    /// The size of the result in bytes.
    pub reply_bytes: u32,
    /// Its imports, sorted by name.
    pub imports: &'a [Import<'a>],
    /// Its relocations, sorted by place.
    pub relocations: &'a [Relocation],
    /// Machine code.
    pub text: &'a [u8],
    /// Read-only data, with a slot of 8 zeros for each import in front.
    pub data: &'a [u8],
}

impl<'a> Blob<'a> {
    /// Nothing, not even a name: a start to fill.
    pub const fn new(machine: Machine) -> Self {
        Self {
            machine,
            features: Features::NONE,
            needs_page: false,
            name: "",
            property: None,
            entry: 0,
            entry_signature: 0,
            args_bytes: 0,
            element_bytes: 0,
            reply_bytes: 0,
            imports: &[],
            relocations: &[],
            text: &[],
            data: &[],
        }
    }

    /// Its bytes.
    ///
    /// # Errors
    /// [`BlobError`], if [`Parsed::parse`] would reject them.
    pub fn encode(&self) -> Result<Vec<u8>, BlobError> {
        let property = self.property.unwrap_or_default();
        if self.property == Some("") {
            return Err(BlobError::Name { of: NameKind::Property });
        }
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.text.len() + self.data.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.push(self.machine as u8);
        bytes.push(if self.needs_page { NEEDS_PAGE } else { 0 });
        bytes.extend_from_slice(&count("imports", self.imports.len())?.to_le_bytes());
        bytes.extend_from_slice(&len(self.text)?.to_le_bytes());
        bytes.extend_from_slice(&len(self.data)?.to_le_bytes());
        bytes.extend_from_slice(&self.entry.to_le_bytes());
        bytes.extend_from_slice(&count("relocations", self.relocations.len())?.to_le_bytes());
        bytes.push(name_len(self.name, NameKind::Jam)?);
        bytes.push(name_len(property, NameKind::Property)?);
        bytes.extend_from_slice(&self.features.bits().to_le_bytes());
        bytes.extend_from_slice(&self.entry_signature.to_le_bytes());
        bytes.extend_from_slice(&self.args_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.element_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.reply_bytes.to_le_bytes());
        let total = bytes.len();
        bytes.extend_from_slice(&[0; 4]);
        self.imports.iter().for_each(|import| bytes.extend(import.signature.to_le_bytes()));
        for relocation in self.relocations {
            bytes.extend_from_slice(&relocation.place.to_le_bytes());
            bytes.extend_from_slice(&relocation.value.to_le_bytes());
        }
        for (index, import) in self.imports.iter().enumerate() {
            bytes.push(name_len(import.name, NameKind::Import(index))?);
        }
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.extend_from_slice(property.as_bytes());
        self.imports.iter().for_each(|import| bytes.extend_from_slice(import.name.as_bytes()));
        for part in [self.text, self.data] {
            bytes.resize(bytes.len().next_multiple_of(PAD), 0);
            bytes.extend_from_slice(part);
        }
        let all = len(&bytes)?.to_le_bytes();
        bytes[total..total + 4].copy_from_slice(&all);
        Parsed::parse(&bytes)?;
        Ok(bytes)
    }
}

fn count(what: &'static str, count: usize) -> Result<u16, BlobError> {
    u16::try_from(count).map_err(|_| BlobError::TooMany { what, count })
}

fn len(bytes: &[u8]) -> Result<u32, BlobError> {
    u32::try_from(bytes.len()).map_err(|_| BlobError::TooLong { len: bytes.len() })
}

fn name_len(name: &str, of: NameKind) -> Result<u8, BlobError> {
    u8::try_from(name.len()).map_err(|_| BlobError::Name { of })
}
