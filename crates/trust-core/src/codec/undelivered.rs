//! [`Undelivered`]: giving back the trusts of a message that does not arrive.

use crate::codec::format::{HEADER, TRUSTS_SHIFT};
use crate::codec::trusts::Record;

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
pub(in crate::codec) fn give_back_records(records: &[u8]) {
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
