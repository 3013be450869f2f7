//! How trusts pass through serde: only this crate's codec can make or take one.
//!
//! `Serialize` and `Deserialize` are public: user code can hand a [`Trust`](crate::Trust) any
//! serializer and deserializer of its own, also while the codec runs. So a trust's content never
//! passes through serde. The `Serialize` of a trust offers its record in a thread-local that only
//! the codec's encoder reads, and writes to a part of the message that nothing else writes to; the
//! decoder leaves a record in another thread-local, and `Deserialize` takes it from there. Serde
//! sees a newtype struct of a certain name around nothing. User code can imitate the name, but has
//! no record to offer or to leave; each record that arrives makes one trust.

use super::fault::Fault;
use serde::{
    Serialize, Serializer,
    de::{Deserializer, Error, Visitor},
    ser,
};
use std::{cell::Cell, fmt};

/// The name by which the codec recognises a trust.
const NAME: &str = "gossamer::Trust";

const FOREIGN: &str = "a trust can only travel as an argument or a result of a delegated call, in the rack's own format";

/// What travels of a trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The number of its trustee.
    pub(crate) home: u32,
    pub(crate) property: u32,
    /// What the trust counts by.
    pub(crate) id: u64,
}

impl Record {
    pub(super) const BYTES: usize = 16;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let word = u64::from(self.property) << 32 | u64::from(self.home);
        (u128::from(self.id) << 64 | u128::from(word)).to_le_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let bits = u128::from_le_bytes(bytes);
        Record { home: bits as u32, property: (bits >> 32) as u32, id: (bits >> 64) as u64 }
    }
}

thread_local! {
    /// The record of a trust that is being serialised.
    static OFFERED: Cell<Option<Record>> = const { Cell::new(None) };
    /// The record of a trust that is being deserialised.
    static ARRIVED: Cell<Option<Record>> = const { Cell::new(None) };
}

/// Serialises a trust with this record; the boolean says whether the codec has taken the record, so
/// that it travels (if not, the result is an error, or something that the serializer made up).
pub(crate) fn serialize<S: Serializer>(
    record: Record,
    serializer: S,
) -> (Result<S::Ok, S::Error>, bool) {
    let outer = OFFERED.replace(Some(record));
    let result = serializer.serialize_newtype_struct(NAME, &Foreign);
    (result, OFFERED.replace(outer).is_none())
}

/// What a serializer other than the codec's finds in a trust.
struct Foreign;

impl Serialize for Foreign {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(ser::Error::custom(FOREIGN))
    }
}

/// For the encoder: the record to write in place of the newtype struct `name`, if it is a trust.
#[inline(always)]
pub(super) fn offered(name: &str) -> Option<Record> {
    if name == NAME { OFFERED.take() } else { None }
}

/// Deserialises a trust: what it is made of.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Record, D::Error> {
    deserializer.deserialize_newtype_struct(NAME, Arrival)
}

struct Arrival;

impl Visitor<'_> for Arrival {
    type Value = Record;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a trust ({FOREIGN})")
    }

    fn visit_unit<E: Error>(self) -> Result<Record, E> {
        ARRIVED.take().ok_or_else(|| E::custom(FOREIGN))
    }
}

/// For the decoder: whether the newtype struct `name` is a trust.
#[inline(always)]
pub(super) fn is_trust(name: &str) -> bool {
    name == NAME
}

/// For the decoder: hands `record` to the `Deserialize` of a trust, whose visitor this is.
pub(super) fn hand_over<'de, V: Visitor<'de>>(
    record: Record,
    visitor: V,
) -> Result<V::Value, Fault> {
    let outer = ARRIVED.replace(Some(record));
    let value = visitor.visit_unit();
    ARRIVED.set(outer);
    value
}
