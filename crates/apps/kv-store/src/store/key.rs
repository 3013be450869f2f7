//! [`Key`], which does not allocate if short, and is encoded as one byte string; [`KeyHasher`].

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::ops::Deref;

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest key stored inline; YCSB's keys have up to 24 bytes, and a `Key` has 32.
const INLINE_BYTES: usize = 30;

/// A key, or other bytes that are mostly as short. Short ones allocate neither where they are made nor
/// where they are received.
///
/// ```
/// use gossamer_kv_store::store::Key;
/// let key = Key::new(b"user42");
/// assert_eq!(&*key, b"user42");
/// ```
#[derive(Clone)]
pub struct Key(Repr);

#[derive(Clone)]
enum Repr {
    Inline { length: u8, bytes: [u8; INLINE_BYTES] },
    Heap(Box<[u8]>),
}

impl Key {
    /// A copy of `key`.
    pub fn new(key: &[u8]) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        Self(match bytes.get_mut(..key.len()) {
            Some(target) => {
                target.copy_from_slice(key);
                Repr::Inline { length: key.len() as u8, bytes }
            }
            None => Repr::Heap(key.into()),
        })
    }
}

/// The hash function of a [`Store`](crate::store::Store).
///
/// It is foldhash, the fastest maintained hasher for keys of 10 to 40 bytes (about 8 ns for one of 20),
/// which needs no AES instructions.
#[derive(Clone, Debug)]
pub struct KeyHasher(SeedableRandomState);

impl KeyHasher {
    /// A hasher with a random seed, so that clients cannot predict the order of keys.
    pub fn random() -> Self {
        Self(SeedableRandomState::random())
    }

    /// A hasher that is the same in every process, for callers that hash a key once and send the hash.
    #[inline]
    pub fn seeded(seed: u64) -> Self {
        Self(SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()))
    }

    /// The hash of a key. Its lower half is what a store finds it by, so what picks the store of a key
    /// must not depend on that half alone: the upper one may.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        // Without its length, which the hash of bytes takes in already.
        hasher.write(key);
        hasher.finish()
    }
}

impl Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Repr::Heap(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Self {
        Self::new(key)
    }
}

impl From<&str> for Key {
    fn from(key: &str) -> Self {
        Self::new(key.as_bytes())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.escape_ascii())
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Key;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key as bytes")
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Key, E> {
                Ok(Key::new(bytes))
            }
            fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Key, E> {
                Ok(Key::new(&bytes))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_round_trip() {
        for length in [0, 1, 24, INLINE_BYTES, INLINE_BYTES + 1, 250] {
            let key = Key::new(&vec![b'k'; length]);
            let bytes = postcard::to_stdvec(&key).unwrap();
            // postcard spends seven bits of a byte on a length.
            assert_eq!(bytes.len(), length + if length < 128 { 1 } else { 2 });
            let back: Key = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(back, key);
            assert_eq!(back.len(), length);
        }
    }
}
