//! What holds of a record's bytes, whichever host wrote them, and of its two sides on one thread. Threads
//! are in `tests/segments/record_shm.rs`, interleavings in `tests/loom_record.rs`.

use primitive::SharedBytes;
use primitive::sync::Ordering;
use proptest::prelude::*;
use transport_api::{HostId, OpError, RegionKey, Rights, Window};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Record, RecordWriter, Torn};

/// A type with fields of several sizes, which leave no padding.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Quote {
    symbol: [u8; 12],
    volume: u32,
    bid: f64,
    sizes: [u16; 4],
}

type Words = [u64; 6];
type Odd = [u8; 13];

const KEY: RegionKey = RegionKey(3);

/// The bytes of some memory.
fn bytes(memory: &SharedBytes) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.read_into(0, &mut bytes);
    bytes
}

fn region(len: usize, rights: Rights) -> (Window, SharedBytes, SharedBytes) {
    let (memory, live) = (SharedBytes::heap(len), SharedBytes::heap(8));
    live.store(0, 1, Ordering::Relaxed);
    let window = Window::new((1, HostId(0)), (KEY, rights, 0), memory.clone(), live.clone());
    (window, memory, live)
}

#[test]
fn a_record_is_its_payload_in_words_and_two_more() {
    assert_eq!(Record::<()>::BYTES, 16);
    assert_eq!(Record::<u8>::BYTES, 24);
    assert_eq!(Record::<Odd>::BYTES, 32);
    assert_eq!(Record::<Words>::BYTES, 64);
    assert_eq!(Record::<Quote>::BYTES, 48);
}

#[test]
fn fresh_memory_was_never_written_and_versions_count_from_one() {
    let memory = SharedBytes::heap(2 * Record::<Words>::BYTES);
    let at = Record::<Words>::BYTES;
    assert_eq!(Record::<Words>::read_mapped(&memory, at), Ok(None));
    let mut writer = RecordWriter::<Words>::new(memory.clone(), at);
    assert_eq!(writer.version(), 0);
    for version in 1..5 {
        assert_eq!(writer.write(&[version; 6]), version);
        assert_eq!(Record::read_mapped(&memory, at), Ok(Some((version, [version; 6]))));
    }
    assert_eq!(Record::<Words>::read_mapped(&memory, 0), Ok(None), "its neighbour is untouched");
}

#[test]
fn a_value_of_zeros_is_written_too() {
    let memory = SharedBytes::heap(Record::<Words>::BYTES);
    RecordWriter::<Words>::new(memory.clone(), 0).write(&[0; 6]);
    assert_eq!(Record::<Words>::decode(&memory, 0), Ok(Some((1, [0; 6]))));
    let empty = Record::<()>::encode(&(), 7);
    assert_eq!(Record::<()>::decode(&empty, 0), Ok(Some((7, ()))));
}

#[test]
fn the_version_that_means_never_written_is_skipped() {
    let memory = SharedBytes::heap(Record::<u32>::BYTES);
    memory.store(0, u64::MAX, Ordering::Relaxed);
    assert_eq!(RecordWriter::<u32>::new(memory.clone(), 0).write(&5), 1);
    assert_eq!(Record::<u32>::decode(&memory, 0), Ok(Some((1, 5))));
}

#[test]
#[should_panic(expected = "version 0")]
fn the_version_that_means_never_written_is_refused() {
    let _ = Record::<u32>::encode(&5, 0);
}

#[test]
#[should_panic(expected = "invalid place 4")]
fn a_writer_needs_an_aligned_place() {
    RecordWriter::<u32>::new(SharedBytes::heap(64), 4);
}

#[test]
#[should_panic(expected = "invalid place 48")]
fn a_writer_needs_room() {
    RecordWriter::<u32>::new(SharedBytes::heap(64), 48);
}

/// The writer died in the middle: after a while readers give up, and the next writer mends it.
#[test]
fn a_record_whose_writer_died_is_torn_until_the_next_write() {
    let memory = SharedBytes::heap(Record::<Words>::BYTES);
    RecordWriter::<Words>::new(memory.clone(), 0).write(&[1; 6]);
    // What the next write does first.
    memory.store(0, 2, Ordering::Relaxed);
    let torn = Record::<Words>::read_mapped(&memory, 0).expect_err("a torn record");
    assert!(torn.attempts > 1, "{torn}");
    assert_eq!(Record::<Words>::decode(&memory, 0), Err(Torn { attempts: 1 }));
    assert_eq!(RecordWriter::<Words>::new(memory.clone(), 0).write(&[3; 6]), 3);
    assert_eq!(Record::<Words>::read_mapped(&memory, 0), Ok(Some((3, [3; 6]))));
}

#[test]
fn a_record_is_read_and_written_through_a_window() {
    let (window, memory, live) = region(3 * Record::<Odd>::BYTES, Rights::READ | Rights::WRITE);
    let at = Record::<Odd>::BYTES;
    assert_eq!(Record::<Odd>::read_window(&window, at), Ok(Ok(None)));
    assert_eq!(Record::<Odd>::write_window(&window, at, &[8; 13], 4), Ok(()));
    assert_eq!(Record::<Odd>::read_window(&window, at), Ok(Ok(Some((4, [8; 13])))));
    assert_eq!(Record::<Odd>::read_mapped(&memory, at), Ok(Some((4, [8; 13]))));
    memory.store(at, 5, Ordering::Relaxed);
    assert!(matches!(Record::<Odd>::read_window(&window, at), Ok(Err(Torn { .. }))));
    live.store(0, 0, Ordering::Relaxed);
    assert_eq!(
        Record::<Odd>::read_window(&window, at),
        Err(OpError::Revoked { key: KEY, generation: 0 })
    );
    assert_eq!(
        Record::<Odd>::write_window(&window, at, &[9; 13], 6),
        Err(OpError::Revoked { key: KEY, generation: 0 })
    );
}

#[test]
fn a_window_refuses_a_record_before_it_is_touched() {
    let (window, memory, _) = region(3 * Record::<Odd>::BYTES, Rights::READ | Rights::WRITE);
    for at in [65, 66, 72, 96, usize::MAX - 7] {
        let refused = |result| matches!(result, Err(OpError::OutOfBounds { .. }));
        assert!(refused(Record::<Odd>::write_window(&window, at, &[1; 13], 1)), "{at}");
        assert!(refused(Record::<Odd>::read_window(&window, at).map(drop)), "{at}");
    }
    let misaligned = Err(OpError::Misaligned(12));
    assert_eq!(Record::<Odd>::write_window(&window, 12, &[1; 13], 1), misaligned);
    assert_eq!(Record::<Odd>::read_window(&window, 12).map(drop), misaligned);
    assert_eq!(bytes(&memory), [0; 96]);
    let (readable, memory, _) = region(32, Rights::READ);
    let written = Record::<Odd>::write_window(&readable, 0, &[1; 13], 1);
    assert!(matches!(written, Err(OpError::Rights { .. })));
    assert_eq!(bytes(&memory), [0; 32]);
}

fn quotes() -> impl Strategy<Value = Quote> {
    let bid = any::<u64>().prop_map(f64::from_bits).prop_filter("equal to itself", |f| !f.is_nan());
    (any::<[u8; 12]>(), any::<u32>(), bid, any::<[u16; 4]>())
        .prop_map(|(symbol, volume, bid, sizes)| Quote { symbol, volume, bid, sizes })
}

/// What is written is read back, by every pair of ways.
fn read_back<T>(value: T, version: u64) -> Result<(), TestCaseError>
where
    T: FromBytes + IntoBytes + Immutable + Copy + PartialEq + std::fmt::Debug,
{
    let encoded = Record::<T>::encode(&value, version);
    prop_assert_eq!(encoded.len(), Record::<T>::BYTES);
    prop_assert_eq!(Record::<T>::decode(&encoded, 0), Ok(Some((version, value))));
    prop_assert_eq!(Record::<T>::decode_bytes(&bytes(&encoded)), Ok(Some((version, value))));
    // In one WRITE over something else, as a remote writer does, at the last place of the memory.
    let (window, memory, _) = region(8 + Record::<T>::BYTES, Rights::READ | Rights::WRITE);
    memory.write_from(0, &vec![0xee; memory.len()]);
    memory.copy_from(8, &encoded);
    prop_assert_eq!(Record::<T>::read_mapped(&memory, 8), Ok(Some((version, value))));
    // Over something else, piece by piece.
    memory.write_from(0, &vec![0xee; memory.len()]);
    Record::<T>::write_window(&window, 8, &value, version).expect("a write");
    prop_assert_eq!(Record::<T>::read_window(&window, 8), Ok(Ok(Some((version, value)))));
    prop_assert_eq!(memory.load(0, Ordering::Relaxed), 0xeeee_eeee_eeee_eeee);
    Ok(())
}

/// A record whose words come from two writes, or from a write and fresh memory, is one of them or
/// torn. Values are small, so that their words are often equal.
fn mixture<T>(old: Option<(u64, T)>, new: (u64, T), is_new: &[bool]) -> Result<(), TestCaseError>
where
    T: FromBytes + IntoBytes + Immutable + Copy + PartialEq + std::fmt::Debug,
{
    let encode = |(version, value): (u64, T)| Record::<T>::encode(&value, version);
    let before = old.map_or_else(|| SharedBytes::heap(Record::<T>::BYTES), encode);
    let (after, mixed) = (encode(new), SharedBytes::heap(Record::<T>::BYTES));
    for word in 0..Record::<T>::BYTES / 8 {
        let from = if is_new[word % is_new.len()] { &after } else { &before };
        mixed.copy_part(word * 8, from, word * 8..word * 8 + 8);
    }
    let expected = if bytes(&mixed) == bytes(&after) {
        Ok(Some(new))
    } else if bytes(&mixed) == bytes(&before) {
        Ok(old)
    } else {
        Err(Torn { attempts: 1 })
    };
    prop_assert_eq!(Record::<T>::decode(&mixed, 0), expected);
    Ok(())
}

proptest! {
    #[test]
    fn every_value_is_read_back(
        version in 1..=u64::MAX,
        quote in quotes(),
        words in any::<Words>(),
        odd in any::<Odd>(),
        byte in any::<u8>(),
    ) {
        read_back(quote, version)?;
        read_back(words, version)?;
        read_back(odd, version)?;
        read_back(byte, version)?;
        read_back([words; 20], version)?;
    }

    #[test]
    fn any_mixture_of_two_writes_is_refused(
        old in proptest::option::of((1..4_u64, prop::array::uniform6(0..3_u64))),
        new in (1..4_u64, prop::array::uniform6(0..3_u64)),
        is_new in prop::collection::vec(any::<bool>(), 8),
        odd in prop::array::uniform13(0..2_u8),
    ) {
        mixture(old, new, &is_new)?;
        mixture(old.map(|(version, _)| (version, [1; 13])), (new.0, odd), &is_new)?;
    }

    #[test]
    fn bytes_that_no_writer_wrote_are_torn(
        bytes in prop::collection::vec(0..3_u8, Record::<Quote>::BYTES),
    ) {
        let is_fresh = bytes.iter().all(|byte| *byte == 0);
        let expected = if is_fresh { Ok(None) } else { Err(Torn { attempts: 1 }) };
        prop_assert_eq!(Record::<Quote>::decode_bytes(&bytes), expected);
    }

    #[test]
    fn one_bit_makes_a_record_torn(
        words in any::<Words>(),
        version in 1..=u64::MAX,
        at in 0..Record::<Words>::BYTES,
        bit in 0..8_u32,
    ) {
        let mut bytes = bytes(&Record::<Words>::encode(&words, version));
        bytes[at] ^= 1 << bit;
        prop_assert_eq!(Record::<Words>::decode_bytes(&bytes), Err(Torn { attempts: 1 }));
    }
}
