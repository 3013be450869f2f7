//! Teams: collectives among fibers on all threads.

use std::cell::Cell;
use std::sync::LazyLock;

use gossamer::{DelegateError, Sharded, Team, TeamError, Trust};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::support::{Counted, panic_in, wait_until};

/// Members with work of different lengths, round after round.
pub fn collectives_agree_on_every_member() {
    let size = gossamer::trustees().len();
    let results = Team::run(
        |team, offset: u64| {
            let me = team.index() as u64;
            let mut seen = Vec::new();
            for round in 0..50 {
                if (round + me).is_multiple_of(7) {
                    gossamer::yield_now();
                }
                let value = me * 10 + round + offset;
                seen.push(team.all_reduce(value, |a, b| a * 3 + b));
                let before = team.exclusive_scan(value, |a, b| a + b);
                let all = team.all_gather(value);
                assert_eq!(before, all[..team.index()].iter().copied().reduce(|a, b| a + b));
                assert_eq!(team.len(), all.len());
                let one = round as usize % team.len();
                assert_eq!(team.broadcast(one, || value.to_string()), all[one].to_string());
                let gathered = team.gather(one, vec![value]);
                let expected = all.iter().map(|value| vec![*value]).collect::<Vec<_>>();
                assert_eq!(gathered, (team.index() == one).then_some(expected));
                if round.is_multiple_of(3) {
                    team.barrier();
                }
            }
            (team.index(), gossamer::local_trustee().trustee().thread(), seen)
        },
        5,
    );
    let places: Vec<_> = results.iter().map(|(index, thread, _)| (*index, *thread)).collect();
    let expected = gossamer::trustees().map(|trustee| trustee.thread()).enumerate();
    assert_eq!(places, expected.collect::<Vec<_>>());
    for round in 0..50 {
        let values = (0..size as u64).map(|me| me * 10 + round + 5);
        let expected = values.reduce(|a, b| a * 3 + b).unwrap();
        assert!(results.iter().all(|(_, _, seen)| seen[round as usize] == expected));
    }
}

pub fn vectors_of_all_sizes_are_exchanged() {
    // Made once: a number at a time takes this test, which is not optimised, most of its time.
    static NUMBERS: LazyLock<Vec<u32>> = LazyLock::new(|| (0..1_100_000).collect());
    let checked = Team::run(
        |team, ()| {
            let sent = |from: usize, to: usize, len: usize| -> (Vec<u32>, String) {
                // Numbers of every pair of up to 99 members begin elsewhere.
                let numbers = &NUMBERS[1000 * from + 7 * to..][..len + from];
                (numbers.to_vec(), format!("{from} to {to}"))
            };
            // Inside a slot, beside it, and larger than a batch.
            for len in [0, 1, 100, 3000, 50_000, 1_000_000] {
                let me = team.index();
                let parts = (0..team.len()).map(|to| sent(me, to, len)).collect();
                for (from, part) in team.all_to_all(parts).into_iter().enumerate() {
                    assert!(part == sent(from, me, len), "{len} numbers from {from} to {me}");
                }
            }
            true
        },
        (),
    );
    assert_eq!(checked.len(), gossamer::trustees().len());
}

pub fn a_barrier_is_a_fence_for_requests_without_a_waiter() {
    let counts = Sharded::<u64, u64>::new(|| 0);
    Team::run(
        |team, counts: Sharded<u64, u64>| {
            let mut expected = 0;
            for round in 1..=20u64 {
                for shard in counts.shards() {
                    // More than a batch, and some that travel beside it.
                    for call in 0..100 {
                        let bytes = vec![1u8; if call == 50 { 20_000 } else { 1 }];
                        let count = |count: &mut u64, bytes: Vec<u8>| *count += bytes.len() as u64;
                        shard.apply_with_then(count, bytes, drop);
                    }
                }
                team.barrier();
                expected += (20_000 + 99) * team.len() as u64;
                let found = counts.shards()[team.index()].apply(|count| *count);
                // No member sends its part of the next round before all have seen this one's.
                assert_eq!(found, expected, "round {round}");
                team.barrier();
            }
        },
        counts,
    );
}

/// A request that sends two others, to other threads.
fn fork(all: &Sharded<u64, u64>, number: u64, depth: u32) {
    let run = |count: &mut u64, (all, number, depth): (Sharded<u64, u64>, u64, u32)| {
        *count += 1;
        if depth > 0 {
            fork(&all, 2 * number, depth - 1);
            fork(&all, 2 * number + 1, depth - 1);
        }
    };
    all.shard(&number).apply_with_then(run, (all.clone(), number, depth), drop);
}

pub fn work_that_makes_work_is_waited_for() {
    let all = Sharded::<u64, u64>::new(|| 0);
    let sums = Team::run(
        |team, all: Sharded<u64, u64>| {
            let mut sums = Vec::new();
            for _ in 0..5 {
                fork(&all, team.index() as u64 + 1, 7);
                team.quiesce();
                let mine = all.shards()[team.index()].apply(|count| *count);
                sums.push(team.all_reduce(mine, |a, b| a + b) / team.len() as u64);
            }
            sums
        },
        all,
    );
    // Each of them makes a tree of eight levels.
    assert!(sums.iter().all(|sums| *sums == [255, 510, 765, 1020, 1275]), "{sums:?}");
}

/// Each answer of this chain sends the next request, from its callback.
fn answered(count: Trust<u64>, left: u64) {
    let next = count.clone();
    count.apply_then(
        |count| *count += 1,
        move |()| {
            if left > 1 {
                answered(next, left - 1);
            }
        },
    );
}

pub fn work_that_callbacks_make_is_waited_for() {
    const ROUNDS: u64 = 4;
    let last = gossamer::trustees().last().expect("a trustee");
    let count = last.entrust_with(|()| 0u64, ());
    let counts = Team::run(
        |team, count: Trust<u64>| {
            let mut counts = Vec::new();
            for round in 1..=ROUNDS {
                if team.index() == 0 {
                    answered(count.clone(), 10 * round);
                }
                team.quiesce();
                counts.push(count.apply(std::mem::take));
                team.barrier();
            }
            counts
        },
        count,
    );
    // One member takes the count, whichever comes first.
    for round in 1..=ROUNDS {
        let sum: u64 = counts.iter().map(|counts| counts[round as usize - 1]).sum();
        assert_eq!(sum, 10 * round);
    }
}

/// Each counts the other's exchanges as requests of its threads.
pub fn teams_that_quiesce_at_the_same_time_end() {
    let quiesce = || {
        let member = |team: &Team, ()| (0..20).for_each(|_| team.quiesce());
        fiber::spawn_local(move || drop(Team::run(member, ())))
    };
    for team in [(); 2].map(|()| quiesce()) {
        team.join().unwrap();
    }
}

/// What its encoding refuses, if it is 13.
#[derive(Clone, Debug, Deserialize)]
struct Superstitious(u64);

impl Serialize for Superstitious {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            13 => Err(serde::ser::Error::custom("13 is not sent")),
            number => number.serialize(serializer),
        }
    }
}

pub fn a_part_that_cannot_be_sent_ends_the_team() {
    let failed = Team::try_run(
        |team, ()| {
            let fine = team.all_gather(Superstitious(team.index() as u64)).len();
            let part = Superstitious(if team.index() == 0 { 13 } else { 1 });
            fine + team.all_gather(part).len()
        },
        (),
    );
    let Err(TeamError::OutOfStep { reason, .. }) = &failed else { panic!("{failed:?}") };
    assert!(reason.contains("13 is not sent"), "{reason}");
}

pub fn the_member_that_ends_first_is_named() {
    let last = gossamer::trustees().len() - 1;
    let failed = Team::try_run(
        |team, last: usize| {
            team.barrier();
            assert!(team.index() != last, "the last one falls");
            team.all_reduce(1, |a, b| a + b)
        },
        last,
    );
    match failed {
        Err(TeamError::Member { member, error: DelegateError::Join(text), .. }) => {
            assert!(member == last && text.contains("the last one falls"), "{member}: {text}");
        }
        other => panic!("{other:?}"),
    }
    // One that returns is missed, too; and so is a collective of another type.
    let early = Team::try_run(
        |team, last| {
            if team.index() != last {
                team.barrier()
            }
        },
        last,
    );
    let Err(TeamError::OutOfStep { reason, .. }) = &early else { panic!("{early:?}") };
    assert!(
        reason.contains(&format!("member {last} takes part no longer: it has returned")),
        "{reason}"
    );
    let other = Team::try_run(
        |team, last| match team.index() == last {
            true => team.all_gather(1u8).len(),
            false => team.all_gather(1u16).len(),
        },
        last,
    );
    let Err(TeamError::OutOfStep { reason, .. }) = &other else { panic!("{other:?}") };
    assert!(reason.contains("all members must call the same collectives"), "{reason}");
    // The next team has nothing to do with it.
    let numbers: Vec<Trust<u32>> = gossamer::trustees().map(|trustee| trustee.entrust(1)).collect();
    let sums = Team::run(
        |team, numbers: Vec<Trust<u32>>| {
            team.all_reduce(numbers[team.index()].apply(|number| *number), |a, b| a + b)
        },
        numbers,
    );
    assert_eq!(sums, vec![last as u32 + 1; last + 1]);
}

/// Arguments that no thread can decode.
#[derive(Clone, Debug, Serialize)]
struct Unreadable;

impl<'de> Deserialize<'de> for Unreadable {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("it is not read"))
    }
}

/// Those that have started wait for the others.
pub fn a_member_that_does_not_start_ends_the_team() {
    let failed = Team::try_run(|team, _: Unreadable| team.barrier(), Unreadable);
    match &failed {
        Err(TeamError::Member { error: error @ DelegateError::BadArguments { .. }, .. }) => {
            let printed = gossamer::Chain(error).to_string();
            assert!(printed.contains("it is not read"), "{printed}");
        }
        other => panic!("{other:?}"),
    }
}

/// What can be cloned so often.
#[derive(Serialize, Deserialize)]
struct Fragile(Cell<u32>);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        let left = self.0.get().checked_sub(1).expect("it is cloned too often");
        self.0.set(left);
        Fragile(Cell::new(left))
    }
}

pub fn members_end_if_the_others_cannot_be_started() {
    let ended = gossamer::local_trustee().entrust(0u32);
    let arguments = (Fragile(Cell::new(1)), ended.clone());
    let member = |team: &Team, (_, ended): (Fragile, Trust<u32>)| {
        let _ended = Counted(ended);
        team.barrier();
    };
    let message = panic_in(move || Team::run(member, arguments));
    assert!(message.contains("it is cloned too often"), "{message}");
    wait_until("the end of the member that has started", || ended.apply(|ended| *ended) == 1);
}
