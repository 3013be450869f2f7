//! Fibers on every thread, barriers, timers, and where the pool puts things.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use gossamer::{Barrier, JoinError, Sharded, Trust, Trustee};

use crate::support::wait_until;

fn everywhere() -> Vec<Trustee> {
    gossamer::threads().collect()
}

pub fn fibers_run_where_they_are_sent() {
    for trustee in everywhere() {
        let here = |()| gossamer::local_trustee().trustee();
        assert_eq!(gossamer::spawn_on_with(trustee, here, ()).join().unwrap(), trustee);
        let here = || gossamer::local_trustee().trustee();
        assert_eq!(gossamer::spawn_on(trustee, here).join().unwrap(), trustee);
        assert_eq!(gossamer::trustee(trustee.thread()), trustee);
        let nested = |depth: u32| {
            let all: Vec<_> = gossamer::threads().collect();
            let at = all[depth as usize % all.len()];
            gossamer::spawn_on_with(at, |depth: u32| depth * 2, depth).join().unwrap()
        };
        assert_eq!(gossamer::spawn_on_with(trustee, nested, 21).join().unwrap(), 42);
    }
    let captured = String::from("captured");
    let fiber = gossamer::spawn(move || captured + " by a fiber of this host");
    assert_eq!(fiber.join().unwrap(), "captured by a fiber of this host");
    let host = gossamer::local_trustee().trustee().thread().host;
    let fibers: Vec<_> = (0..everywhere().len())
        .map(|_| gossamer::spawn(|| gossamer::local_trustee().trustee()))
        .collect();
    let mut at: Vec<_> = fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect();
    assert!(at.iter().all(|trustee| trustee.thread().host == host));
    at.sort();
    at.dedup();
    assert!(at.len() > 1, "fibers are spread over the threads of this host");
}

pub fn panics_of_fibers_reach_whoever_joins() {
    for trustee in everywhere() {
        let fall = |n: u32| -> u32 { panic!("fell {n} floors") };
        let joined = gossamer::spawn_on_with(trustee, fall, 7).join();
        let Err(error @ JoinError::Panicked { .. }) = joined else { panic!("{joined:?}") };
        assert!(error.to_string().contains("fell 7 floors"), "{error}");
        assert_eq!(gossamer::spawn_on_with(trustee, |n: u32| n, 7).join().unwrap(), 7);
    }
    let joined = gossamer::spawn(|| -> u32 { panic!("fell here") }).join();
    assert!(joined.unwrap_err().to_string().contains("fell here"));
}

pub fn ten_thousand_fibers_wait_at_once() {
    const FIBERS: u64 = 10_000;
    let trustees = everywhere();
    let counters: Vec<Trust<u64>> = trustees.iter().map(|t| t.entrust(0)).collect();
    let gate = gossamer::local_trustee().entrust(false);
    let fibers: Vec<_> = (0..FIBERS)
        .map(|i| {
            let counter = counters[i as usize % counters.len()].clone();
            gossamer::spawn(move || counter.apply_with(|c, i| (*c += 1, i).1, i))
        })
        .collect();
    gate.apply(|open| *open = true);
    for (i, fiber) in (0..).zip(fibers) {
        assert_eq!(fiber.join().unwrap(), i);
    }
    assert_eq!(counters.iter().map(|counter| counter.apply(|c| *c)).sum::<u64>(), FIBERS);
}

pub fn a_barrier_holds_everybody_every_time() {
    const ROUNDS: u32 = 20;
    let parties = everywhere().len() * 2;
    let barrier = Barrier::new(parties);
    let arrived = everywhere().last().expect("a thread").entrust(0u32);
    let fibers: Vec<_> = (0..2)
        .flat_map(|_| everywhere())
        .map(|trustee| {
            let walk = |(barrier, arrived, parties): (Barrier, Trust<u32>, usize)| {
                let mut last = 0;
                for round in 0..ROUNDS {
                    arrived.apply(|n| *n += 1);
                    last += u32::from(barrier.wait());
                    let all = arrived.apply(|n| *n);
                    assert!(all >= (round + 1) * parties as u32, "{all} in round {round}");
                    barrier.wait();
                }
                last
            };
            gossamer::spawn_on_with(trustee, walk, (barrier.clone(), arrived.clone(), parties))
        })
        .collect();
    let last: u32 = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
    assert_eq!(last, ROUNDS, "one fiber of every round was the last");
}

pub fn fibers_sleep_as_long_as_they_asked() {
    for trustee in everywhere() {
        let doze = |ms: u64| {
            let (asked, before) = (Duration::from_millis(ms), Instant::now());
            gossamer::sleep(asked);
            before.elapsed() >= asked
        };
        let long = gossamer::spawn_on_with(trustee, doze, 30);
        let short = gossamer::spawn_on_with(trustee, doze, 1);
        assert!(short.join().unwrap() && long.join().unwrap());
    }
    gossamer::yield_now();
}

pub fn shards_are_found_by_key_from_everywhere() {
    let ages = Sharded::<u64, HashMap<u64, u64>>::new(HashMap::new);
    assert_eq!(ages.shards().len(), gossamer::trustees().count());
    for key in 0..200u64 {
        ages.shard(&key).apply_with(|map, (k, v)| map.insert(k, v), (key, key * key));
    }
    let fill: Vec<usize> = ages.shards().iter().map(|shard| shard.apply(|m| m.len())).collect();
    assert_eq!(fill.iter().sum::<usize>(), 200);
    assert!(fill.iter().all(|keys| *keys > 0), "keys are spread: {fill:?}");
    for trustee in everywhere() {
        let look = |ages: Sharded<u64, HashMap<u64, u64>>| {
            (0..200u64).all(|key| {
                ages.shard(&key).apply_with(|map, key| map.get(&key).copied(), key)
                    == Some(key * key)
            })
        };
        assert!(gossamer::spawn_on_with(trustee, look, ages.clone()).join().unwrap());
    }
    let named = Sharded::<String, HashMap<String, u64>>::new(HashMap::new);
    for key in 0..50u64 {
        let name = key.to_string();
        assert_eq!(named.index_of(&name), named.index_of(name.as_str()));
        named.shard(&name).apply_with(|map, (name, key)| map.insert(name, key), (name, key));
    }
    for key in 0..50u64 {
        let name: &str = &key.to_string();
        let found = named.shard(name).apply_with(|map, name| map.remove(&name), name.to_owned());
        assert_eq!(found, Some(key));
    }
    let sized = Sharded::<str, Vec<u8>>::new_with(|len| vec![1; len], 3usize);
    assert_eq!(sized.shard("any").apply(|v| v.len()), 3);
}

pub fn values_are_entrusted_to_any_thread() {
    struct Stays(std::rc::Rc<u32>);
    struct Moves(u32);
    let me = gossamer::local_trustee();
    let stays = me.entrust(Stays(std::rc::Rc::new(1)));
    assert!(stays.is_local() && stays.apply(|s| *s.0) == 1);
    for trustee in everywhere() {
        let made = trustee.entrust_with(|n: u32| Stays(std::rc::Rc::new(n)), 5);
        assert_eq!(made.apply(|s| *s.0), 5);
        assert_eq!(trustee.entrust(vec![1u8, 2]).apply(|v| v.len()), 2);
        if trustee.thread().host == me.trustee().thread().host {
            assert_eq!(trustee.entrust_moved(Moves(6)).apply(|m| m.0), 6);
        }
    }
    let spread: Vec<_> = (0..everywhere().len()).map(|_| gossamer::entrust(Moves(7))).collect();
    assert!(spread.iter().any(|trust| trust.trustee() != spread[0].trustee()));
    let total = gossamer::entrust(0u32);
    for trust in &spread {
        total.apply_with(|total, n| *total += n, trust.apply(|m| m.0));
    }
    wait_until("the total", || total.apply(|t| *t) == 7 * spread.len() as u32);
}

/// Takes far longer than a turn of a fiber.
fn takes_long() {
    for n in 0..20_000u32 {
        std::hint::black_box(n);
    }
}

/// Ways to call a property of the own thread until it says that it is done.
const LOOPS: [fn(Trust<bool>); 6] = [
    |done| while !done.apply(|done| *done) {},
    |done| while !done.try_apply(|done| *done).unwrap() {},
    |done| while !done.apply_with(|done, _: String| *done, String::new()) {},
    |done| {
        let is_done = |done: &mut bool| {
            takes_long();
            *done
        };
        while !done.apply(is_done) {}
    },
    |done| {
        let seen = Rc::new(Cell::new(false));
        while !seen.get() {
            let seen = seen.clone();
            done.apply_then(|done| *done, move |done| seen.set(done));
        }
    },
    |done| {
        let me = gossamer::local_trustee().trustee();
        // The fiber calls no property of its own before it is done.
        while !me.visit_node(|_, ()| IS_DONE.get(), ()) {}
        assert!(done.apply(|done| *done));
    },
];

thread_local! {
    static IS_DONE: Cell<bool> = const { Cell::new(false) };
}

pub fn calls_on_the_own_thread_let_its_other_fibers_run() {
    for trustee in everywhere() {
        let run_all = |()| {
            let me = gossamer::local_trustee();
            for wait in LOOPS {
                IS_DONE.set(false);
                let done = me.entrust(false);
                let set = |done: Trust<bool>| {
                    gossamer::yield_now();
                    done.apply(|done| *done = true);
                    IS_DONE.set(true);
                };
                // Several that wait in loops, and the one that they wait for comes last.
                let others: Vec<_> = (0..2)
                    .map(|_| {
                        let wait = |done: Trust<bool>| while !done.apply(|done| *done) {};
                        gossamer::spawn_on_with(me, wait, done.clone())
                    })
                    .collect();
                let setter = gossamer::spawn_on_with(me, set, done.clone());
                wait(done);
                setter.join().unwrap();
                others.into_iter().for_each(|other| other.join().unwrap());
            }
        };
        gossamer::spawn_on_with(trustee, run_all, ()).join().unwrap();
    }
}

pub fn calls_on_the_own_thread_let_requests_be_served() {
    let me = gossamer::local_trustee().trustee();
    for trustee in everywhere().into_iter().filter(|trustee| *trustee != me) {
        for number in 0..LOOPS.len() {
            let done = trustee.entrust(false);
            let wait = |(number, done): (usize, Trust<bool>)| {
                IS_DONE.set(false);
                LOOPS[number](done);
            };
            let looping = gossamer::spawn_on_with(trustee, wait, (number, done.clone()));
            // Answered while the fiber loops: it ends only after the second one.
            assert!(!done.apply(|done| *done));
            done.apply(|done| {
                *done = true;
                IS_DONE.set(true);
            });
            looping.join().unwrap();
        }
    }
}
