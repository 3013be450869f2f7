//! Tests of the encoding of entries: what is refused, and that no mixture of two contents passes.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::fuzzing::check_decode_of;

/// Any entry.
pub(crate) fn entries() -> impl Strategy<Value = Entry> {
    let name = "[a-zA-Z0-9._/-]{1,64}".prop_map(|name| Name::new(&name).expect("a name"));
    let notify = select(vec![Notify::Always, Notify::Never, Notify::Conditional]);
    let threads = 0..THREADS_PER_HOST as u32;
    let segment = (1..1u64 << 56, 1..=MAX_LEN, notify, threads.clone()).prop_map(
        |(number, len, notify, thread)| {
            let key = RegionKey::new(Namespace::SEGMENTS, number);
            Published::Segment { key, len, notify, thread }
        },
    );
    let trust = (threads, any::<u64>()).prop_map(|(thread, id)| Published::Trust { thread, id });
    (name, any::<u32>(), prop_oneof![segment, trust]).prop_map(|(name, generation, what)| Entry {
        name,
        generation,
        what,
    })
}

fn slots() -> impl Strategy<Value = Slot> {
    prop_oneof![Just(Slot::Empty), Just(Slot::Deleted), entries().prop_map(Slot::Entry)]
}

fn segment() -> Entry {
    let key = RegionKey::new(Namespace::SEGMENTS, 9);
    let what = Published::Segment { key, len: 4096, notify: Notify::Conditional, thread: 3 };
    Entry { name: Name::new("prices").expect("a name"), generation: 7, what }
}

/// What becomes of an entry if a peer changes one of its words, and the checksum with it.
fn with(word: usize, value: u64) -> Result<Slot, SlotError> {
    let mut words = segment().encode();
    words[word] = value;
    Slot::decode(&sealed(words))
}

fn malformed(why: Malformed) -> Result<Slot, SlotError> {
    Err(SlotError::Malformed(why))
}

#[test]
fn the_layout_is_the_documented_one() {
    let words = segment().encode();
    let name = u64::from_ne_bytes(*b"prices\0\0");
    let key = (2 << 56) | 9;
    assert_eq!(words[..8], [0x3_0006_0201, 7, key, 4096, 0, 0, 0, name]);
    assert_eq!(words[8..15], [0; 7]);
    assert_eq!(Slot::Deleted.encode()[0], 3);
}

#[test]
fn what_a_peer_may_not_write_is_malformed() {
    let head = segment().encode()[0];
    for kind in [0, 4, 255] {
        let why = Malformed::Kind(kind as u8);
        assert_eq!(with(0, head & !0xff | kind), malformed(why));
    }
    assert_eq!(with(0, head & !0xff00 | 3 << 8), malformed(Malformed::Notify(3)));
    assert_eq!(with(0, head & !0xff | 2), malformed(Malformed::Notify(2)));
    assert_eq!(with(0, head & !0xff_0000), malformed(Malformed::NameLen(0)));
    assert_eq!(with(0, head | 0xff_0000), malformed(Malformed::NameLen(255)));
    assert_eq!(with(0, head | 256 << 32), malformed(Malformed::Thread(259)));
    let reserved = |word, value| malformed(Malformed::Reserved { word, value });
    assert_eq!(with(0, head | 1 << 24), reserved(0, head | 1 << 24));
    // Its name would be longer than it says.
    assert_eq!(with(0, head & !0xff_0000 | 5 << 16), reserved(7, segment().encode()[7]));
    assert_eq!(with(1, 1 << 32), reserved(1, 1 << 32));
    for key in [RegionKey(9), RegionKey::new(Namespace::SEGMENTS, 0)] {
        assert_eq!(with(2, key.0), malformed(Malformed::Key(key)));
    }
    for len in [0, 1 << 63, u64::MAX] {
        assert_eq!(with(3, len), malformed(Malformed::Len(len)));
    }
    for word in 4..7 {
        assert_eq!(with(word, 1), reserved(word, 1));
    }
    let trust = Entry { what: Published::Trust { thread: 3, id: 8 }, ..segment() };
    let mut words = trust.encode();
    assert_eq!(Slot::decode(&words), Ok(Slot::Entry(trust)));
    words[3] = 1;
    assert_eq!(Slot::decode(&sealed(words)), reserved(3, 1));
    for word in 8..15 {
        assert_eq!(with(word, 1 << 40), reserved(word, 1 << 40));
    }
    let name = u64::from_ne_bytes(*b"pri es\0\0");
    assert!(matches!(with(7, name), Err(SlotError::Malformed(Malformed::Name(_)))));
    let name = u64::from_ne_bytes(*b"pri\xffes\0\0");
    assert_eq!(with(7, name), malformed(Malformed::NotAscii));
}

#[test]
fn a_tombstone_has_nothing_else() {
    for word in 0..CHECKSUM {
        let mut words = Slot::Deleted.encode();
        words[word] |= 1 << 41;
        let why = Malformed::Reserved { word, value: words[word] };
        assert_eq!(Slot::decode(&sealed(words)), malformed(why));
    }
}

proptest! {
    #[test]
    fn slots_come_back_as_they_went_in(slot in slots()) {
        let words = slot.encode();
        prop_assert_eq!(Slot::decode(&words), Ok(slot));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        prop_assert_eq!(Slot::decode_bytes(&bytes.try_into().expect("a slot")), Ok(slot));
    }

    /// A changed word is sealed again or not; or the name is another one, perhaps a prefix.
    #[test]
    fn an_entry_of_a_name_is_the_decoded_one(
        (entry, other) in (entries(), entries()),
        changed: bool,
        (word, bit) in (0..ENTRY_WORDS, 0..64),
        is_sealed: bool,
    ) {
        let mut words = entry.encode();
        check_decode_of(&entry.name, &words);
        prop_assert_eq!(Entry::decode_of(&entry.name, &words), Some((entry.generation, entry.what)));
        if changed {
            words[word] ^= 1u64 << bit;
        }
        if is_sealed {
            words = sealed(words);
        }
        let text = entry.name.as_str();
        let prefix = Name::new(&text[..text.len().div_ceil(2)]).expect("a name");
        [entry.name, other.name, prefix].iter().for_each(|name| check_decode_of(name, &words));
    }

    #[test]
    fn every_bit_counts(entry in entries(), word in 0..ENTRY_WORDS, bit in 0..64) {
        let mut words = entry.encode();
        words[word] ^= 1u64 << bit;
        prop_assert_eq!(Slot::decode(&words), Err(SlotError::Torn));
    }

    /// Whatever words are read before and after those of up to three writes, in any order.
    #[test]
    fn no_mixture_passes(contents in proptest::collection::vec(slots(), 2..4), picks in proptest::collection::vec(0usize..3, ENTRY_WORDS)) {
        let all: Vec<EntryWords> = contents.iter().map(Slot::encode).collect();
        let mut words = [0; ENTRY_WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            *word = all[picks[at] % all.len()][at];
        }
        let is_one = all.contains(&words);
        match Slot::decode(&words) {
            Ok(slot) => prop_assert!(is_one && contents.contains(&slot)),
            Err(error) => prop_assert!(!is_one && error == SlotError::Torn),
        }
    }

    #[test]
    fn what_decodes_has_one_encoding(entry in entries(), changes in proptest::collection::vec((0..CHECKSUM, prop_oneof![any::<u64>(), 0u64..300, Just(0)]), 0..3)) {
        let mut words = entry.encode();
        changes.into_iter().for_each(|(word, value)| words[word] = value);
        let words = sealed(words);
        match Slot::decode(&words) {
            Ok(slot) => prop_assert_eq!(slot.encode(), words),
            Err(error) => prop_assert!(matches!(error, SlotError::Malformed(_))),
        }
    }
}
