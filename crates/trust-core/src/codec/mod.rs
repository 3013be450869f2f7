//! Encoding of arguments and results.
//!
//! Numbers and `()` are *plain* (`plain.rs`): they travel as one word or nothing, past the codec,
//! so that a counter's request is one store. Everything else goes through serde, into the format
//! below. Small values are encoded in an array on the stack, larger ones spill into a vector; a
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
//! - Every element of a sequence and every entry of a map takes at least one byte, so a length that
//!   exceeds the bytes that are left is refused before anything is allocated for it.
//! - The header checks that `Deserialize` has read what `Serialize` wrote: all bytes of the body,
//!   and as many fields of structs and tuples. Attributes that only one of them follows
//!   (`skip_serializing`, `tag` on a struct, ...) would otherwise turn one value into another.
//! - Trusts are not in the body but in records behind it, which only `trusts.rs` reads and writes:
//!   bytes that user code encodes cannot be decoded as a trust. A record is a trust: the one who
//!   has it last, the encoder of a value that fails, its sender, or the decoder, gives it back.
//! - Values may be nested [`NESTING`](primitive::limits::NESTING) deep, on both sides.

mod decode;
mod encode;
mod fault;
mod plain;
mod portable;
#[cfg(test)]
mod tests;
pub(crate) mod trusts;

use primitive::limits::MESSAGE_BYTES;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec::decode::Decoder;
use crate::codec::encode::Encoder;
pub(crate) use crate::codec::plain::{Plain, from_plain, plain_from_bytes, plain_words, to_plain};
pub use crate::codec::portable::Portable;
use crate::codec::trusts::Record;
use crate::error::CodecError;

/// Bytes of the header of an encoded value.
pub(crate) const HEADER: usize = 8;

/// Where the number of trusts begins in the header, and that of fields.
const TRUSTS_SHIFT: u32 = 44;
const FIELDS_SHIFT: u32 = 32;
const FIELDS_MASK: u64 = (1 << (TRUSTS_SHIFT - FIELDS_SHIFT)) - 1;
const MAX_TRUSTS: usize = (1 << (64 - TRUSTS_SHIFT)) - 1;

const _: () = assert!(MESSAGE_BYTES <= u32::MAX as usize);

/// An encoded value: up to `N` bytes in place, more in a vector.
pub(crate) struct Encoded<const N: usize> {
    place: [u8; N],
    /// Bytes written, also those beyond [`MESSAGE_BYTES`], which are not kept.
    len: usize,
    spilled: Vec<u8>,
    /// Fields of structs and tuples written.
    fields: u64,
    trusts: Records,
}

/// The trusts of a value that is being encoded. They are given back when this is dropped, unless
/// the message has been completed, to which they belong then.
#[derive(Default)]
struct Records(Vec<Record>);

impl Drop for Records {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.0.is_empty() {
            self.0.iter().for_each(Record::give_back);
        }
    }
}

impl<const N: usize> Encoded<N> {
    /// Nothing yet.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Encoded {
            place: [0; N],
            len: 0,
            spilled: Vec::new(),
            fields: 0,
            trusts: Records::default(),
        }
    }

    /// The bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.spilled.is_empty() { &self.place[..self.len] } else { &self.spilled }
    }

    /// Appends bytes as they are.
    #[inline(always)]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let (start, end) = (self.len, self.len + bytes.len());
        if self.spilled.is_empty() {
            if end <= N {
                self.place[start..end].copy_from_slice(bytes);
            } else {
                spill(&mut self.spilled, &self.place, start, bytes);
            }
        } else if bytes.len() <= self.spilled.capacity() - self.spilled.len() {
            self.spilled.extend_from_slice(bytes);
        } else {
            spill(&mut self.spilled, &self.place, start, bytes);
        }
        // Last, so that the compiler knows the length although it does not look into `spill`.
        self.len = end;
    }

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

    /// Writes the header at `start` for what has been written behind it.
    #[inline(always)]
    fn finish(&mut self, start: usize) -> Result<(), CodecError> {
        let body = self.len - start - HEADER;
        let mut header = body as u64 | (self.fields & FIELDS_MASK) << FIELDS_SHIFT;
        if !self.trusts.0.is_empty() {
            header |= self.put_records()?;
        }
        if self.len > MESSAGE_BYTES {
            return Err(too_large(self.len));
        }
        let bytes = if self.spilled.is_empty() { &mut self.place[..] } else { &mut self.spilled };
        bytes[start..start + HEADER].copy_from_slice(&header.to_le_bytes());
        self.trusts.0.clear();
        Ok(())
    }

    /// Appends the records of trusts, and returns their number as the header has it.
    #[inline(never)]
    fn put_records(&mut self) -> Result<u64, CodecError> {
        let records = std::mem::take(&mut self.trusts);
        let trusts = records.0.len();
        if trusts > MAX_TRUSTS {
            return Err(CodecError(format!(
                "the value holds {trusts} trusts, expected at most {MAX_TRUSTS}: send it in parts"
            )));
        }
        for record in &records.0 {
            self.put(&record.to_bytes());
        }
        self.trusts = records;
        Ok((trusts as u64) << TRUSTS_SHIFT)
    }
}

/// Appends `bytes` to the vector, in front of which belong the first `start` bytes of `place` if it
/// is empty. Bytes beyond the largest message are not kept: they are refused in the end.
#[cold]
#[inline(never)]
fn spill(spilled: &mut Vec<u8>, place: &[u8], start: usize, bytes: &[u8]) {
    if bytes.is_empty() || start + bytes.len() > MESSAGE_BYTES {
        return;
    }
    if spilled.is_empty() {
        spilled.reserve((start + bytes.len()).next_power_of_two().max(256));
        spilled.extend_from_slice(&place[..start]);
    }
    spilled.extend_from_slice(bytes);
}

#[cold]
fn too_large(len: usize) -> CodecError {
    CodecError(format!(
        "the value has {len} bytes encoded, expected at most {MESSAGE_BYTES}: send it in parts"
    ))
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

/// Gives back the trusts in an encoded value that will not be delivered. What holds no trusts may
/// be any bytes that travel as a value, a plain value's included.
#[cold]
pub(crate) fn give_back(bytes: &[u8]) {
    let Some((header, behind)) = bytes.split_first_chunk::<HEADER>() else { return };
    let header = u64::from_le_bytes(*header);
    let (body, trusts) = (header as u32 as usize, (header >> TRUSTS_SHIFT) as usize);
    // A plain value is one word, and a word alone is no header of a value with trusts.
    if behind.len() == body + trusts * Record::BYTES {
        give_back_records(&behind[body..]);
    }
}

/// Drops the trusts with these records.
#[cold]
#[inline(never)]
fn give_back_records(records: &[u8]) {
    for record in records.as_chunks().0 {
        Record::from_bytes(*record).give_back();
    }
}

/// An encoded value that has not been delivered. Its trusts are given back when this is dropped.
pub(crate) struct Undelivered<'a>(pub(crate) &'a [u8]);

impl Drop for Undelivered<'_> {
    fn drop(&mut self) {
        give_back(self.0);
    }
}

/// Decodes the value that `bytes` are.
#[inline(always)]
pub(crate) fn decode<V: DeserializeOwned>(bytes: &[u8]) -> Result<V, CodecError> {
    decode_from::<V>(bytes, true)
}

/// Decodes the value in front of `bytes`; what follows it was left there by earlier requests.
#[inline(always)]
pub(crate) fn decode_front<V: DeserializeOwned>(bytes: &[u8]) -> Result<V, CodecError> {
    decode_from::<V>(bytes, false)
}

#[inline(always)]
fn decode_from<V: DeserializeOwned>(bytes: &[u8], exactly: bool) -> Result<V, CodecError> {
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
    let mut source = decode::Source { left: body, fields: 0, records };
    let value = V::deserialize(Decoder::new(&mut source))?;
    let differs = (source.fields ^ header >> FIELDS_SHIFT) & FIELDS_MASK != 0;
    if differs || !source.left.is_empty() || !source.records.is_empty() {
        return Err(disagreement(std::any::type_name::<V>()));
    }
    Ok(value)
}

#[cold]
#[inline(never)]
fn cut_short(len: usize) -> CodecError {
    CodecError(format!("the header of the value does not match its {len} bytes"))
}

/// What to check when a value does not arrive as it was sent.
const ASYMMETRY: &str = "a type's `Deserialize` must read what its `Serialize` writes, so \
                         `#[serde(skip_serializing)]`, `#[serde(skip_deserializing)]`, \
                         `#[serde(skip_serializing_if)]` and `#[serde(tag)]` cannot be used with \
                         values that cross the rack (`#[serde(skip)]` on a field can)";

#[cold]
#[inline(never)]
fn disagreement(type_name: &str) -> CodecError {
    CodecError(format!(
        "the `Deserialize` of `{type_name}` does not read all that was sent, or more; {ASYMMETRY}"
    ))
}

/// A variant as it travels: its index, and a digest of its name; `None` if the index is too large.
#[inline(always)]
fn variant_word(index: u32, name: &str) -> Option<u32> {
    let (name, index) = (name.as_bytes(), u16::try_from(index).ok()?);
    let at = |i: usize| name.get(i).map_or(0, |byte| u32::from(*byte));
    let ends = at(0) << 8 ^ at(name.len().wrapping_sub(1)) << 4;
    let digest = (ends ^ at(name.len() / 2) ^ (name.len() as u32) << 12) as u16;
    Some(u32::from(digest) << 16 | u32::from(index))
}
