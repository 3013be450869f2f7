//! A blob: one jam for one machine, as bytes. All numbers are little-endian.
//!
//! ```text
//!  0 magic "JAM3"        4 machine u8   5 flags u8 (bit 0: needs 4 KiB alignment)   6 imports u16
//!  8 text length u32    12 data length u32
//! 16 entry u32 (offset in text)         20 relocations u16
//!                       22 length of the jam's name u8   23 length of the property's name u8 (0: none)
//! 24 required features u64
//! 32 entry signature u64
//! 40 args bytes u32 (0: none)           44 payload element bytes u32 (0: no payload)
//! 48 reply bytes u32                    52 total length u32
//! 56 imports:     signature u64 each
//!    relocations: { place in data u32, value u32 } each
//!    lengths of the imports' names: u8 each
//!    names: the jam's, the property's, the imports'
//!    zeros up to a multiple of 16, text
//!    zeros up to a multiple of 16, data
//! ```
//!
//! The code is linked for text at 0 and data at [`DATA_DISTANCE`]. A receiver places text at any
//! address `base` that is a multiple of [`ARENA_UNIT`] (of 4 KiB, if the flag says so), and data at
//! `base + DATA_DISTANCE`. Text may be executable and data read-only: nothing writes to either once
//! they are linked. Data begins with one slot of 8 bytes for each import, in their order, where the
//! receiver writes the import's address. At the place of each relocation it writes `base + value`.
//!
//! A blob has one encoding. Its imports are sorted by name and its relocations by place, and no two
//! are equal; padding, and the slots and places that the receiver overwrites, are zero.

mod error;
mod parse;
mod write;

pub use error::{BlobError, NameKind};
pub use parse::Parsed;
pub use write::Blob;

/// The first bytes of a blob.
pub(crate) const MAGIC: [u8; 4] = *b"JAM3";
/// The length of the header, in bytes: what comes before the first import.
pub const HEADER_BYTES: usize = 56;
/// The length of the longest blob, in bytes: with a frame's header it fits a message of 1 MiB.
pub const MAX_BLOB_BYTES: usize = (1 << 20) - (64 << 10);
/// The distance from text to data in memory, in bytes.
pub const DATA_DISTANCE: u32 = 1 << 20;
/// The alignment of text in memory, in bytes, and with it of data.
pub const ARENA_UNIT: usize = 64;
/// The alignment of text in memory for a blob whose flag asks for it, in bytes.
pub const MAX_ALIGN: usize = 4096;
/// The length of an import's slot in data, in bytes.
pub const SLOT_BYTES: usize = 8;
/// The largest result of a jam, in bytes.
pub const MAX_REPLY_BYTES: usize = 256;
/// The largest arguments of a jam, in bytes; what is longer is payload.
pub const MAX_ARGS_BYTES: usize = 4096;
/// The largest element of a payload, in bytes.
pub const ELEMENT_LIMIT: usize = 64 << 10;

/// The bit of the flags that asks for an alignment of [`MAX_ALIGN`].
pub(crate) const NEEDS_PAGE: u8 = 1;
/// What text and data are aligned to in the blob, in bytes.
pub(crate) const PAD: usize = 16;
/// The length of a relocation, in bytes.
pub(crate) const RELOCATION_BYTES: usize = 8;

/// A function that a jam imports: the receiver finds it by name, and compares the signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Import<'a> {
    /// Its name.
    pub name: &'a str,
    /// The hash of its parameter and result types.
    pub signature: u64,
}

/// A word of data that contains an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Where in data it is: a multiple of 8, after the imports' slots.
    pub place: u32,
    /// What it points to: an offset in text, or [`DATA_DISTANCE`] and an offset in data. Both may be
    /// the end.
    pub value: u32,
}
