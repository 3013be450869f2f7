//! Many keys and values in one message.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::codec::{Entries, decode_entries};

/// The message of `entries`, without what is in front.
fn sent(entries: &mut Entries, front: &[u8]) -> Vec<u8> {
    let taken = entries.take(front, |bytes| bytes.unwrap().to_vec()).expect("entries");
    assert_eq!(&taken[..front.len()], front);
    taken[front.len()..].to_vec()
}

/// What `bytes` are as entries, which borrow where they can.
fn received<'de, K: Deserialize<'de>, V: Deserialize<'de>>(
    bytes: &'de [u8],
) -> Result<Vec<(K, V)>, String> {
    let mut all = Vec::new();
    decode_entries(bytes, true, |key, value| all.push((key, value)))
        .map(|()| all)
        .map_err(|error| error.to_string())
}

/// A value whose code fails, one way or the other.
struct Fails {
    panics: bool,
}

impl Serialize for Fails {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::{Error, SerializeTuple};
        let mut part = serializer.serialize_tuple(2)?;
        part.serialize_element("a part of it")?;
        assert!(!self.panics, "no value");
        Err(S::Error::custom("no value"))
    }
}

proptest! {
    #[test]
    fn entries_come_back(
        rounds in prop::collection::vec(prop::collection::vec(any::<(String, Option<u64>)>(), 1..20), 1..4),
        front in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let mut entries = Entries::new(front.len());
        for round in rounds {
            for (key, value) in &round {
                entries.push(&key.as_str(), value).unwrap();
            }
            prop_assert_eq!(entries.count(), round.len());
            let bytes = sent(&mut entries, &front);
            let back = received::<&str, Option<u64>>(&bytes).unwrap();
            let back: Vec<_> = back.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            prop_assert_eq!(back, round);
            prop_assert!(received::<&str, Option<u64>>(&bytes[..bytes.len() - 1]).is_err());
        }
        prop_assert_eq!(entries.take(&front, |_| ()), None);
    }

    #[test]
    fn any_bytes_are_entries_or_are_refused(bytes: Vec<u8>, fields in 0u64..9) {
        for bytes in [&bytes, &message(&bytes, fields)] {
            let _ = received::<&str, Tree>(bytes);
            let _ = received::<(), ()>(bytes);
            let _ = received::<Vec<()>, Chain>(bytes);
            let _ = received::<u8, crate::Trust<u8>>(bytes);
            let _ = received::<Endless, ()>(bytes);
        }
    }
}

#[test]
fn entries_without_bytes_take_one_each() {
    let mut entries = Entries::new(0);
    (0..1000).for_each(|_| entries.push(&(), &()).unwrap());
    let bytes = sent(&mut entries, &[]);
    assert_eq!(bytes.len(), HEADER + 1000);
    assert_eq!(received::<(), ()>(&bytes).unwrap().len(), 1000);
}

#[test]
fn an_entry_that_fails_leaves_the_others() {
    let mut entries = Entries::new(3);
    for panics in [false, true] {
        // Also the first one.
        for key in ["before", "behind"] {
            let failed = catch_unwind(AssertUnwindSafe(|| {
                assert!(entries.push(&(1, 2), &Fails { panics }).is_err());
            }));
            assert_eq!(failed.is_err(), panics);
            entries.push(&key, &(1u8, 2u8)).unwrap();
        }
        let bytes = sent(&mut entries, b"abc");
        let back = received::<&str, (u8, u8)>(&bytes).unwrap();
        assert_eq!(back, [("before", (1, 2)), ("behind", (1, 2))]);
    }
}

#[test]
fn an_entry_for_which_a_message_has_no_room_is_refused() {
    struct Bytes(Vec<u8>);
    impl Serialize for Bytes {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(&self.0)
        }
    }
    let mut entries = Entries::new(0);
    entries.push(&1u8, &2u8).unwrap();
    let error = entries.push(&1u8, &Bytes(vec![0; MESSAGE_BYTES])).unwrap_err().to_string();
    assert!(error.contains("send it in parts"), "{error}");
    entries.push(&3u8, &4u8).unwrap();
    assert_eq!(received::<u8, u8>(&sent(&mut entries, &[])).unwrap(), [(1, 2), (3, 4)]);
}

#[test]
fn entries_whose_sides_differ_are_refused() {
    let mut entries = Entries::new(0);
    entries.push(&1u8, &(2u8, 3u8)).unwrap();
    let said = received::<u8, [u8; 1]>(&sent(&mut entries, &[])).unwrap_err();
    assert!(said.contains("ends before") || said.contains("does not read all"), "{said}");
}
