//! Many small updates of the shards of a `Sharded`: [`gossamer::Scatter`].

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use gossamer::{Sharded, Team, Trust, spawn_on, spawn_on_with};
use serde::{Deserialize, Serialize, Serializer};

type Counts = Sharded<String, HashMap<String, u64>>;

fn add(counts: &mut HashMap<String, u64>, word: &str, times: u64) {
    match counts.get_mut(word) {
        Some(count) => *count += times,
        None => _ = counts.insert(word.to_owned(), times),
    }
}

pub fn every_update_runs_once_at_its_shard() {
    const WORDS: u64 = 20_000;
    let counts = Counts::new(HashMap::new);
    Team::run(
        |team, counts: Counts| {
            let mut scatter = counts.scatter(add);
            for number in 0..WORDS {
                scatter.send(&format!("word {}", number % 700), number);
            }
            scatter.finish();
            // What this member has sent has run, whatever the others do.
            let found: u64 = counts.gather(|counts| counts.values().sum::<u64>()).into_iter().sum();
            assert!(found >= WORDS * (WORDS - 1) / 2, "{found}");
            team.barrier();
        },
        counts.clone(),
    );
    let members = gossamer::trustees().len() as u64;
    let mut words = 0;
    for (index, shard) in counts.shards().iter().enumerate() {
        for (word, count) in shard.apply(|counts| counts.clone()) {
            assert_eq!(counts.index_of(&word), index, "{word} is at its shard");
            let number: u64 = word["word ".len()..].parse().unwrap();
            let expected: u64 = (number..WORDS).step_by(700).sum();
            assert_eq!(count, expected * members, "{word}");
            words += 1;
        }
    }
    assert_eq!(words, 700);
}

/// Values of all sizes, some of which travel beside the slots.
pub fn updates_of_a_shard_keep_their_order() {
    let logs = Sharded::<u32, Vec<(u32, Vec<u8>)>>::new(Vec::new);
    let mut scatter = logs.scatter(|log, key, bytes: Vec<u8>| log.push((key, bytes)));
    let bytes = |key: u32| vec![key as u8; [1, 0, 5_000, 40, 30_000][key as usize % 5]];
    (0..1000).for_each(|key| scatter.send(key, bytes(key)));
    scatter.finish();
    let mut all = Vec::new();
    for log in logs.gather(std::mem::take) {
        assert!(log.is_sorted_by_key(|(key, _)| *key), "in the order of their sending");
        all.extend(log);
    }
    all.sort_unstable();
    assert!(all.iter().map(|(key, _)| *key).eq(0..1000));
    assert!(all.iter().all(|(key, found)| *found == bytes(*key)));
}

pub fn what_has_been_collected_is_sent_by_a_flush_and_a_drop() {
    let sums = Sharded::<u64, u64>::new(|| 0);
    let sum = || sums.reduce(|sum| *sum, |a, b| a + b);
    let mut scatter = sums.scatter(|sum, key, ()| *sum += key);
    (1..=100).for_each(|key| scatter.send(key, ()));
    assert!(sum() < 5050, "those of other threads have not been sent");
    scatter.flush();
    gossamer::flush();
    assert_eq!(sum(), 5050);
    (1..=100).for_each(|key| scatter.send(key, ()));
    drop(scatter);
    gossamer::flush();
    assert_eq!(sum(), 2 * 5050);
    sums.scatter(|sum, key, ()| *sum += key).finish();
    assert_eq!(sum(), 2 * 5050, "none were sent");
}

/// Also in a delegated closure, where the updates of its own thread run after it.
pub fn delegated_code_sends_updates() {
    let sums = Sharded::<u64, u64>::new(|| 0);
    for shard in sums.shards() {
        let send = |sum: &mut u64, sums: Sharded<u64, u64>| {
            let before = *sum;
            let mut scatter = sums.scatter(|sum, key, times: u64| *sum += key * times);
            (1..=100).for_each(|key| scatter.send(key, 2));
            drop(scatter);
            assert_eq!(*sum, before, "while the closure has it, no other does");
        };
        shard.apply_with(send, sums.clone());
    }
    gossamer::fence();
    let expected = 2 * 5050 * sums.shards().len() as u64;
    assert_eq!(sums.reduce(|sum| *sum, |a, b| a + b), expected);
}

pub fn updates_carry_trusts() {
    let lists = Sharded::<u8, Vec<Trust<u64>>>::new(Vec::new);
    let counter = gossamer::threads().last().unwrap().entrust(0u64);
    let mut scatter = lists.scatter(|list, _, counter: Trust<u64>| list.push(counter));
    (0..200).for_each(|key| scatter.send(key, counter.clone()));
    scatter.finish();
    lists.for_each(|list| {
        for counter in list.drain(..) {
            counter.apply_then(|count| *count += 1, drop);
        }
    });
    gossamer::fence();
    assert_eq!(counter.apply(|count| *count), 200);
}

/// Those of all fibers, also while the `Scatter` lives.
pub fn a_flush_and_a_fence_send_what_is_collected() {
    let sums = Sharded::<u64, u64>::new(|| 0);
    let sum = || sums.reduce(|sum| *sum, |a, b| a + b);
    let mut scatter = sums.scatter(|sum, key, ()| *sum += key);
    let mut send = || (1..=100).for_each(|key| scatter.send(key, ()));
    send();
    gossamer::flush();
    assert_eq!(sum(), 5050);
    send();
    spawn_on(gossamer::local_trustee().trustee(), gossamer::flush).join().unwrap();
    assert_eq!(sum(), 2 * 5050, "another fiber of the thread has flushed");
    send();
    spawn_on(gossamer::threads().last().unwrap(), gossamer::fence).join().unwrap();
    assert_eq!(sum(), 3 * 5050, "another thread has called for a fence");
    scatter.finish();
    assert_eq!(sum(), 3 * 5050, "each update has run once");
}

pub fn a_barrier_and_quiescence_send_what_is_collected() {
    let sums = Sharded::<u64, u64>::new(|| 0);
    Team::run(
        |team, sums: Sharded<u64, u64>| {
            let mut scatter = sums.scatter(|sum, key, times: u64| *sum += key * times);
            let total = || {
                let own = sums.shards()[team.index()].apply(|sum| *sum);
                team.all_reduce(own, |a, b| a + b)
            };
            let members = team.len() as u64;
            (1..=100).for_each(|key| scatter.send(key, 1));
            team.barrier();
            assert_eq!(total(), 5050 * members);
            (1..=100).for_each(|key| scatter.send(key, 2));
            team.quiesce();
            assert_eq!(total(), 3 * 5050 * members);
        },
        sums,
    );
}

/// A number that waits while it is encoded, if it is so large.
#[derive(Deserialize)]
struct Waits(u64);

const LARGE: u64 = 1000;

thread_local!(static IS_WAITING: Cell<bool> = const { Cell::new(false) });

impl Serialize for Waits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 >= LARGE {
            IS_WAITING.set(true);
            gossamer::sleep(Duration::from_millis(20));
            IS_WAITING.set(false);
        }
        serializer.serialize_newtype_struct("Waits", &self.0)
    }
}

pub fn a_flush_waits_for_an_update_that_waits() {
    let sums = Sharded::<u64, u64>::new(|| 0);
    let Some(other) = sums.shards().iter().position(|shard| !shard.is_local()) else { return };
    let flush = |sums: Sharded<u64, u64>| {
        while !IS_WAITING.get() {
            gossamer::yield_now();
        }
        gossamer::flush();
        sums.reduce(|sum| *sum, |a, b| a + b)
    };
    let me = gossamer::local_trustee().trustee();
    let flushed = spawn_on_with(me, flush, sums.clone());
    let mut scatter = sums.scatter(|sum, _, value: Waits| *sum += value.0);
    let mut keys = (0..).filter(|key| sums.index_of(key) == other);
    for value in [1, LARGE] {
        scatter.send(keys.next().unwrap(), Waits(value));
    }
    assert_eq!(flushed.join().unwrap(), 1 + LARGE);
    scatter.finish();
}

/// While their sender waits for room as well.
pub fn a_flush_sends_what_is_collected_beside_a_flood() {
    const UPDATES: usize = 10_000;
    thread_local!(static SENT: Cell<usize> = const { Cell::new(0) });
    let lens = Sharded::<u64, usize>::new(|| 0);
    SENT.set(0);
    let flush = |lens: Sharded<u64, usize>| {
        let mut before = 0;
        while before < UPDATES {
            before = SENT.get();
            gossamer::flush();
            let ran = lens.reduce(|len| *len, |a, b| a + b);
            assert!(ran >= before, "{ran} of {before}");
            gossamer::yield_now();
        }
    };
    let me = gossamer::local_trustee().trustee();
    let flushed = spawn_on_with(me, flush, lens.clone());
    let mut scatter = lens.scatter(|len, _, _: Vec<u8>| *len += 1);
    for key in 0..UPDATES as u64 {
        scatter.send(key, vec![0; 1000]);
        SENT.set(SENT.get() + 1);
    }
    flushed.join().unwrap();
    scatter.finish();
    assert_eq!(lens.reduce(|len| *len, |a, b| a + b), UPDATES);
}
