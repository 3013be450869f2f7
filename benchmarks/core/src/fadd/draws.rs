//! [`Plan`]: how many objects, how they are chosen, and by how many threads; and the objects that each
//! thread chooses, drawn before anything is timed.

use std::fmt;

use bench_kit::work::next;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Objects that a thread chooses before it begins again with the first.
pub(crate) const DRAWS: usize = 1 << 18;

/// The skew of YCSB's zipfian distribution.
const SKEW: f64 = 0.99;

/// How objects are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(crate) enum Distribution {
    /// Each as often as any other
    Uniform,
    /// The object of rank r in proportion to 1 / r^0.99
    Zipfian,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) objects: u32,
    pub(crate) distribution: Distribution,
    pub(crate) threads: u32,
    /// Percentage of operations on objects of the own thread; `None`: as chance has it.
    pub(crate) local: Option<u8>,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { objects, threads, .. } = self;
        let kind = self.kind();
        let plural = |n: &u32| if *n == 1 { "" } else { "s" };
        write!(
            f,
            "{threads} thread{}, {objects} {kind} object{}",
            plural(threads),
            plural(objects)
        )?;
        self.local.map_or(Ok(()), |local| write!(f, ", {local} % of operations on own ones"))
    }
}

impl Plan {
    pub(crate) fn kind(&self) -> &'static str {
        match self.distribution {
            Distribution::Uniform => "uniform",
            Distribution::Zipfian => "zipfian",
        }
    }

    /// The name of its suite.
    pub(crate) fn name(&self) -> String {
        format!("fadd-{}-{}", self.kind(), self.objects)
    }

    /// The thread that has an object.
    pub(crate) fn owner(&self, object: u32) -> u32 {
        object % self.threads
    }

    /// The number of an object among those of its thread.
    pub(crate) fn place(&self, object: u32) -> u32 {
        object / self.threads
    }

    /// The number of objects of a thread.
    pub(crate) fn owned(&self, thread: u32) -> u32 {
        self.objects / self.threads + u32::from(thread < self.objects % self.threads)
    }

    /// The objects that a thread chooses.
    pub(crate) fn draws(&self, thread: u32) -> Vec<u32> {
        let mut random = Random(u64::from(thread) + 1);
        // With a share of own objects, a rank is one among the objects of a thread.
        let ranks = match self.local {
            None => self.objects,
            Some(_) => self.owned(self.threads - 1),
        };
        let mut chooser = Chooser::new(self.distribution, ranks);
        let mut draw = || {
            let rank = chooser.draw(&mut random);
            let Some(local) = self.local else { return rank };
            let is_own = random.below(100) < u64::from(local) || self.threads == 1;
            let owner = match is_own {
                true => thread,
                false => {
                    let others = u64::from(self.threads) - 1;
                    (thread + 1 + random.below(others) as u32) % self.threads
                }
            };
            rank * self.threads + owner
        };
        (0..DRAWS).map(|_| draw()).collect()
    }
}

struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = next(self.0);
        self.0 >> 11
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        self.word() as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.share() * limit as f64) as u64
    }
}

/// Draws ranks from 0.
enum Chooser {
    Uniform(u32),
    /// The sums of the weights up to each rank.
    Zipfian(Vec<f64>),
}

impl Chooser {
    fn new(distribution: Distribution, ranks: u32) -> Chooser {
        match distribution {
            Distribution::Uniform => Chooser::Uniform(ranks),
            Distribution::Zipfian => {
                let sums = (1..=ranks).scan(0.0, |sum, rank| {
                    *sum += f64::from(rank).powf(-SKEW);
                    Some(*sum)
                });
                Chooser::Zipfian(sums.collect())
            }
        }
    }

    fn draw(&mut self, random: &mut Random) -> u32 {
        match self {
            Chooser::Uniform(ranks) => random.below(u64::from(*ranks)) as u32,
            Chooser::Zipfian(sums) => {
                let at = random.share() * sums.last().copied().unwrap_or(0.0);
                sums.partition_point(|sum| *sum <= at).min(sums.len() - 1) as u32
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(objects: u32, distribution: Distribution, threads: u32, local: Option<u8>) -> Plan {
        Plan { objects, distribution, threads, local }
    }

    #[test]
    fn objects_are_chosen_as_their_distribution_says() {
        for (distribution, first) in
            [(Distribution::Uniform, 0.01), (Distribution::Zipfian, 0.1933)]
        {
            let draws = plan(100, distribution, 2, None).draws(1);
            assert!(draws.iter().all(|object| *object < 100));
            let share = draws.iter().filter(|object| **object == 0).count() as f64 / DRAWS as f64;
            assert!((share / first - 1.0).abs() < 0.05, "{distribution:?}: {share}");
        }
    }

    #[test]
    fn as_many_are_local_as_were_asked_for() {
        for distribution in [Distribution::Uniform, Distribution::Zipfian] {
            for (local, objects) in [(0, 3), (25, 64), (100, 1001)] {
                let plan = plan(objects, distribution, 3, Some(local));
                for thread in 0..3 {
                    let draws = plan.draws(thread);
                    assert!(
                        draws
                            .iter()
                            .all(|o| *o < objects && plan.place(*o) < plan.owned(plan.owner(*o)))
                    );
                    let own = draws.iter().filter(|object| plan.owner(**object) == thread).count();
                    let share = own as f64 / DRAWS as f64 * 100.0;
                    assert!((share - f64::from(local)).abs() < 1.0, "{local}: {share}");
                }
            }
        }
    }

    #[test]
    fn threads_have_all_objects_together() {
        for (objects, threads) in [(1, 2), (7, 3), (64, 4)] {
            let plan = plan(objects, Distribution::Uniform, threads, None);
            assert_eq!((0..threads).map(|thread| plan.owned(thread)).sum::<u32>(), objects);
        }
    }
}
