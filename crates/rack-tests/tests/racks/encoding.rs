//! What cannot cross the rack is an error at the caller, and never another value; and only the
//! rack's own encoding makes trusts.

use std::fmt::{self, Debug};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use gossamer::{DelegateError, HostId, Rack, ThreadId, Trust, local_trustee, trustee};
use serde::de::value::{Error, SeqDeserializer, UnitDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer, Visitor};
use serde::ser::{Impossible, SerializeTuple};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Runs `main` with a property on another thread.
fn with_another_thread(main: impl FnOnce(Trust<u32>) + Send + 'static) {
    let rack = Rack::new().threads(2);
    rack.run(|| main(trustee(ThreadId { host: HostId(0), thread: 1 }).entrust(0u32)))
        .expect("a rack that ends well");
}

/// Sends `value` there and back, with a neighbour that a shift would change.
fn echoed<V>(there: &Trust<u32>, value: V) -> Result<V, DelegateError>
where
    V: Serialize + DeserializeOwned + 'static,
{
    let echo = |calls: &mut u32, (value, text): (V, String)| {
        *calls += 1;
        (value, text)
    };
    let (value, text) = there.try_apply_with(echo, (value, "\0".to_owned()))?;
    assert_eq!(text, "\0");
    Ok(value)
}

/// Every kind of error of the lower layers arrives with its message and those of its causes.
#[test]
fn errors_arrive_as_they_were() {
    use std::io;
    use std::sync::Arc;

    use gossamer::segment::{Label, Name};
    use gossamer::{LookupError, LossReason, RecordsError, Rights, SegmentError};
    use transport_api::{LaneError, OpError, RegionError, RegionKey};

    let (host, key) = (HostId(3), RegionKey(7));
    let name = Name::new("prices").unwrap();
    let segment = Label { name, host };
    let no_memory = || io::Error::from_raw_os_error(12);
    let lost = || LossReason::ProcessEnded { pid: 9, how: "signal 9".into() };
    let region =
        |source| SegmentError::Region { segment: segment.clone(), source: Arc::new(source) };
    let refused = |source| SegmentError::Refused { segment: segment.clone(), source };
    let errors = vec![
        SegmentError::InvalidName(Name::new("no name").unwrap_err()),
        SegmentError::NotAttached,
        SegmentError::NotFound { name, hosts: vec![host, HostId(4)] },
        SegmentError::OtherKind { name, host, expected: "segment".into() },
        SegmentError::Rights { segment: segment.clone(), has: Rights::READ, needs: Rights::ALL },
        SegmentError::Denied { segment: segment.clone(), host },
        SegmentError::NeverNotified(segment.clone()),
        SegmentError::OutOfBounds { segment: segment.clone(), at: 1, count: 2, len: 3 },
        SegmentError::PeerLost(host, lost()),
        region(RegionError::NoMemory { len: 5, source: no_memory() }),
        region(RegionError::NoMemory { len: 5, source: io::Error::other("no page") }),
        region(RegionError::NotQuiet { key, hosts: vec![host] }),
        refused(OpError::Rights { key, has: Rights::NONE, needs: Rights::ATOMIC }),
        refused(OpError::Foreign(key)),
        SegmentError::Lane(Arc::new(LaneError::System(no_memory()))),
        SegmentError::System { what: "cannot pin".into(), source: Arc::new(no_memory()) },
    ];
    let delegate = DelegateError::NoRack("the rack has ended".into());
    let lookup = LookupError::Delegate { name, host, source: delegate.clone() };
    let records = RecordsError::PeerLost { host, reason: lost() };
    with_another_thread(move |there| {
        let text = |error: &dyn std::error::Error| trust_core::Chain(error).to_string();
        for error in errors {
            let arrived = echoed(&there, error.clone()).expect("a result");
            assert_eq!(text(&arrived), text(&error));
            assert_eq!(format!("{arrived:?}"), format!("{error:?}"));
        }
        assert_eq!(text(&echoed(&there, delegate.clone()).unwrap()), text(&delegate));
        assert_eq!(text(&echoed(&there, lookup.clone()).unwrap()), text(&lookup));
        assert_eq!(text(&echoed(&there, records.clone()).unwrap()), text(&records));
    });
}

/// Checks that `value` is refused before any closure runs, in words that contain `words`.
#[track_caller]
fn is_refused<V>(there: &Trust<u32>, value: V, words: &[&str])
where
    V: Serialize + DeserializeOwned + Debug + 'static,
{
    let before = there.apply(|calls| *calls);
    let error = echoed(there, value).expect_err("a value that cannot cross the rack");
    let error = trust_core::Chain(&error).to_string();
    for part in words {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(there.apply(|calls| *calls), before, "a closure ran");
}

#[derive(Debug, PartialEq, Clone, Serialize, Deserialize)]
struct Optional {
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<u8>,
    b: u8,
}

#[derive(Debug, Serialize, Deserialize)]
enum OptionalVariant {
    Only {
        #[serde(skip_serializing_if = "Option::is_none")]
        a: Option<u8>,
        b: u8,
    },
}

#[derive(Debug, PartialEq, Clone, Serialize, Deserialize)]
struct OptionalInTuple(#[serde(skip_serializing_if = "Option::is_none")] Option<u8>, u8);

#[derive(Debug, Serialize, Deserialize)]
struct OnlyWritten {
    #[serde(skip_deserializing)]
    _a: u8,
    b: u8,
}

#[derive(Debug, Serialize, Deserialize)]
struct OnlyRead {
    #[serde(skip_serializing)]
    _a: u8,
    b: u8,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type")]
struct Tagged {
    a: u8,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type")]
enum TaggedInside {
    A { a: u8 },
}

#[derive(Debug, PartialEq, Clone, Serialize, Deserialize)]
#[serde(tag = "type", content = "content")]
enum TaggedBeside {
    A { a: u8 },
    B(u8, u8),
    C,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    A(u8),
}

#[derive(Debug, Serialize, Deserialize)]
struct Flat {
    #[serde(flatten)]
    optional: Plain,
}

#[derive(Debug, PartialEq, Clone, Serialize, Deserialize)]
struct Plain {
    #[serde(alias = "aleph", default)]
    a: Option<u8>,
    #[serde(skip)]
    skipped: u8,
    b: u8,
}

#[derive(Debug, PartialEq, Clone, Serialize, Deserialize)]
enum Skipping {
    #[serde(skip)]
    _Never,
    Second(u8),
    Third(u8),
}

#[test]
fn values_that_serialize_and_deserialize_see_differently_are_refused() {
    with_another_thread(|there| {
        let skips = ["`a`", "skip_serializing_if"];
        is_refused(&there, Optional { a: None, b: 0 }, &skips);
        is_refused(&there, vec![Some(Optional { a: None, b: 0 })], &skips);
        is_refused(&there, OptionalVariant::Only { a: None, b: 0 }, &skips);
        is_refused(&there, OptionalInTuple(None, 0), &["skip_serializing_if"]);
        is_refused(&there, OnlyWritten { _a: 0, b: 0 }, &["skip_deserializing"]);
        is_refused(&there, OnlyRead { _a: 0, b: 0 }, &["skip_serializing"]);
        is_refused(&there, Tagged { a: 0 }, &["serde(tag)"]);
        for value in [Skipping::Second(1), Skipping::Third(1)] {
            is_refused(&there, value, &[""]);
        }
    });
}

#[test]
fn values_that_need_names_are_refused_with_the_attribute_and_the_way_out() {
    with_another_thread(|there| {
        let names =
            ["serde(untagged)", "serde(tag)", "serde(flatten)", "serde_json::Value", "JSON"];
        is_refused(&there, TaggedInside::A { a: 0 }, &names);
        is_refused(&there, Untagged::A(0), &names);
        is_refused(&there, serde_json::json!({"a": [0, null]}), &names);
        let optional = Plain { a: None, skipped: 0, b: 0 };
        is_refused(&there, Flat { optional }, &["serde(flatten)", "a field of its own"]);
    });
}

#[test]
fn values_with_harmless_attributes_come_back() {
    with_another_thread(|there| {
        let plain = Plain { a: None, skipped: 0, b: 7 };
        assert_eq!(echoed(&there, plain.clone()).expect("a plain value"), plain);
        let optional = Optional { a: Some(1), b: 2 };
        assert_eq!(echoed(&there, optional.clone()).expect("all fields"), optional);
        let optional = OptionalInTuple(Some(1), 2);
        assert_eq!(echoed(&there, optional.clone()).expect("all fields"), optional);
        for value in [TaggedBeside::A { a: 1 }, TaggedBeside::B(1, 2), TaggedBeside::C] {
            if let Ok(echo) = echoed(&there, value.clone()) {
                assert_eq!(echo, value);
            }
        }
    });
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Expression {
    Number(u8),
    Not(Box<Expression>),
}

/// An expression of this many levels.
fn expression(levels: usize) -> Expression {
    (1..levels).fold(Expression::Number(1), |inner, _| Expression::Not(Box::new(inner)))
}

#[test]
fn values_nested_too_deep_are_refused_by_their_sender() {
    with_another_thread(|there| {
        let most = primitive::limits::NESTING as usize;
        let fits = || expression(most - 1);
        assert_eq!(echoed(&there, fits()).expect("a value that is not too deep"), fits());
        is_refused(&there, expression(most + 1), &["cannot encode", "nested", "Vec"]);
    });
}

static DROPPED: AtomicU32 = AtomicU32::new(0);

/// A property that counts its end.
struct Kept;

impl Drop for Kept {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, SeqCst);
    }
}

/// A deserializer that hands a trust's own visitor to `f`, in place of what the rack's would do.
struct Imitation;

impl<'de> Deserializer<'de> for Imitation {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Tries to make a trust of `Kept` by deserializers of others, from the numbers of one.
fn forge(numbers: [u64; 3]) {
    let numbers = || SeqDeserializer::<_, Error>::new(numbers.into_iter());
    assert!(Trust::<Kept>::deserialize(numbers()).is_err());
    assert!(Trust::<Kept>::deserialize(UnitDeserializer::<Error>::new()).is_err());
    assert!(Trust::<Kept>::deserialize(Imitation).is_err());
    let one: serde::de::value::U64Deserializer<Error> = 1u64.into_deserializer();
    assert!(Trust::<Kept>::deserialize(one).is_err());
    assert!(serde_json::from_str::<Trust<Kept>>("[0, 1, 1]").is_err());
    assert!(serde_json::from_str::<Trust<Kept>>("null").is_err());
}

/// A value that tries to forge a trust while the rack's encoding is at work.
#[derive(Debug)]
struct Forger;

impl Serialize for Forger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct("gossamer::Trust", &(0u32, 1u32, 1u64))
    }
}

impl<'de> Deserialize<'de> for Forger {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        forge([0, 1, 1]);
        match Trust::<Kept>::deserialize(deserializer) {
            Ok(forged) => panic!("{forged:?} was forged"),
            Err(error) => Err(error),
        }
    }
}

/// A serializer that finds out what a trust is made of.
struct Spy;

macro_rules! refuse {
    ($($method:ident $type:ty),*) => {
        $(fn $method(self, _: $type) -> Result<(), fmt::Error> { Ok(()) })*
    };
}

impl Serializer for Spy {
    type Ok = ();
    type Error = fmt::Error;
    type SerializeSeq = Impossible<(), fmt::Error>;
    type SerializeTuple = SpyTuple;
    type SerializeTupleStruct = Impossible<(), fmt::Error>;
    type SerializeTupleVariant = Impossible<(), fmt::Error>;
    type SerializeMap = Impossible<(), fmt::Error>;
    type SerializeStruct = Impossible<(), fmt::Error>;
    type SerializeStructVariant = Impossible<(), fmt::Error>;

    refuse! {
        serialize_bool bool, serialize_i8 i8, serialize_i16 i16, serialize_i32 i32,
        serialize_i64 i64, serialize_u8 u8, serialize_u16 u16, serialize_u32 u32, serialize_u64 u64,
        serialize_f32 f32, serialize_f64 f64, serialize_char char, serialize_str &str,
        serialize_bytes &[u8], serialize_unit_struct &'static str
    }
    fn serialize_none(self) -> Result<(), fmt::Error> {
        Ok(())
    }
    fn serialize_unit(self) -> Result<(), fmt::Error> {
        Ok(())
    }
    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<(), fmt::Error> {
        value.serialize(self)
    }
    fn serialize_newtype_struct<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), fmt::Error> {
        value.serialize(self)
    }
    fn serialize_tuple(self, _: usize) -> Result<SpyTuple, fmt::Error> {
        Ok(SpyTuple)
    }
    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
    ) -> Result<(), fmt::Error> {
        Ok(())
    }
    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), fmt::Error> {
        value.serialize(self)
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, fmt::Error> {
        Err(fmt::Error)
    }
    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, fmt::Error> {
        Err(fmt::Error)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, fmt::Error> {
        Err(fmt::Error)
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, fmt::Error> {
        Err(fmt::Error)
    }
    fn serialize_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStruct, fmt::Error> {
        Err(fmt::Error)
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, fmt::Error> {
        Err(fmt::Error)
    }
    fn is_human_readable(&self) -> bool {
        false
    }
}

struct SpyTuple;

impl SerializeTuple for SpyTuple {
    type Ok = ();
    type Error = fmt::Error;
    fn serialize_element<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), fmt::Error> {
        value.serialize(Spy)
    }
    fn end(self) -> Result<(), fmt::Error> {
        Ok(())
    }
}

#[test]
fn only_the_racks_own_encoding_makes_and_takes_trusts() {
    with_another_thread(|there| {
        let living = local_trustee().entrust(Kept);
        forge([0, 1, 1]);
        forge([1, 1, 1]);
        is_refused(&there, Forger, &["cannot decode the arguments"]);
        assert!(living.serialize(Spy).is_err());
        assert!(serde_json::to_string(&living).is_err());
        assert!(serde_json::to_string(&Some(&living)).is_err());
        // Sent and taken back: the encoding that may.
        let echo = |_: &mut u32, trusts: Vec<Trust<Kept>>| trusts;
        let echoed = there.apply_with(echo, vec![living.clone(), living]);
        echoed[0].apply(|_: &mut Kept| ());
        assert_eq!(DROPPED.load(SeqCst), 0, "the property died before its last trust");
        drop(echoed);
        while DROPPED.load(SeqCst) == 0 {
            gossamer::yield_now();
        }
    });
    assert_eq!(DROPPED.load(SeqCst), 1, "a trust that others were refused kept the property alive");
}
