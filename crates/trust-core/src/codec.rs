//! Encoding of arguments and results: the one file that knows bincode.
//!
//! Numbers and `()` are *plain*: they travel as one word or nothing, past the codec, so that a
//! counter's request is one store. Everything else goes through serde and bincode, with fixed-size
//! integers. Small values are encoded in an array on the stack, larger ones spill into a
//! vector; a value is encoded once, because encoding a [`Trust`](crate::Trust) makes a new one.

use crate::error::CodecError;
use bincode::{config, enc::write::Writer, error::EncodeError};
use primitive::limits::MESSAGE_BYTES;
use serde::{Serialize, de::DeserializeOwned};
use std::any::Any;

/// A length that claims more than the largest message is refused before anything is allocated for
/// it; one that merely claims more than there is costs address space for a moment.
type Config =
    config::Configuration<config::LittleEndian, config::Fixint, config::Limit<MESSAGE_BYTES>>;

const CONFIG: Config = config::standard().with_fixed_int_encoding().with_limit::<MESSAGE_BYTES>();

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

impl<const N: usize> Encoded<N> {
    /// Nothing yet.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Encoded { place: [0; N], len: 0, spilled: Vec::new() }
    }

    /// Appends bytes as they are.
    #[inline(always)]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        // Writing here never fails.
        let _ = self.write(bytes);
    }

    /// Appends a value.
    #[inline(always)]
    pub(crate) fn encode<V: Serialize>(&mut self, value: &V) -> Result<(), CodecError> {
        match bincode::serde::encode_into_writer(value, Borrowed(self), CONFIG) {
            Ok(()) => Ok(()),
            Err(error) => Err(refused(&error)),
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

/// bincode takes writers by value.
struct Borrowed<'a, const N: usize>(&'a mut Encoded<N>);

impl<const N: usize> Writer for Borrowed<'_, N> {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.0.write(bytes)
    }
}

/// What a plain value is: nothing, or one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    Nothing,
    Word(u64),
}

impl Plain {
    /// Words that it takes.
    #[inline(always)]
    pub(crate) fn words(self) -> usize {
        usize::from(self != Plain::Nothing)
    }
}

/// Calls `$each!(type, to word, from word)` for every plain type but `()`.
macro_rules! plain_types {
    ($each:ident) => {
        $each!(u64, |v: u64| v, |w: u64| w);
        $each!(i64, |v: i64| v as u64, |w: u64| w as i64);
        $each!(usize, |v: usize| v as u64, |w: u64| w as usize);
        $each!(isize, |v: isize| v as u64, |w: u64| w as isize);
        $each!(u32, |v: u32| u64::from(v), |w: u64| w as u32);
        $each!(i32, |v: i32| v as u64, |w: u64| w as i32);
        $each!(u16, |v: u16| u64::from(v), |w: u64| w as u16);
        $each!(i16, |v: i16| v as u64, |w: u64| w as i16);
        $each!(u8, |v: u8| u64::from(v), |w: u64| w as u8);
        $each!(i8, |v: i8| v as u64, |w: u64| w as i8);
        $each!(bool, |v: bool| u64::from(v), |w: u64| w != 0);
        $each!(f64, |v: f64| v.to_bits(), |w: u64| f64::from_bits(w));
        $each!(f32, |v: f32| u64::from(v.to_bits()), |w: u64| f32::from_bits(w as u32));
    };
}

/// The value as a plain one, if it is of a plain type. Which it is, the compiler knows: nothing of
/// the chain is left in a program.
#[inline(always)]
pub(crate) fn to_plain<V: 'static>(value: &V) -> Option<Plain> {
    let value: &dyn Any = value;
    if value.is::<()>() {
        return Some(Plain::Nothing);
    }
    macro_rules! try_type {
        ($type:ty, $to:expr, $_from:expr) => {
            if let Some(value) = value.downcast_ref::<$type>() {
                return Some(Plain::Word($to(*value)));
            }
        };
    }
    plain_types!(try_type);
    None
}

/// Whether `V` is a plain type, and if so how many words it takes.
#[inline(always)]
pub(crate) fn plain_words<V: 'static>() -> Option<usize> {
    from_plain::<V>(|| 0).map(|value| to_plain(&value).map_or(0, Plain::words))
}

/// The value of the plain type `V` with this word (which is only fetched if the type has one);
/// `None` if `V` is no plain type.
#[inline(always)]
pub(crate) fn from_plain<V: 'static>(word: impl FnOnce() -> u64) -> Option<V> {
    let mut value: Option<V> = None;
    let place: &mut dyn Any = &mut value;
    if let Some(place) = place.downcast_mut::<Option<()>>() {
        *place = Some(());
        return value;
    }
    macro_rules! try_type {
        ($type:ty, $_to:expr, $from:expr) => {
            if let Some(place) = place.downcast_mut::<Option<$type>>() {
                *place = Some($from(word()));
                return value;
            }
        };
    }
    plain_types!(try_type);
    None
}

/// The value of the plain type `V` from the bytes of its word: how a later reply carries it.
pub(crate) fn plain_from_bytes<V: 'static>(bytes: &[u8]) -> Result<V, CodecError> {
    let len = plain_words::<V>().map(|words| words * size_of::<u64>());
    let mut word = [0; size_of::<u64>()];
    match len {
        Some(len) if len == bytes.len() => {
            word[..len].copy_from_slice(bytes);
            Ok(from_plain(|| u64::from_le_bytes(word)).expect("a plain type"))
        }
        _ => {
            Err(CodecError(format!("{} bytes are no {}", bytes.len(), std::any::type_name::<V>())))
        }
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
            let mut encoded = Encoded::<64>::new();
            encoded.encode(&value).unwrap();
            let back: Wild = decode(encoded.bytes()).unwrap();
            prop_assert_eq!(&back, &value);
            let vec = encode_to_vec(&value).unwrap();
            prop_assert_eq!(vec.as_slice(), encoded.bytes());
        }

        #[test]
        fn plain_values_come_back(a: u64, b: i32, c: f64, d: bool, e: i8) {
            fn round<V: Copy + PartialEq + std::fmt::Debug + 'static>(value: V) {
                let Some(Plain::Word(word)) = to_plain(&value) else { panic!("not plain") };
                assert_eq!(from_plain::<V>(|| word), Some(value));
                assert_eq!(plain_words::<V>(), Some(1));
            }
            round(a);
            round(b);
            round(d);
            round(e);
            prop_assert_eq!(to_plain(&c), Some(Plain::Word(c.to_bits())));
            prop_assert_eq!(to_plain(&()), Some(Plain::Nothing));
            prop_assert_eq!(plain_words::<()>(), Some(0));
            prop_assert_eq!(to_plain(&"text".to_owned()), None);
            prop_assert_eq!(plain_words::<(u64, u64)>(), None);
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes: Vec<u8>) {
            let _ = decode::<Wild>(&bytes);
            let _ = decode::<Vec<Vec<u8>>>(&bytes);
            let _ = decode::<(u64, bool, f32, String)>(&bytes);
        }
    }
}
