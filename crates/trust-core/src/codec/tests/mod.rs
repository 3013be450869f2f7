//! What is encoded comes back, and bytes that no encoder writes are refused.

mod blocks;
mod entries;
mod trusts;

use std::collections::BTreeMap;

use primitive::limits::{MESSAGE_BYTES, NESTING};
use proptest::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::*;

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
}

/// What `bytes` are refused with as a `V`.
#[track_caller]
fn refusal<V: DeserializeOwned>(bytes: &[u8]) -> String {
    match decode::<V>(bytes) {
        Ok(_) => panic!("{bytes:?} was taken for a {}", std::any::type_name::<V>()),
        Err(error) => error.to_string(),
    }
}

/// A message with this body, that claims these fields and has no trusts.
fn message(body: &[u8], fields: u64) -> Vec<u8> {
    let header = body.len() as u64 | fields << FIELDS_SHIFT;
    [&header.to_le_bytes()[..], body].concat()
}

/// Everything that the format can say, recursion included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Tree {
    Leaf,
    Number(u64),
    Pair(Box<Tree>, Option<Box<Tree>>),
    Nodes { all: Vec<Tree>, nothing: Vec<()>, named: BTreeMap<String, Tree> },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Chain(Option<Box<Chain>>);

/// The same without a level of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
struct Bare(Option<Box<Bare>>);

/// Recursion that takes no bytes at all.
#[derive(Debug, Deserialize)]
struct Endless(#[allow(dead_code)] Box<Endless>);

fn any_tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![Just(Tree::Leaf), any::<u64>().prop_map(Tree::Number)];
    leaf.prop_recursive(5, 40, 4, |inner| {
        let nodes = prop::collection::vec(inner.clone(), 0..4);
        let named = prop::collection::btree_map(any::<String>(), inner.clone(), 0..3);
        prop_oneof![
            (inner.clone(), prop::option::of(inner))
                .prop_map(|(left, right)| Tree::Pair(Box::new(left), right.map(Box::new))),
            (nodes, 0..4usize, named).prop_map(|(all, nothing, named)| Tree::Nodes {
                all,
                nothing: vec![(); nothing],
                named
            }),
        ]
    })
}

/// Decodes as every type, which must not panic, overflow the stack or allocate what is not there.
fn decode_as_all(bytes: &[u8]) {
    let _ = decode::<Wild>(bytes);
    let _ = decode::<Vec<Vec<u8>>>(bytes);
    let _ = decode::<(u64, bool, f32, String)>(bytes);
    let _ = decode::<Tree>(bytes);
    let _ = decode::<Chain>(bytes);
    let _ = decode::<Bare>(bytes);
    let _ = decode::<Vec<()>>(bytes);
    let _ = decode::<BTreeMap<(), Vec<Chain>>>(bytes);
    let _ = decode::<Endless>(bytes);
    let _ = decode::<crate::Trust<u8>>(bytes);
    let _ = decode_front::<Vec<Tree>>(bytes);
}

proptest! {
    #[test]
    fn trees_come_back(tree in any_tree()) {
        let mut encoded = Encoded::<64>::new();
        encoded.encode(&tree).unwrap();
        prop_assert_eq!(decode::<Tree>(encoded.bytes()).unwrap(), tree.clone());
        let padded = [encoded.bytes(), &[7; 9][..]].concat();
        prop_assert_eq!(decode_front::<Tree>(&padded).unwrap(), tree);
        prop_assert!(decode::<Tree>(&padded).is_err());
        prop_assert!(decode::<Tree>(&encoded.bytes()[..encoded.len - 1]).is_err());
    }

    #[test]
    fn any_bytes_decode_or_are_refused(bytes: Vec<u8>, fields in 0u64..9) {
        decode_as_all(&bytes);
        decode_as_all(&message(&bytes, fields));
    }

    #[test]
    fn damaged_bytes_decode_or_are_refused(tree in any_tree(), at: prop::sample::Index, byte: u8) {
        let mut bytes = encode_to_vec(&tree).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        decode_as_all(&bytes);
    }
}

#[test]
fn lengths_that_exceed_the_bytes_that_are_left_are_refused_before_anything_else() {
    /// Whatever reads it has believed a length.
    struct Believed;
    impl<'de> Deserialize<'de> for Believed {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            struct Never;
            impl<'de> serde::de::Visitor<'de> for Never {
                type Value = Believed;
                fn expecting(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    Ok(())
                }
                fn visit_seq<A>(self, seq: A) -> Result<Believed, A::Error>
                where
                    A: serde::de::SeqAccess<'de>,
                {
                    panic!("a length of {:?} was believed", seq.size_hint());
                }
            }
            from.deserialize_seq(Never)
        }
    }
    for claim in [1, 512 << 20, u32::MAX] {
        let bytes = message(&claim.to_le_bytes(), 0);
        for said in [
            refusal::<String>(&bytes),
            refusal::<Vec<()>>(&bytes),
            refusal::<Vec<u64>>(&bytes),
            refusal::<BTreeMap<(), ()>>(&bytes),
            refusal::<Believed>(&bytes),
        ] {
            assert!(said.contains(&format!("a length of {claim} with 0 bytes left")), "{said}");
        }
    }
}

#[test]
fn elements_without_bytes_take_one_each() {
    let nothing = encode_to_vec(&vec![(); 1000]).unwrap();
    assert_eq!(nothing.len(), HEADER + size_of::<u32>() + 1000);
    assert_eq!(decode::<Vec<()>>(&nothing).unwrap().len(), 1000);
    let keyed = BTreeMap::from([((), ())]);
    assert_eq!(decode::<BTreeMap<(), ()>>(&encode_to_vec(&keyed).unwrap()).unwrap(), keyed);
    // `usize::MAX` of them are refused where they are sent, at once.
    let error = encode_to_vec(&vec![(); usize::MAX]).unwrap_err().to_string();
    assert!(error.contains(&usize::MAX.to_string()), "{error}");
}

#[test]
fn values_may_be_nested_to_a_depth_on_both_sides() {
    fn chain(levels: usize) -> Chain {
        (1..levels).fold(Chain(None), |inner, _| Chain(Some(Box::new(inner))))
    }
    // A newtype and an option.
    let most = NESTING as usize / 2;
    let encoded = encode_to_vec(&chain(most)).expect("a value that is not too deep");
    assert!(decode::<Chain>(&encoded).is_ok());
    let error = encode_to_vec(&chain(most + 1)).unwrap_err().to_string();
    assert!(error.contains("nested"), "{error}");
    let deep = message(&[1; 30_000], 0);
    for said in
        [refusal::<Chain>(&deep), refusal::<Bare>(&deep), refusal::<Endless>(&message(&[], 0))]
    {
        assert!(said.contains("nested"), "{said}");
    }
}

#[test]
fn bytes_that_are_left_and_fields_that_are_missing_are_refused() {
    let said = refusal::<(u8, u8)>(&message(&[1, 2, 3], 2));
    assert!(said.contains("does not read all"), "{said}");
    let said = refusal::<(u8, u8)>(&message(&[1, 2], 3));
    assert!(said.contains("does not read all"), "{said}");
    assert_eq!(decode::<(u8, u8)>(&message(&[1, 2], 2)).unwrap(), (1, 2));
}

#[test]
fn a_message_larger_than_the_largest_is_refused_and_not_kept() {
    struct Bytes(Vec<u8>);
    impl Serialize for Bytes {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(&self.0)
        }
    }
    let mut encoded = Encoded::<8>::new();
    let error = encoded.encode(&Bytes(vec![0; MESSAGE_BYTES])).unwrap_err().to_string();
    assert!(error.contains("send it in parts"), "{error}");
    assert!(encoded.spilled.capacity() < MESSAGE_BYTES, "what is refused was kept");
}

#[test]
fn a_collection_that_miscounts_is_refused_where_it_is_sent() {
    use serde::ser::SerializeSeq;
    struct Miscounted(usize);
    impl Serialize for Miscounted {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut seq = serializer.serialize_seq(Some(2))?;
            (0..self.0).try_for_each(|n| seq.serialize_element(&n))?;
            seq.end()
        }
    }
    for count in [1, 3] {
        assert!(encode_to_vec(&Miscounted(count)).is_err());
    }
    assert!(encode_to_vec(&Miscounted(2)).is_ok());
}
