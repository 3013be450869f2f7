//! Encoding of arguments and results.
//!
//! Layers that send bytes anyhow go past the codec altogether ([`PlainCall`](crate::PlainCall)).
//!
//! Numbers and `()` are *plain* (`plain.rs`): they travel as one word or nothing, past the codec,
//! so that a counter's request is one store. Everything else goes through serde, into the format
//! below. Small values are encoded in an array on the stack, larger ones spill into a vector (`spill.rs`); a
//! value is encoded once, because encoding a [`Trust`](crate::Trust) makes a new one.
//!
//! ```text
//!   header                                        body           records
//!   | body, bytes | fields mod 2^12 | trusts |    | values .. |  | home | property | id | ..
//!     u32           12 bits           20 bits                      u32    u32        u64
//! ```
//!
//! - Both ends are the same build, so the body describes nothing: integers are little-endian and of
//!   fixed size, lengths are `u32`, a field has no name. A variant is its index and a digest of its
//!   name.
//! - Vectors and slices of numbers are copied as blocks (`blocks.rs`), into the same bytes.
//! - Every element of a sequence and every entry of a map takes at least one byte, so a length that
//!   exceeds the bytes that are left is refused before anything is allocated for it.
//! - The header checks that `Deserialize` has read what `Serialize` wrote: all bytes of the body,
//!   and as many fields of structs and tuples. Attributes that only one of them follows
//!   (`skip_serializing`, `tag` on a struct, ...) would otherwise turn one value into another.
//! - Trusts are not in the body but in records after it, which only `trusts.rs` reads and writes:
//!   bytes that user code encodes cannot be decoded as a trust. A record is a trust: the one who
//!   has it last, the encoder of a value that fails, its sender, or the decoder, gives it back.
//! - Values may be nested [`NESTING`](primitive::limits::NESTING) deep, on both sides.

pub(crate) mod as_view;
#[allow(unsafe_code)] // What a generic type is, and its value as that type.
mod blocks;
mod decode;
mod encode;
mod encoded;
mod entries;
mod fault;
mod format;
mod in_buffer;
mod lend;
mod plain;
mod portable;
mod spill;
#[cfg(test)]
mod tests;
#[allow(unsafe_code)] // ASCII as a string.
mod text;
pub(crate) mod trusts;
mod undelivered;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use crate::codec::as_view::AsView;
use crate::codec::decode::decoder::{Decoder, Source};
use crate::codec::encode::encoder::Encoder;
pub(crate) use crate::codec::encoded::{Encoded, too_large};
pub(crate) use crate::codec::entries::{Entries, decode_entries};
pub(crate) use crate::codec::format::HEADER;
use crate::codec::format::{ASYMMETRY, FIELDS_MASK, FIELDS_SHIFT, TRUSTS_SHIFT};
pub(crate) use crate::codec::in_buffer::InBuffer;
pub use crate::codec::lend::Lend;
use crate::codec::plain::plain_from_bytes;
pub(crate) use crate::codec::plain::{Plain, from_plain, may_be_plain, plain_words, to_plain};
pub use crate::codec::portable::Portable;
pub(crate) use crate::codec::spill::Room;
use crate::codec::spill::Spill;
use crate::codec::trusts::Record;
pub(crate) use crate::codec::undelivered::{Undelivered, give_back};
use crate::error::CodecError;

impl<const N: usize, S: Spill> Encoded<N, S> {
    /// Appends a value, which must be the only one.
    ///
    /// # Errors
    /// The value has no encoding, or has more bytes than a message can have.
    #[inline(always)]
    pub(crate) fn encode<V: Serialize>(&mut self, value: &V) -> Result<(), CodecError> {
        let start = self.len;
        self.put(&[0; HEADER]);
        match value.serialize(Encoder::new(self)) {
            Ok(()) => self.finish(start),
            Err(fault) => Err(fault.into()),
        }
    }
}

/// Encodes `value` into a vector; a plain value as its word.
pub(crate) fn encode_to_vec<V: Serialize + 'static>(value: &V) -> Result<Vec<u8>, CodecError> {
    match to_plain(value) {
        Some(Plain::Nothing) => return Ok(Vec::new()),
        Some(Plain::Word(word)) => return Ok(word.to_le_bytes().to_vec()),
        None => {}
    }
    let mut encoded = Encoded::<0>::new();
    encoded.encode(value)?;
    Ok(encoded.spilled)
}

/// Decodes the value that `bytes` are, as [`encode_to_vec`] has written it.
pub(crate) fn decode_from_vec<V: DeserializeOwned + 'static>(
    bytes: &[u8],
) -> Result<V, CodecError> {
    if const { may_be_plain::<V>() } && plain_words::<V>().is_some() {
        return plain_from_bytes(bytes);
    }
    decode(bytes)
}

/// Decodes the value that `bytes` are.
#[inline(always)]
pub(crate) fn decode<'de, V: Deserialize<'de>>(bytes: &'de [u8]) -> Result<V, CodecError> {
    decode_from::<V>(bytes, true)
}

/// Decodes the value in front of `bytes`; what follows it was left there by earlier requests.
#[inline(always)]
pub(crate) fn decode_front<'de, V: Deserialize<'de>>(bytes: &'de [u8]) -> Result<V, CodecError> {
    decode_from::<V>(bytes, false)
}

/// As [`decode_front`], of a value that may be decoded again from the same bytes; `None` if it cannot be
/// decoded, or holds trusts, of which each record is to be taken once.
#[inline(always)]
pub(crate) fn decode_repeatable<'de, V: Deserialize<'de>>(bytes: &'de [u8]) -> Option<V> {
    // Not by `split`, whose source gives back the trusts that nothing takes.
    let header = u64::from_le_bytes(*bytes.first_chunk::<HEADER>()?);
    if header >> TRUSTS_SHIFT != 0 {
        return None;
    }
    decode_from::<V>(bytes, false).ok()
}

#[inline(always)]
fn decode_from<'de, V: Deserialize<'de>>(bytes: &'de [u8], exactly: bool) -> Result<V, CodecError> {
    let (header, mut source) = split(bytes, exactly)?;
    let value = V::deserialize(Decoder::new(&mut source))?;
    check_end::<V>(header, &source)?;
    Ok(value)
}

/// Takes apart the message in front of `bytes`, all of them if it is `exactly` these: its header, and
/// what is to be decoded.
#[inline(always)]
fn split(bytes: &[u8], exactly: bool) -> Result<(u64, Source<'_>), CodecError> {
    let Some((header, behind)) = bytes.split_first_chunk::<HEADER>() else {
        return Err(cut_short(bytes.len()));
    };
    let header = u64::from_le_bytes(*header);
    let (body, trusts) = (header as u32 as usize, (header >> TRUSTS_SHIFT) as usize);
    let len = body + trusts * Record::BYTES;
    if len > behind.len() || (exactly && len < behind.len()) {
        return Err(cut_short(bytes.len()));
    }
    let (body, records) = behind[..len].split_at(body);
    Ok((header, Source { left: body, fields: 0, records }))
}

/// Checks that what has been decoded as a `V` is all that was encoded.
#[inline(always)]
fn check_end<V>(header: u64, source: &Source<'_>) -> Result<(), CodecError> {
    let differs = (source.fields ^ header >> FIELDS_SHIFT) & FIELDS_MASK != 0;
    if differs || !source.left.is_empty() || !source.records.is_empty() {
        return Err(disagreement(std::any::type_name::<V>()));
    }
    Ok(())
}

#[cold]
#[inline(never)]
fn cut_short(len: usize) -> CodecError {
    CodecError(format!("the header of the value does not match its {len} bytes"))
}

#[cold]
#[inline(never)]
fn disagreement(type_name: &str) -> CodecError {
    CodecError(format!(
        "the `Deserialize` of `{type_name}` does not read all that was sent, or more; {ASYMMETRY}"
    ))
}
