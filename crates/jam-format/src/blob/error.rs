//! What can be wrong with the bytes of a blob.

use std::fmt;

use thiserror::Error;

use super::{ELEMENT_LIMIT, HEADER_BYTES, MAX_ARGS_BYTES, MAX_BLOB_BYTES, MAX_REPLY_BYTES};

/// Why bytes are not a blob.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BlobError {
    /// They are too few.
    #[error("blob of {len} bytes, expected at least {expected}")]
    Truncated {
        /// How many there are.
        len: usize,
        /// How many its header implies, or a header has.
        expected: usize,
    },
    /// They are too many, or the lengths in the header sum up to something else.
    #[error("blob of {len} bytes, expected {expected} by its header")]
    Length {
        /// How many there are.
        len: usize,
        /// How many its header implies.
        expected: usize,
    },
    /// It exceeds the limit.
    #[error("blob of {len} bytes, expected at most {MAX_BLOB_BYTES}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// They do not begin as a blob does.
    #[error("not a blob: it begins with \"{}\", expected \"JAM3\"", found.escape_ascii())]
    Magic {
        /// How they begin.
        found: [u8; 4],
    },
    /// The number of the machine is unknown.
    #[error("machine {number} of a blob, expected 1 (x86_64) or 2 (aarch64)")]
    Machine {
        /// The number.
        number: u8,
    },
    /// A flag is unknown.
    #[error("flags {flags:#04x} of a blob, expected 0 or 1")]
    Flags {
        /// The flags.
        flags: u8,
    },
    /// A required feature has no name.
    #[error("required features {bits:#x} of a blob, expected only known ones")]
    Features {
        /// The features.
        bits: u64,
    },
    /// There is no text, or the entry is not in it.
    #[error("entry at {entry} of a blob's text of {text} bytes, expected an instruction in it")]
    Entry {
        /// The offset of the entry.
        entry: u32,
        /// The length of text in bytes.
        text: u32,
    },
    /// Data has no room for the imports' slots.
    #[error("data of {data} bytes in a blob, expected a slot of 8 for each of {imports} imports")]
    Slots {
        /// The length of data in bytes.
        data: u32,
        /// The number of imports.
        imports: usize,
    },
    /// A relocation is not where one can be, or points to nothing.
    #[error("relocation {index} of a blob, of the word at {place} in data: {why}")]
    Relocation {
        /// Which of the relocations.
        index: usize,
        /// Where in data it is.
        place: u32,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A name is missing, too long, or has other characters than printable ASCII.
    #[error("name of {of} in a blob: expected 1 to 255 printable ASCII characters")]
    Name {
        /// What it is the name of.
        of: NameKind,
    },
    /// Two imports are not in the order of their names.
    #[error("import {index} of a blob: expected a name that sorts after the previous one")]
    ImportOrder {
        /// Which of the imports.
        index: usize,
    },
    /// Padding is not zero.
    #[error("byte {at} of a blob is padding, expected 0")]
    Padding {
        /// Its offset.
        at: usize,
    },
    /// The arguments are too large.
    #[error("arguments of {bytes} bytes, expected at most {MAX_ARGS_BYTES}")]
    Args {
        /// Their size.
        bytes: u32,
    },
    /// An element of the payload is too large.
    #[error("payload elements of {bytes} bytes, expected at most {ELEMENT_LIMIT}")]
    Element {
        /// Its size.
        bytes: u32,
    },
    /// The result is too large.
    #[error("result of {bytes} bytes, expected at most {MAX_REPLY_BYTES}")]
    Reply {
        /// Its size.
        bytes: u32,
    },
    /// It has more of something than its header can count. Only when writing.
    #[error("{count} {what} of a jam, expected at most 65535")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
    },
}

impl BlobError {
    pub(super) fn needs_header(len: usize) -> Self {
        Self::Truncated { len, expected: HEADER_BYTES }
    }
}

/// What a name in a blob is the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// The jam.
    Jam,
    /// Its property.
    Property,
    /// The import with this number.
    Import(usize),
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jam => f.write_str("the jam"),
            Self::Property => f.write_str("the property"),
            Self::Import(index) => write!(f, "import {index}"),
        }
    }
}
