//! [`Encoded`]: the bytes of a value that is being encoded, on the stack while they are few.

use std::borrow::Cow;

use primitive::limits::MESSAGE_BYTES;

use crate::codec::format::{FIELDS_MASK, FIELDS_SHIFT, HEADER, MAX_TRUSTS, TRUSTS_SHIFT};
use crate::codec::spill::{Room, Spill};
use crate::codec::trusts::Record;
use crate::error::CodecError;

/// An encoded value: up to `N` bytes in place, more in a vector or elsewhere.
pub(crate) struct Encoded<const N: usize, S: Spill = Vec<u8>> {
    place: [u8; N],
    /// Bytes written, also those beyond [`MESSAGE_BYTES`], which are not kept.
    pub(in crate::codec) len: usize,
    pub(in crate::codec) spilled: S,
    /// Fields of structs and tuples written.
    pub(in crate::codec) fields: u64,
    pub(in crate::codec) trusts: Records,
}

/// The trusts of a value that is being encoded. They are given back when this is dropped, unless
/// the message has been completed, to which they belong then.
#[derive(Default)]
pub(in crate::codec) struct Records(pub(in crate::codec) Vec<Record>);

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
        Encoded::spilling_to(Vec::new())
    }

    /// The bytes; those that are not in place leave this.
    #[inline(always)]
    pub(crate) fn take_bytes(&mut self) -> Cow<'_, [u8]> {
        if self.spilled.is_empty() {
            Cow::Borrowed(&self.place[..self.len])
        } else {
            Cow::Owned(std::mem::take(&mut self.spilled))
        }
    }

    /// Nothing again, with the memory of before.
    pub(crate) fn clear(&mut self) {
        self.truncate(0, 0, 0);
    }

    /// Takes back what has been written after the first `len` bytes, `fields` fields and `trusts`
    /// trusts.
    #[cold]
    pub(in crate::codec) fn truncate(&mut self, len: usize, fields: u64, trusts: usize) {
        self.len = len;
        self.spilled.truncate(len);
        self.fields = fields;
        drop(Records(self.trusts.0.split_off(trusts)));
    }
}

impl<const N: usize> Encoded<N, Room> {
    /// Nothing yet; what does not fit in place goes to the memory that the thread keeps.
    #[inline(always)]
    pub(crate) fn in_room() -> Self {
        Encoded::spilling_to(Room::default())
    }

    /// The bytes, if they are not in place; they leave this.
    pub(crate) fn take_spilled(&mut self) -> Vec<u8> {
        self.spilled.take()
    }
}

impl<const N: usize, S: Spill + AsRef<[u8]>> Encoded<N, S> {
    /// The bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.spilled.is_unused() { &self.place[..self.len] } else { self.spilled.as_ref() }
    }
}

impl<const N: usize, S: Spill> Encoded<N, S> {
    /// Nothing yet; what does not fit in place goes to `spilled`.
    #[inline(always)]
    pub(crate) fn spilling_to(spilled: S) -> Self {
        Encoded { place: [0; N], len: 0, spilled, fields: 0, trusts: Records::default() }
    }

    /// The bytes, if all of them are in place.
    #[inline(always)]
    pub(crate) fn in_place(&self) -> Option<&[u8]> {
        self.spilled.is_unused().then(|| &self.place[..self.len])
    }

    /// Bytes of the value.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends bytes as they are.
    #[inline(always)]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let (start, end) = (self.len, self.len + bytes.len());
        if self.spilled.is_unused() {
            if end <= N {
                self.place[start..end].copy_from_slice(bytes);
            } else {
                self.spilled.spill(&self.place, start, bytes);
            }
        } else if !self.spilled.extend(bytes) {
            self.spilled.spill(&self.place, start, bytes);
        }
        // Last, so that the compiler knows the length although it does not look into `spill`.
        self.len = end;
    }

    /// Writes the header at `start` for what has been written after it.
    #[inline(always)]
    pub(in crate::codec) fn finish(&mut self, start: usize) -> Result<(), CodecError> {
        let body = self.len - start - HEADER;
        let mut header = body as u64 | (self.fields & FIELDS_MASK) << FIELDS_SHIFT;
        if !self.trusts.0.is_empty() {
            if const { !S::TAKES_TRUSTS } {
                return Err(holds_trusts());
            }
            header |= self.put_records()?;
        }
        if self.len > MESSAGE_BYTES {
            return Err(too_large(self.len));
        }
        let header = header.to_le_bytes();
        if self.spilled.is_unused() {
            self.place[start..start + HEADER].copy_from_slice(&header);
        } else {
            self.spilled.overwrite(start, &header);
        }
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

#[cold]
pub(crate) fn too_large(len: usize) -> CodecError {
    CodecError(format!(
        "the value has {len} bytes encoded, expected at most {MESSAGE_BYTES}: send it in parts"
    ))
}

#[cold]
fn holds_trusts() -> CodecError {
    CodecError("a view holds a trust: return the trust as the result of an `apply`".to_owned())
}
