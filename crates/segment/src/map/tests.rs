//! The map against a model, and its readers beside its writer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::*;
use transport_shm::ShmTransport;

use super::{MapFull, Probed, RecordMap, RemoteMap};
use crate::engine::Attached;
use crate::error::SegmentError;
use crate::segments::Segments;

fn one_host(threads: u32) -> (Segments, Attached) {
    let host = ShmTransport::in_process(1, threads).expect("a host").remove(0);
    let segments = Segments::new(host);
    let attached = segments.attach(0).expect("a thread");
    (segments, attached)
}

#[test]
fn a_full_map_refuses_new_keys_and_takes_old_ones() {
    let (segments, _attached) = one_host(1);
    let mut map = RecordMap::<u64, u64>::export(&segments, "full", 3).expect("a map");
    for key in 0..3 {
        assert_eq!(map.put(&key, &key), Ok(()));
    }
    assert_eq!(map.put(&3, &3), Err(MapFull { capacity: 3 }));
    assert_eq!(map.put(&2, &20), Ok(()));
    assert!(map.remove(&0) && !map.remove(&0));
    assert_eq!(map.put(&3, &3), Ok(()));
    let there = RemoteMap::<u64, u64>::of(segments.open("full").unwrap()).unwrap();
    let all: Vec<_> = (0..4).map(|key| there.get(&key).unwrap()).collect();
    assert_eq!(all, [None, Some(1), Some(20), Some(3)]);
}

#[test]
fn other_sizes_are_refused() {
    let (segments, _attached) = one_host(1);
    let _map = RecordMap::<u64, u64>::export(&segments, "map", 3).expect("a map");
    let _none = segments.builder("none").len(4096).export().expect("a segment");
    let open = |name| segments.open(name).expect("a segment");
    let other = RemoteMap::<u64, [u64; 2]>::of(open("map")).unwrap_err();
    assert!(matches!(other, SegmentError::OtherKind { .. }), "{other}");
    let other = RemoteMap::<u64, u64>::of(open("none")).unwrap_err();
    assert!(matches!(other, SegmentError::OtherKind { .. }), "{other}");
    // Two slots of 40 bytes for each entry.
    let max = (isize::MAX as usize - 64) / 80;
    let huge = |capacity| RecordMap::<u64, u64>::export(&segments, "huge", capacity).unwrap_err();
    for capacity in [max + 1, usize::MAX / 4, usize::MAX] {
        let expected =
            format!("{capacity} entries of 80 bytes exceed the address space: at most {max}");
        assert_eq!(huge(capacity).to_string(), expected);
    }
    let no_memory = huge(max);
    assert!(matches!(no_memory, SegmentError::Region { .. }), "{no_memory}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Few slots, so that most keys are in the way of others.
    #[test]
    fn it_is_a_map(steps in prop::collection::vec((0..12u16, 0..3u8, any::<u64>()), 1..200)) {
        let (segments, _attached) = one_host(1);
        let mut map = RecordMap::<u16, [u64; 3]>::export(&segments, "map", 8).expect("a map");
        let there = RemoteMap::<u16, [u64; 3]>::of(segments.open("map").unwrap()).unwrap();
        let mut model = HashMap::new();
        for (key, what, value) in steps {
            if what == 0 {
                prop_assert_eq!(map.remove(&key), model.remove(&key).is_some());
            } else if model.len() == 8 && !model.contains_key(&key) {
                prop_assert_eq!(map.put(&key, &[value; 3]), Err(MapFull { capacity: 8 }));
            } else {
                prop_assert_eq!(map.put(&key, &[value; 3]), Ok(()));
                model.insert(key, [value; 3]);
            }
            for key in 0..12 {
                prop_assert_eq!(there.get(&key).unwrap(), model.get(&key).copied());
                prop_assert_eq!(map.get(&key), model.get(&key).copied());
                let limited = there.probe(&key, 1).unwrap();
                let expected = model.get(&key).map_or(Probed::Absent, |v| Probed::Found(*v));
                prop_assert!(limited == expected || limited == Probed::Unknown);
            }
        }
        // Nothing is left of what was removed: a lookup ends at its first slot.
        model.keys().for_each(|key| assert!(map.remove(key)));
        for key in 0..12 {
            prop_assert_eq!(there.probe(&key, 1).unwrap(), Probed::Absent);
        }
    }
}

/// Keys come and go and change in front of key 0, which is always there.
#[test]
fn readers_beside_a_writer_see_whole_values_that_never_go_back() {
    const ROUNDS: u64 = if cfg!(miri) { 30 } else { 20_000 };
    let (segments, _attached) = one_host(3);
    let mut map = RecordMap::<u64, [u64; 16]>::export(&segments, "map", 8).expect("a map");
    map.put(&0, &[0; 16]).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 1..3 {
            let (segments, done) = (segments.clone(), &done);
            scope.spawn(move || {
                let _attached = segments.attach(number).expect("a thread");
                let there = RemoteMap::<u64, [u64; 16]>::of(segments.open("map").unwrap());
                let there = there.unwrap();
                let mut last = 0;
                while !done.load(Ordering::Acquire) {
                    let values = there.get(&0).unwrap().expect("it is always there");
                    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
                    assert!(values[0] >= last, "{} after {last}", values[0]);
                    last = values[0];
                    for key in 1..8 {
                        let Some(values) = there.get(&key).unwrap() else { continue };
                        assert!(values.iter().all(|value| *value == key), "{values:?}");
                    }
                }
            });
        }
        for round in 1..=ROUNDS {
            map.put(&0, &[round; 16]).unwrap();
            let key = 1 + round % 7;
            if !map.remove(&key) {
                map.put(&key, &[key; 16]).unwrap();
            }
        }
        done.store(true, Ordering::Release);
    });
}
