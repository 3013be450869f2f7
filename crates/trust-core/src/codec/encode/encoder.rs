//! [`Encoder`]: where a value is encoded to, and how deep it is.

use primitive::limits::{MESSAGE_BYTES, NESTING};

use crate::codec::encoded::Encoded;
use crate::codec::fault::Fault;
use crate::codec::format::variant_word;
use crate::codec::spill::Spill;

/// Encodes one value, which is `depth` levels inside the one that the message is made of.
pub(in crate::codec) struct Encoder<'a, const N: usize, S: Spill> {
    pub(super) out: &'a mut Encoded<N, S>,
    pub(super) depth: u32,
}

impl<'a, const N: usize, S: Spill> Encoder<'a, N, S> {
    #[inline]
    pub(in crate::codec) fn new(out: &'a mut Encoded<N, S>) -> Self {
        Encoder { out, depth: 0 }
    }

    /// One level further inside.
    #[inline]
    pub(super) fn inner(self) -> Result<Self, Fault> {
        if self.depth < NESTING {
            Ok(Encoder { out: self.out, depth: self.depth + 1 })
        } else {
            Err(Fault::too_deep())
        }
    }

    #[inline]
    pub(super) fn put<const LEN: usize>(self, bytes: [u8; LEN]) -> Result<(), Fault> {
        self.out.put(&bytes);
        Ok(())
    }

    #[inline]
    pub(super) fn put_len(&mut self, len: usize) -> Result<(), Fault> {
        if len > MESSAGE_BYTES {
            return Err(too_long(len));
        }
        self.out.put(&(len as u32).to_le_bytes());
        Ok(())
    }

    #[inline]
    pub(super) fn put_variant(&mut self, index: u32, name: &str) -> Result<(), Fault> {
        match variant_word(index, name) {
            Some(word) => self.out.put(&word.to_le_bytes()),
            None => return Err(too_many_variants(index, name)),
        }
        Ok(())
    }

    /// The same again, for a part of the value.
    #[inline]
    pub(super) fn part(&mut self) -> Encoder<'_, N, S> {
        Encoder { out: self.out, depth: self.depth }
    }
}

#[cold]
#[inline(never)]
fn too_long(len: usize) -> Fault {
    Fault::new(format!(
        "a collection or string has a length of {len}, expected at most {MESSAGE_BYTES}: send it \
         in parts"
    ))
}

#[cold]
#[inline(never)]
fn too_many_variants(index: u32, name: &str) -> Fault {
    Fault::new(format!(
        "the variant `{name}` has the number {index}, expected at most {}",
        u16::MAX
    ))
}
