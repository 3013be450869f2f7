//! Vectors of numbers are copied as blocks, into the bytes that their elements have one by one.

use std::fmt;

use proptest::prelude::*;
use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{message, refusal};
use crate::codec::{decode, encode_to_vec};

fn encoded<V: Serialize + 'static>(value: &V) -> Vec<u8> {
    encode_to_vec(value).expect("numbers and strings")
}

/// A vector that is encoded and decoded element by element.
#[derive(Clone, Debug, PartialEq)]
struct OneByOne<T>(Vec<T>);

impl<T: Serialize> Serialize for OneByOne<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(Some(self.0.len()))?;
        self.0.iter().try_for_each(|element| sequence.serialize_element(element))?;
        sequence.end()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneByOne<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Makes the same type of value as serde's visitor, in the opposite order.
        struct Backwards<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Backwards<T> {
            type Value = Vec<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = elements.next_element()? {
                    values.insert(0, value);
                }
                Ok(values)
            }
        }
        let mut values = deserializer.deserialize_seq(Backwards(std::marker::PhantomData))?;
        values.reverse();
        Ok(OneByOne(values))
    }
}

/// Both kinds of vector have the same encoding, and each is decoded from that of the other.
fn are_equal<T>(numbers: &[T])
where
    T: Clone + fmt::Debug + PartialEq + Serialize + DeserializeOwned + 'static,
{
    let value = (7u8, numbers.to_vec(), "behind".to_owned());
    let bytes = encoded(&value);
    let one_by_one = (7u8, OneByOne(numbers.to_vec()), "behind".to_owned());
    assert_eq!(encoded(&one_by_one), bytes);
    let boxed: Box<[T]> = numbers.into();
    assert_eq!(encoded(&(7u8, boxed, "behind".to_owned())), bytes);
    assert_eq!(decode::<(u8, Vec<T>, String)>(&bytes).unwrap(), value);
    assert_eq!(decode::<(u8, OneByOne<T>, String)>(&bytes).unwrap(), one_by_one);
}

proptest! {
    #[test]
    fn blocks_are_what_elements_are(
        bytes: Vec<u8>, words: Vec<u64>, signed: Vec<i16>, long: Vec<i128>, real: Vec<i32>,
        texts: Vec<String>,
    ) {
        are_equal(&bytes);
        are_equal(&words);
        are_equal(&signed);
        are_equal(&long);
        are_equal(&real.iter().map(|number| *number as f32).collect::<Vec<_>>());
        are_equal(&real.iter().map(|number| f64::from(*number)).collect::<Vec<_>>());
        are_equal(&texts);
        are_equal(&[words, vec![]]);
    }
}

/// serde's visitor reserves no more than a megabyte in advance, and then doubles.
#[test]
fn vectors_of_numbers_are_decoded_at_once() {
    let bytes = vec![5u8; (1 << 20) + 3];
    let back: Vec<u8> = decode(&encoded(&bytes)).unwrap();
    assert_eq!((back.len(), back.capacity()), (bytes.len(), bytes.len()));
    let words: Vec<Vec<i64>> = vec![vec![-5; (1 << 17) + 3]];
    let back: Vec<Vec<i64>> = decode(&encoded(&words)).unwrap();
    assert_eq!((back[0].len(), back[0].capacity()), (words[0].len(), words[0].len()));
}

#[test]
fn blocks_that_are_cut_short_are_refused() {
    let mut body = 3u32.to_le_bytes().to_vec();
    body.extend([0; 20]);
    let words = message(&body, 0);
    assert!(refusal::<Vec<u64>>(&words).contains("ends before all of it"));
    assert!(refusal::<Vec<u32>>(&words).contains("does not read all"));
    body.truncate(6);
    assert!(refusal::<Vec<u8>>(&message(&body, 0)).contains("a length of 3 with 2"));
}
