//! [`Entries`]: many keys and values, encoded one after the other into one message.
//!
//! The message is what an ordinary value is encoded to: one header, the entries, the records of their
//! trusts. An entry takes at least one byte, as an element of a sequence does, so the end of the body
//! says how many there are.

use serde::{Deserialize, Serialize};

use primitive::limits::MESSAGE_BYTES;

use crate::codec::decode::decoder::Decoder;
use crate::codec::encode::encoder::Encoder;
use crate::codec::encoded::{Encoded, too_large};
use crate::codec::format::{HEADER, MAX_TRUSTS};
use crate::codec::trusts::Record;
use crate::codec::{check_end, split};
use crate::error::CodecError;

/// Entries that are being collected, after some bytes that are set when they are sent.
pub(crate) struct Entries {
    encoded: Encoded<0>,
    /// Bytes in front of the message.
    front: usize,
    count: usize,
}

impl Entries {
    pub(crate) fn new(front: usize) -> Self {
        Entries { encoded: Encoded::new(), front, count: 0 }
    }

    /// The number of entries.
    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of the message, if there are entries.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> usize {
        self.encoded.len() + self.encoded.trusts.0.len() * Record::BYTES
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// It has no encoding, or no room in a message. The entries before it stay.
    ///
    /// # Panics
    /// If the code of key or value does; the entries before it stay.
    #[inline]
    pub(crate) fn push<K, V>(&mut self, key: &K, value: &V) -> Result<(), CodecError>
    where
        K: Serialize,
        V: Serialize,
    {
        if self.count == 0 {
            self.begin();
        }
        let start = self.encoded.len();
        let entry = Unfinished {
            start,
            fields: self.encoded.fields,
            trusts: self.encoded.trusts.0.len(),
            encoded: &mut self.encoded,
        };
        key.serialize(Encoder::new(entry.encoded))?;
        value.serialize(Encoder::new(entry.encoded))?;
        if entry.encoded.len() == start {
            entry.encoded.put(&[0]);
        }
        let trusts = entry.encoded.trusts.0.len();
        let bytes = entry.encoded.len() + trusts * Record::BYTES;
        if bytes > MESSAGE_BYTES || trusts > MAX_TRUSTS {
            return Err(too_large(bytes));
        }
        std::mem::forget(entry);
        self.count += 1;
        Ok(())
    }

    #[cold]
    fn begin(&mut self) {
        self.encoded.clear();
        for _ in 0..self.front {
            self.encoded.put(&[0]);
        }
        self.encoded.put(&[0; HEADER]);
    }

    /// Hands what is in front, the message and its trusts to `send`, if there are entries, and begins
    /// anew. `send` gets none if they have no encoding together, which [`push`](Self::push) prevents.
    #[inline]
    pub(crate) fn take<R>(
        &mut self,
        front: &[u8],
        send: impl FnOnce(Result<&[u8], CodecError>) -> R,
    ) -> Option<R> {
        if self.count == 0 {
            return None;
        }
        self.count = 0;
        let finished = self.encoded.finish(self.front);
        self.encoded.spilled[..self.front].copy_from_slice(front);
        Some(send(finished.map(|()| self.encoded.bytes())))
    }
}

/// An entry that is being encoded, which is taken back when this is dropped.
struct Unfinished<'a> {
    encoded: &'a mut Encoded<0>,
    start: usize,
    fields: u64,
    trusts: usize,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.encoded.truncate(self.start, self.fields, self.trusts);
    }
}

/// Decodes the entries in front of `bytes`, all of them if they are `exactly` these, and hands each to
/// `take`, which may panic.
///
/// # Errors
/// The bytes are no such message. The entries before the one that cannot be decoded have been taken.
#[inline]
pub(crate) fn decode_entries<'de, K, V>(
    bytes: &'de [u8],
    exactly: bool,
    mut take: impl FnMut(K, V),
) -> Result<(), CodecError>
where
    K: Deserialize<'de>,
    V: Deserialize<'de>,
{
    let (header, mut source) = split(bytes, exactly)?;
    while !source.left.is_empty() {
        let before = source.left.len();
        let key = K::deserialize(Decoder::new(&mut source))?;
        let value = V::deserialize(Decoder::new(&mut source))?;
        source.complete(before)?;
        take(key, value);
    }
    check_end::<(K, V)>(header, &source)
}
