//! How the parts of a call travel: as bytes, through the codec of delegated calls.
//!
//! What arrives is copied once, to memory with the alignment that jams expect.

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use jam_abi::entry::Part;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One value of a plain type, with the alignment of calls.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Value<T: Copy>(MaybeUninit<T>);

impl<T: Part> Value<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(MaybeUninit::new(value))
    }

    /// Zeroes, to be written by a jam.
    pub(crate) fn zeroed() -> Self {
        Self(MaybeUninit::zeroed())
    }

    pub(crate) fn get(&self) -> T {
        // SAFETY: every way to make one initialises all bytes, and every bit pattern of a part is a
        // value of it.
        unsafe { self.0.assume_init() }
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    #[allow(clippy::disallowed_methods, reason = "a value of this process, which no peer writes")]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: all bytes of a part are initialised: it has no padding.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), T::BYTES) }
    }

    #[allow(clippy::disallowed_methods, reason = "a value of this process, which no peer writes")]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`; any bytes are a value.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), T::BYTES) }
    }

    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != T::BYTES {
            return None;
        }
        let mut value = Self::zeroed();
        // SAFETY: as many bytes as the value has; they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr(), T::BYTES) };
        Some(value)
    }
}

impl<T: Part> Serialize for Value<T> {
    #[inline]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.bytes())
    }
}

impl<'de, T: Part> Deserialize<'de> for Value<T> {
    #[inline]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Bytes(|bytes: &[u8]| Value::of_bytes(bytes), PhantomData))
    }
}

/// A payload, with the alignment of calls.
#[derive(Clone, Default)]
pub(crate) struct Payload {
    words: Vec<Word>,
    len: usize,
}

#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Word([u8; 16]);

/// The bytes of `elements`.
#[allow(clippy::disallowed_methods, reason = "a slice of this process, as bytes")]
pub(crate) fn bytes_of<E: Part>(elements: &[E]) -> &[u8] {
    // SAFETY: all bytes of a part are initialised: it has no padding.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

impl Payload {
    /// The bytes of `elements`.
    pub(crate) fn of<E: Part>(elements: &[E]) -> Self {
        Self::of_bytes(bytes_of(elements))
    }

    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let count = bytes.len().div_ceil(size_of::<Word>());
        let mut words = Vec::<Word>::with_capacity(count);
        // SAFETY: the vector has room for that many words; all of them are written: the last one
        // first, whole, then the bytes over it.
        unsafe {
            if let Some(last) = count.checked_sub(1) {
                words.as_mut_ptr().add(last).write(Word([0; 16]));
            }
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), words.as_mut_ptr().cast(), bytes.len());
            words.set_len(count);
        }
        Self { words, len: bytes.len() }
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.words.as_ptr().cast()
    }

    #[allow(clippy::disallowed_methods, reason = "a vector's own memory")]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: inside the words, all of which are initialised.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }
}

impl Serialize for Payload {
    #[inline]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.bytes())
    }
}

impl<'de> Deserialize<'de> for Payload {
    #[inline]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_bytes(Bytes(|bytes: &[u8]| Some(Self::of_bytes(bytes)), PhantomData))
    }
}

/// Makes a value of bytes.
struct Bytes<T, F>(F, PhantomData<T>);

impl<'de, T, F: FnOnce(&[u8]) -> Option<T>> Visitor<'de> for Bytes<T, F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the bytes of a {}", std::any::type_name::<T>())
    }

    #[inline]
    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<T, E> {
        let len = bytes.len();
        (self.0)(bytes).ok_or_else(|| E::custom(format!("{len} bytes are not a value of the jam")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<T, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = elements.next_element()? {
            bytes.push(byte);
        }
        self.visit_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_as_they_are_and_are_aligned() {
        let value = Value::new([1u32, 2, 3]);
        assert_eq!(value.as_ptr().addr() % 16, 0);
        assert_eq!(Value::<[u32; 3]>::of_bytes(value.bytes()).unwrap().get(), [1, 2, 3]);
        assert!(Value::<u64>::of_bytes(&[0; 7]).is_none());
        assert!(Value::<()>::of_bytes(&[]).is_some());
        for len in [0usize, 1, 15, 16, 17, 100] {
            let bytes: Vec<u8> = (0..len as u8).collect();
            let payload = Payload::of_bytes(&bytes);
            assert_eq!((payload.bytes(), payload.as_ptr().addr() % 16), (&bytes[..], 0));
        }
        assert_eq!(Payload::of(&[1u16, 2]).bytes(), [1, 0, 2, 0]);
        assert!(Payload::of::<()>(&[]).bytes().is_empty());
    }
}
