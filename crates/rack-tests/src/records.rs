//! Sharded records: read one-sidedly or by delegation, by every host.

use gossamer::{Barrier, ReadMode, RecordsError, ShardedRecords};

use crate::support::wait_until;

const BOTH: [ReadMode; 2] = [ReadMode::OneSided, ReadMode::Delegated];

pub fn records_are_read_both_ways_from_everywhere() {
    type Records = ShardedRecords<u64, [u32; 5]>;
    let records = Records::new("records", 100).unwrap();
    for key in 0..60 {
        records.put(&key, &[key as u32; 5]).unwrap();
    }
    let check = |(records, changed): (Records, u64)| {
        for key in 0..70u64 {
            let value = if key < changed { 1000 + key as u32 } else { key as u32 };
            let expected = (key < 60).then_some([value; 5]);
            for read in BOTH {
                assert_eq!(records.get_by(&key, read).unwrap(), expected, "{key} by {read:?}");
            }
        }
    };
    for changed in [0, 10, 60] {
        for key in 0..changed {
            records.put(&key, &[1000 + key as u32; 5]).unwrap();
        }
        let fibers: Vec<_> = gossamer::threads()
            .map(|at| gossamer::spawn_on_with(at, check, (records.clone(), changed)))
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    }
    for key in 0..60 {
        assert!(records.remove(&key).unwrap() && !records.remove(&key).unwrap());
        BOTH.iter().for_each(|read| assert_eq!(records.get_by(&key, *read).unwrap(), None));
    }
    assert!(records.shards().iter().all(|shard| shard.apply(|shard| shard.is_empty())));
}

/// Values of some hundred bytes, which are not of one cache line, and a few keys in each other's way.
pub fn readers_of_records_beside_their_writer_see_whole_values() {
    type Records = ShardedRecords<u64, [u64; 60]>;
    const ROUNDS: u64 = 200;
    const LAST: u64 = u64::MAX;
    let records = Records::new("hammered", 8).unwrap();
    records.put(&0, &[0; 60]).unwrap();
    let readers = gossamer::threads().map(|at| {
        let read = |records: Records| {
            let mut last = 0;
            while last != LAST {
                let values = records.get(&0).unwrap().expect("it is always there");
                assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
                assert!(values[0] >= last, "{} after {last}", values[0]);
                last = values[0];
                for key in 1..4 {
                    let Some(values) = records.get(&key).unwrap() else { continue };
                    assert!(values.iter().all(|value| *value == key), "{values:?}");
                }
                // Otherwise readers hold every processor, and the writer runs a few times a second.
                std::thread::yield_now();
                gossamer::yield_now();
            }
        };
        gossamer::spawn_on_with(at, read, records.clone())
    });
    let readers: Vec<_> = readers.collect();
    for round in 1..=ROUNDS {
        records.put(&0, &[round; 60]).unwrap();
        // What was put is seen, whichever way it is read.
        let both = BOTH.map(|read| records.get_by(&0, read).unwrap());
        assert_eq!(both, [Some([round; 60]); 2]);
        let key = 1 + round % 3;
        if !records.remove(&key).unwrap() {
            records.put(&key, &[key; 60]).unwrap();
        }
    }
    records.put(&0, &[LAST; 60]).unwrap();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

/// A host sees what another one has put as soon as it hears of it.
pub fn records_are_seen_by_whoever_hears_of_them() {
    type Records = ShardedRecords<u32, u64>;
    const ROUNDS: u64 = 50;
    let records = Records::new("heard", 4).unwrap();
    let barrier = Barrier::new(2);
    let listen = |(records, barrier): (Records, Barrier)| {
        for round in 0..ROUNDS {
            barrier.wait();
            let found = records.get(&7).unwrap();
            assert_eq!(found, Some(round));
            barrier.wait();
        }
    };
    let last = gossamer::threads().last().unwrap();
    let listener = gossamer::spawn_on_with(last, listen, (records.clone(), barrier.clone()));
    for round in 0..ROUNDS {
        records.put(&7, &round).unwrap();
        barrier.wait();
        barrier.wait();
    }
    listener.join().unwrap();
}

pub fn records_of_a_full_shard_are_refused_and_names_are_taken_once() {
    let records = ShardedRecords::<u64, u64>::new("few", 2).unwrap();
    let shards = records.shards().len() as u64;
    let refused: Vec<_> = (0..20 * shards)
        .filter_map(|key| records.put(&key, &key).err().map(|e| (key, e)))
        .collect();
    assert_eq!(refused.len() as u64, 18 * shards, "each has 2 of all");
    for (key, error) in &refused {
        let at = records.shard(key).trustee().thread();
        assert!(matches!(error, RecordsError::Full { thread, capacity: 2 } if *thread == at));
        BOTH.iter().for_each(|read| assert_eq!(records.get_by(key, *read).unwrap(), None));
    }
    let taken = ShardedRecords::<u64, u64>::new("few", 2).unwrap_err();
    assert!(matches!(taken, RecordsError::Make { .. }), "{taken}");
    assert!(taken.to_string().contains("few/"), "{taken}");
    drop(records);
    wait_until("the names", || ShardedRecords::<u64, u64>::new("few", 2).is_ok());
}
