//! Encoding of arguments and results: the one file that knows bincode.
//!
//! Integers are fixed-size little-endian: a counter's request is then one store, not a loop over
//! seven-bit groups. Small values are encoded in an array on the stack, larger ones spill into a
//! vector; a value is encoded once, because encoding a [`Trust`](crate::Trust) makes a new one.

use crate::error::CodecError;
use bincode::{config, enc::write::Writer, error::EncodeError};
use serde::{Serialize, de::DeserializeOwned};

const CONFIG: config::Configuration<config::LittleEndian, config::Fixint> =
    config::standard().with_fixed_int_encoding();

/// An encoded value: up to `N` bytes in place, more in a vector.
pub(crate) struct Encoded<const N: usize> {
    place: [u8; N],
    len: usize,
    spilled: Vec<u8>,
}

impl<const N: usize> Encoded<N> {
    /// The bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.spilled.is_empty() { &self.place[..self.len] } else { &self.spilled }
    }

    /// The bytes in a vector.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        if self.spilled.is_empty() { self.place[..self.len].to_vec() } else { self.spilled }
    }
}

impl<const N: usize> Writer for Encoded<N> {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        if self.spilled.is_empty() && bytes.len() <= N - self.len {
            self.place[self.len..self.len + bytes.len()].copy_from_slice(bytes);
            self.len += bytes.len();
        } else {
            self.spill(bytes);
        }
        Ok(())
    }
}

impl<const N: usize> Encoded<N> {
    #[cold]
    #[inline(never)]
    fn spill(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.spilled.is_empty() {
            self.spilled.reserve((self.len + bytes.len()).next_power_of_two().max(256));
            self.spilled.extend_from_slice(&self.place[..self.len]);
        }
        self.spilled.extend_from_slice(bytes);
    }
}

/// Encodes `value`, with up to `N` bytes in place.
#[inline(always)]
pub(crate) fn encode<const N: usize, V: Serialize>(value: &V) -> Result<Encoded<N>, CodecError> {
    encode_after(&[], value)
}

/// Encodes `value` behind the bytes of `front`.
#[inline(always)]
pub(crate) fn encode_after<const N: usize, V: Serialize>(
    front: &[u8],
    value: &V,
) -> Result<Encoded<N>, CodecError> {
    let mut out = Encoded { place: [0; N], len: 0, spilled: Vec::new() };
    let written = out.write(front);
    match written
        .and_then(|()| bincode::serde::encode_into_writer(value, Borrowed(&mut out), CONFIG))
    {
        Ok(()) => Ok(out),
        Err(error) => Err(refused(&error)),
    }
}

/// bincode takes writers by value.
struct Borrowed<'a, const N: usize>(&'a mut Encoded<N>);

impl<const N: usize> Writer for Borrowed<'_, N> {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.0.write(bytes)
    }
}

/// Decodes a value from the front of `bytes`; what follows it is padding.
#[inline(always)]
pub(crate) fn decode<V: DeserializeOwned>(bytes: &[u8]) -> Result<V, CodecError> {
    match bincode::serde::decode_from_slice(bytes, CONFIG) {
        Ok((value, _)) => Ok(value),
        Err(error) => Err(refused(&error)),
    }
}

#[cold]
#[inline(never)]
fn refused(error: &dyn std::fmt::Display) -> CodecError {
    CodecError(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Wild = (Vec<String>, Option<u64>, BTreeMap<u32, (i8, char)>, Result<(), [u16; 3]>);

    proptest! {
        #[test]
        fn values_come_back(words: Vec<String>, option: Option<u64>, map: BTreeMap<u32, (i8, char)>, result: Result<(), [u16; 3]>) {
            let value: Wild = (words, option, map, result);
            let encoded = encode::<64, _>(&value).unwrap();
            let back: Wild = decode(encoded.bytes()).unwrap();
            prop_assert_eq!(&back, &value);
            let vec = encode::<16, _>(&value).unwrap().into_vec();
            prop_assert_eq!(vec.as_slice(), encoded.bytes());
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes: Vec<u8>) {
            let _ = decode::<Wild>(&bytes);
            let _ = decode::<Vec<Vec<u8>>>(&bytes);
            let _ = decode::<(u64, bool, f32, String)>(&bytes);
        }
    }
}
