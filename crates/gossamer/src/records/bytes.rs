//! [`Bytes`]: plain data on its way to a trustee or back, as its bytes.

use std::fmt;
use std::marker::PhantomData;

use gossamer_segment::Plain;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Plain data, serialised as its bytes. So `T` needs no `Serialize`, and may be an array of any
/// length.
#[derive(Clone, Copy)]
pub(super) struct Bytes<T>(pub(super) T);

impl<T: Plain> Serialize for Bytes<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0.as_bytes())
    }
}

impl<'de, T: Plain> Deserialize<'de> for Bytes<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Visitor(PhantomData))
    }
}

struct Visitor<T>(PhantomData<T>);

impl<T: Plain> de::Visitor<'_> for Visitor<T> {
    type Value = Bytes<T>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", size_of::<T>())
    }
    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Bytes<T>, E> {
        T::read_from_bytes(bytes).map(Bytes).map_err(|_| E::invalid_length(bytes.len(), &self))
    }
}
