//! Trusts inside messages.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::ser::Impossible;
use serde::{Deserializer, Serializer};
use transport_shm::ShmTransport;

use crate::codec::tests::*;
use crate::{EnteredNode, Node, Trust, Wiring, local_trustee};

/// Makes this thread a node with a property.
fn enter() -> (Wiring, EnteredNode, Trust<u8>) {
    let wiring = Wiring::connect(ShmTransport::threads(1).unwrap(), 0, Duration::from_secs(10));
    let wiring = wiring.expect("a wired rack");
    let node = Node::enter(wiring.node(0).expect("a node"));
    let trust = local_trustee().entrust(5u8);
    (wiring, node, trust)
}

/// Drops the only trust that is left, and checks that no message keeps the property alive.
#[track_caller]
fn dies_with(trust: Trust<u8>, node: &EnteredNode) {
    assert_eq!(node.alive().len(), 1, "the property is alive with its trust");
    drop(trust);
    assert!(node.alive().is_empty(), "a message that is gone keeps the property alive");
}

/// Is encoded with an error, or with a panic.
#[derive(Deserialize)]
struct Unfit(bool);

impl Serialize for Unfit {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        assert!(!self.0, "unfit");
        Err(serde::ser::Error::custom("unfit"))
    }
}

#[test]
fn trusts_of_a_value_that_cannot_be_encoded_are_given_back() {
    let (_wiring, node, trust) = enter();
    for panics in [false, true] {
        let value = (trust.clone(), Unfit(panics));
        let encode = AssertUnwindSafe(|| encode_to_vec(&value).is_err());
        assert_eq!(catch_unwind(encode).ok(), (!panics).then_some(true));
    }
    dies_with(trust, &node);
}

#[test]
fn trusts_of_a_value_that_cannot_be_decoded_are_given_back() {
    let (_wiring, node, trust) = enter();
    let bytes = || encode_to_vec(&(2u8, trust.clone(), trust.clone())).expect("bytes");
    assert!(decode::<(bool, Trust<u8>, Trust<u8>)>(&bytes()).is_err(), "no boolean");
    assert!(decode::<(u8, Trust<u8>)>(&bytes()).is_err(), "two fields of three");
    assert!(decode::<(u8, Trust<u8>, Refuses)>(&bytes()).is_err(), "the visitor refuses");
    dies_with(trust, &node);
}

#[test]
fn trusts_that_were_decoded_live_until_they_are_dropped() {
    let (_wiring, node, trust) = enter();
    let bytes = encode_to_vec(&(trust.clone(), 7u8)).expect("bytes");
    drop(trust);
    assert_eq!(node.alive().len(), 1, "the message keeps the property alive");
    let (trust, _) = decode::<(Trust<u8>, u8)>(&bytes).expect("a trust");
    assert_eq!(trust.apply(|value| *value), 5);
    dies_with(trust, &node);
}

/// Asks for a trust and does not take it.
#[derive(Debug)]
struct Refuses;

impl<'de> Deserialize<'de> for Refuses {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Refusing;
        impl serde::de::Visitor<'_> for Refusing {
            type Value = Refuses;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("nothing")
            }
        }
        from.deserialize_newtype_struct("gossamer::Trust", Refusing)
    }
}

/// A newtype struct named like a trust.
struct Forged;

impl Serialize for Forged {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct("gossamer::Trust", &7u8)
    }
}

type Hook = Box<dyn FnOnce()>;

/// A serializer of a user around the codec's, which does something before a newtype struct.
struct Around<S>(S, RefCell<Option<Hook>>);

/// A trust that is serialized by such a serializer.
struct Wrapped<'a>(&'a Trust<u8>, RefCell<Option<Hook>>);

impl<'a> Wrapped<'a> {
    fn new(trust: &'a Trust<u8>, hook: impl FnOnce() + 'static) -> Self {
        Wrapped(trust, RefCell::new(Some(Box::new(hook))))
    }
}

impl Serialize for Wrapped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(Around(serializer, RefCell::new(self.1.take())))
    }
}

macro_rules! refuse {
    ($($method:ident($($argument:ty),*) -> $out:ty;)*) => {
        $(fn $method(self, $(_: $argument),*) -> Result<$out, S::Error> {
            unreachable!("a trust is a newtype struct")
        })*
    };
}

impl<S: Serializer> Serializer for Around<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Impossible<S::Ok, S::Error>;
    type SerializeTuple = Impossible<S::Ok, S::Error>;
    type SerializeTupleStruct = Impossible<S::Ok, S::Error>;
    type SerializeTupleVariant = Impossible<S::Ok, S::Error>;
    type SerializeMap = Impossible<S::Ok, S::Error>;
    type SerializeStruct = Impossible<S::Ok, S::Error>;
    type SerializeStructVariant = Impossible<S::Ok, S::Error>;

    fn serialize_newtype_struct<V: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &V,
    ) -> Result<S::Ok, S::Error> {
        if let Some(hook) = self.1.take() {
            hook();
        }
        self.0.serialize_newtype_struct(name, value)
    }

    refuse! {
        serialize_bool(bool) -> S::Ok;
        serialize_i8(i8) -> S::Ok;
        serialize_i16(i16) -> S::Ok;
        serialize_i32(i32) -> S::Ok;
        serialize_i64(i64) -> S::Ok;
        serialize_u8(u8) -> S::Ok;
        serialize_u16(u16) -> S::Ok;
        serialize_u32(u32) -> S::Ok;
        serialize_u64(u64) -> S::Ok;
        serialize_f32(f32) -> S::Ok;
        serialize_f64(f64) -> S::Ok;
        serialize_char(char) -> S::Ok;
        serialize_str(&str) -> S::Ok;
        serialize_bytes(&[u8]) -> S::Ok;
        serialize_none() -> S::Ok;
        serialize_unit() -> S::Ok;
        serialize_unit_struct(&'static str) -> S::Ok;
        serialize_unit_variant(&'static str, u32, &'static str) -> S::Ok;
        serialize_seq(Option<usize>) -> Self::SerializeSeq;
        serialize_tuple(usize) -> Self::SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize)
            -> Self::SerializeTupleVariant;
        serialize_map(Option<usize>) -> Self::SerializeMap;
        serialize_struct(&'static str, usize) -> Self::SerializeStruct;
        serialize_struct_variant(&'static str, u32, &'static str, usize)
            -> Self::SerializeStructVariant;
    }

    fn serialize_some<V: Serialize + ?Sized>(self, _: &V) -> Result<S::Ok, S::Error> {
        unreachable!("a trust is a newtype struct")
    }

    fn serialize_newtype_variant<V: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &V,
    ) -> Result<S::Ok, S::Error> {
        unreachable!("a trust is a newtype struct")
    }
}

/// How many records of trusts there are in an encoded value.
fn records(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("a header")) >> TRUSTS_SHIFT
}

#[test]
fn a_serializer_that_panics_leaves_no_trust_for_a_forged_one_to_send() {
    let (_wiring, node, trust) = enter();
    let value = Wrapped::new(&trust, || panic!("unfit"));
    assert!(catch_unwind(AssertUnwindSafe(|| Encoded::<0>::new().encode(&value))).is_err());
    let mut forged = Encoded::<0>::new();
    forged.encode(&Forged).expect("a newtype struct");
    assert_eq!(records(forged.bytes()), 0, "a forged trust was sent");
    drop((forged, value));
    dies_with(trust, &node);
}

#[test]
fn a_serializer_that_sends_a_forged_trust_in_between_does_not_send_the_other() {
    let (_wiring, node, trust) = enter();
    let value = Wrapped::new(&trust, || {
        let mut forged = Encoded::<0>::new();
        forged.encode(&Forged).expect("a newtype struct");
        assert_eq!(records(forged.bytes()), 0, "a forged trust was sent");
    });
    let mut encoded = Encoded::<0>::new();
    encoded.encode(&value).expect("bytes");
    assert_eq!(records(encoded.bytes()), 1);
    drop(decode::<Trust<u8>>(encoded.bytes()).expect("a trust"));
    drop(value);
    dies_with(trust, &node);
}

#[test]
fn serializers_that_switch_fibers_send_each_its_own_trust() {
    let (_wiring, node, trust) = enter();
    let fibers = fiber::Scheduler::new(fiber::Config::default()).expect("a scheduler");
    let sent = std::rc::Rc::new(RefCell::new(Vec::new()));
    fibers.enter(|| {
        // The first to begin is the first to go on.
        for _ in 0..2 {
            let (trust, sent) = (trust.clone(), sent.clone());
            let _ = fiber::spawn_local(move || {
                let value = (Wrapped::new(&trust, fiber::yield_now), Wrapped::new(&trust, || ()));
                let mut encoded = Encoded::<0>::new();
                let ended = encoded.encode(&value).map(|()| records(encoded.bytes()));
                sent.borrow_mut().push(ended.ok());
            });
        }
        while fibers.live() > 0 {
            fibers.run(10);
        }
    });
    assert_eq!(sent.take(), [Some(2), Some(2)]);
    drop((trust, node));
}
