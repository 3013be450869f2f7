//! [`Decoder`]: where a value is decoded from, and how deep it is.

use std::fmt;

use primitive::limits::NESTING;
use serde::de::Expected;

use crate::codec::fault::Fault;
use crate::codec::format::ASYMMETRY;
use crate::codec::undelivered::give_back_records;

/// The bytes of a message that have not been decoded yet.
pub(in crate::codec) struct Source<'de> {
    pub(in crate::codec) left: &'de [u8],
    /// Fields of structs and tuples read.
    pub(in crate::codec) fields: u64,
    /// Records of trusts. Those that are left when this is dropped are given back.
    pub(in crate::codec) records: &'de [u8],
}

impl Drop for Source<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.records.is_empty() {
            give_back_records(self.records);
        }
    }
}

impl<'de> Source<'de> {
    #[inline]
    pub(super) fn take<const LEN: usize>(&mut self) -> Result<[u8; LEN], Fault> {
        match self.left.split_first_chunk::<LEN>() {
            Some((bytes, left)) => {
                self.left = left;
                Ok(*bytes)
            }
            None => Err(ended()),
        }
    }

    /// A length, of which every unit takes at least a byte.
    #[inline]
    pub(super) fn take_len(&mut self) -> Result<usize, Fault> {
        let len = u32::from_le_bytes(self.take()?) as usize;
        if len <= self.left.len() { Ok(len) } else { Err(too_long(len, self.left.len())) }
    }

    #[inline]
    pub(super) fn take_bytes(&mut self) -> Result<&'de [u8], Fault> {
        let len = self.take_len()?;
        let (bytes, left) = self.left.split_at(len);
        self.left = left;
        Ok(bytes)
    }

    /// The bytes of `len` elements of `bytes` each. There are at least `len` bytes left.
    #[inline]
    pub(super) fn take_block(&mut self, len: usize, bytes: usize) -> Result<&'de [u8], Fault> {
        match self.left.split_at_checked(len * bytes) {
            Some((block, left)) => {
                self.left = left;
                Ok(block)
            }
            None => Err(ended()),
        }
    }

    /// The byte that an element of no bytes takes, if the element that began when `before` bytes
    /// were left is one.
    #[inline]
    pub(in crate::codec) fn complete(&mut self, before: usize) -> Result<(), Fault> {
        if self.left.len() == before {
            self.take::<1>()?;
        }
        Ok(())
    }
}

#[cold]
#[inline(never)]
pub(super) fn ended() -> Fault {
    unexpected(format_args!("the value ends before all of it has been read"))
}

#[cold]
#[inline(never)]
pub(super) fn too_long(len: usize, left: usize) -> Fault {
    unexpected(format_args!("a length of {len} with {left} bytes left"))
}

#[cold]
#[inline(never)]
pub(super) fn invalid(bits: u32, expected: &dyn Expected) -> Fault {
    unexpected(format_args!("invalid value {bits}, expected {expected}"))
}

/// What an honest sender can only cause by a type whose two sides differ.
pub(super) fn unexpected(what: fmt::Arguments<'_>) -> Fault {
    Fault::new(format!("{what}; {}", ASYMMETRY))
}

/// What a type asks that wants the format to describe itself.
#[cold]
#[inline(never)]
pub(super) fn describes_nothing(expected: &dyn Expected) -> Fault {
    Fault::new(format!(
        "expected {expected}, which needs a self-describing format, and the rack's is not one: \
         `#[serde(untagged)]`, `#[serde(tag)]`, `#[serde(flatten)]` and types like \
         `serde_json::Value` cannot cross the rack; use an enum without these attributes, or send \
         the value as a string (of JSON, for example)"
    ))
}

/// Decodes one value, which is `depth` levels inside the one that the message is made of.
pub(in crate::codec) struct Decoder<'a, 'de> {
    pub(super) source: &'a mut Source<'de>,
    pub(super) depth: u32,
}

impl<'a, 'de> Decoder<'a, 'de> {
    #[inline]
    pub(in crate::codec) fn new(source: &'a mut Source<'de>) -> Self {
        Decoder { source, depth: 0 }
    }

    /// One level further inside.
    #[inline]
    pub(super) fn inner(self) -> Result<Self, Fault> {
        if self.depth < NESTING {
            Ok(Decoder { source: self.source, depth: self.depth + 1 })
        } else {
            Err(Fault::too_deep())
        }
    }

    /// The same again, for a part of the value.
    #[inline]
    pub(super) fn part(&mut self) -> Decoder<'_, 'de> {
        Decoder { source: self.source, depth: self.depth }
    }
}
