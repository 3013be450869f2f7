//! [`Encoded`]: the bytes of a value that is being encoded, on the stack while they are few.

use primitive::limits::MESSAGE_BYTES;

use crate::codec::format::{FIELDS_MASK, FIELDS_SHIFT, HEADER, MAX_TRUSTS, TRUSTS_SHIFT};
use crate::codec::trusts::Record;
use crate::error::CodecError;

/// An encoded value: up to `N` bytes in place, more in a vector.
pub(crate) struct Encoded<const N: usize> {
    place: [u8; N],
    /// Bytes written, also those beyond [`MESSAGE_BYTES`], which are not kept.
    pub(in crate::codec) len: usize,
    pub(in crate::codec) spilled: Vec<u8>,
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

    /// Writes the header at `start` for what has been written behind it.
    #[inline(always)]
    pub(in crate::codec) fn finish(&mut self, start: usize) -> Result<(), CodecError> {
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
pub(crate) fn too_large(len: usize) -> CodecError {
    CodecError(format!(
        "the value has {len} bytes encoded, expected at most {MESSAGE_BYTES}: send it in parts"
    ))
}
