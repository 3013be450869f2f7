//! How trusts pass through serde: only this crate's codec can make or take one.
//!
//! `Serialize` and `Deserialize` are public: user code can hand a [`Trust`](crate::Trust) any
//! serializer and deserializer of its own, also while the codec runs. So a trust's content never
//! passes through serde. The `Serialize` of a trust offers its record in a thread-local that only
//! the codec's encoder reads, and writes to a part of the message that nothing else writes to; the
//! decoder leaves a record in another thread-local, and `Deserialize` takes it from there. Serde
//! sees a newtype struct of a certain name around a value that cannot be serialised. User code can
//! imitate the name, but has no record to offer or to leave; each record that arrives makes one
//! trust.

use std::cell::RefCell;
use std::fmt;
use std::sync::OnceLock;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Serialize, Serializer, ser};

use crate::codec::fault::Fault;

/// The name by which the codec recognises a trust.
const NAME: &str = "gossamer::Trust";

const FOREIGN: &str = "a trust can only travel as an argument or a result of a delegated call, in the rack's own format";

/// The content of a trust on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The number of its trustee.
    pub(crate) home: u32,
    pub(crate) property: u32,
    /// The id that the trust is counted by.
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

    /// Drops the trust that this is the record of.
    pub(super) fn give_back(&self) {
        if let Some(drop_trust) = DROP_TRUST.get() {
            drop_trust(*self);
        }
    }
}

/// Drops the trust that a record stands for, if the thread belongs to a rack. The codec does not
/// know racks, so `node` installs the function once.
static DROP_TRUST: OnceLock<fn(Record)> = OnceLock::new();

/// Sets how the trusts of values that do not arrive are dropped: the same way in all calls.
pub(crate) fn drop_trusts_by(drop_trust: fn(Record)) {
    DROP_TRUST.get_or_init(|| drop_trust);
}

thread_local! {
    /// The records of trusts that are being serialised, by the addresses of their offers. There may
    /// be several, and they need not end in the reverse order of their beginning: a serializer of
    /// users may serialise other trusts in between, or let another fiber do that.
    static OFFERED: RefCell<Vec<(usize, Record)>> = const { RefCell::new(Vec::new()) };
    /// The records of trusts that are being deserialised.
    static ARRIVED: RefCell<Vec<Record>> = const { RefCell::new(Vec::new()) };
}

/// What a serializer gets as the content of a trust. Its address, at which the record is offered,
/// tells it from all others that are alive, and from what user code passes to the codec itself.
struct Offer<C>(Option<C>);

/// Serialises the trust `child`, whose record this is. If the codec has taken the record, so that
/// it travels, the trust is forgotten, however this ends: it is the receiver's. Else it is dropped,
/// and the result is an error, or something that the serializer made up.
pub(crate) fn serialize<S: Serializer, C>(
    record: Record,
    child: C,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let offer = Offer(Some(child));
    let _ = OFFERED.try_with(|offered| offered.borrow_mut().push((address_of(&offer), record)));
    serializer.serialize_newtype_struct(NAME, &offer)
}

fn address_of<V: ?Sized>(value: &V) -> usize {
    std::ptr::from_ref(value).cast::<()>().addr()
}

/// Takes the record that is offered at `address`.
fn take_offered(address: usize) -> Option<Record> {
    let mut offered = OFFERED.try_with(RefCell::take).ok()?;
    let at = offered.iter().rposition(|(other, _)| *other == address);
    let taken = at.map(|at| offered.swap_remove(at).1);
    OFFERED.set(offered);
    taken
}

impl<C> Drop for Offer<C> {
    fn drop(&mut self) {
        let child = self.0.take();
        // Where the thread's values have been dropped, nothing has been offered.
        let is_left = take_offered(address_of(self)).is_some() || OFFERED.try_with(|_| ()).is_err();
        if !is_left {
            std::mem::forget(child);
        }
    }
}

/// The content of a trust for any serializer other than the codec's.
impl<C> Serialize for Offer<C> {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(ser::Error::custom(FOREIGN))
    }
}

/// For the encoder: the record to write in place of the newtype struct `name`, which holds `value`,
/// if it is a trust.
#[inline(always)]
pub(super) fn offered<V: ?Sized>(name: &str, value: &V) -> Option<Record> {
    if name == NAME { take_offered(address_of(value)) } else { None }
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

    fn visit_u64<E: Error>(self, id: u64) -> Result<Record, E> {
        take_arrived(id).ok_or_else(|| E::custom(FOREIGN))
    }
}

/// For the decoder: whether the newtype struct `name` is a trust.
#[inline(always)]
pub(super) fn is_trust(name: &str) -> bool {
    name == NAME
}

/// For serializers that only measure: the encoded size of the newtype struct `name`, if it is a trust,
/// whose content they do not get.
#[doc(hidden)]
pub fn trust_bytes(name: &str) -> Option<usize> {
    is_trust(name).then_some(Record::BYTES)
}

/// Takes the record with this id out of those that have arrived.
fn take_arrived(id: u64) -> Option<Record> {
    let mut arrived = ARRIVED.try_with(RefCell::take).ok()?;
    let at = arrived.iter().rposition(|record| record.id == id);
    let taken = at.map(|at| arrived.swap_remove(at));
    ARRIVED.set(arrived);
    taken
}

/// For the decoder: hands `record` to the `Deserialize` of a trust, whose visitor this is. The
/// visitor gets the id, by which it takes the record; a record that it leaves is given back.
pub(super) fn hand_over<'de, V: Visitor<'de>>(
    record: Record,
    visitor: V,
) -> Result<V::Value, Fault> {
    struct Handover(u64);
    impl Drop for Handover {
        fn drop(&mut self) {
            if let Some(record) = take_arrived(self.0) {
                record.give_back();
            }
        }
    }
    let _ = ARRIVED.try_with(|arrived| arrived.borrow_mut().push(record));
    let _handover = Handover(record.id);
    visitor.visit_u64(record.id)
}
