//! The bytes of an item, shared by the store and every response that carries them.
//!
//! A read clones a reference, not the data: a hundred slow clients that read the same large item
//! from their own thread keep one copy alive. A response to another thread is encoded into a
//! message, which copies the data once.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// Immutable reference-counted bytes.
///
/// ```
/// use gossamer_kv_store::store::Data;
/// let data = Data::from(&b"abc"[..]);
/// let again = data.clone();
/// assert_eq!(&*again, b"abc");
/// assert!(std::ptr::eq(&*data, &*again));
/// ```
#[derive(Clone)]
pub struct Data {
    /// The allocation of the item: its key, then from `start` its data.
    bytes: Arc<[u8]>,
    start: usize,
}

impl Data {
    /// The bytes from `start` on.
    ///
    /// # Panics
    /// If there are fewer than `start` bytes.
    pub(super) fn after(bytes: Arc<[u8]>, start: usize) -> Self {
        assert!(start <= bytes.len(), "an item is at least as long as its key");
        Self { bytes, start }
    }
}

impl Deref for Data {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl From<&[u8]> for Data {
    fn from(bytes: &[u8]) -> Self {
        Self { bytes: Arc::from(bytes), start: 0 }
    }
}

impl PartialEq for Data {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Data {}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self)
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Data;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Data, E> {
                Ok(Data::from(bytes))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}
