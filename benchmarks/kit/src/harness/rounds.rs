//! The rounds: one sample of each candidate, then the next round.

use std::time::{Duration, Instant};
use std::{io, thread};

use super::case::{Case, Placement, Suite, Unit};
use crate::measure::cores::Cores;
use crate::measure::latency::{Class, one_way_ns};
use crate::measure::sampling::{CaseError, Reading, Sampler};

/// How often one round asks a case for a sample before it goes on without one; half as often for each
/// round of it that had none, so that a machine that others use does not hold up the rest for long.
pub const MAX_TRIES: usize = 20;

/// See [`Harness::retry_grace`].
const RETRY_GRACE: Duration = Duration::from_secs(5);

/// A sample that counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// In the unit of the case.
    pub value: f64,
    /// Distance class of the cores, for cases that run on a pair.
    pub class: Option<Class>,
    /// One-way latency of the cores around the sample, in nanoseconds, for the same cases.
    pub one_way_ns: Option<f64>,
    /// The round, from 0.
    pub round: usize,
}

/// What the rounds have brought for one case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The case.
    pub case: String,
    /// Its unit.
    pub unit: Unit,
    /// The samples that count, in the order they were taken.
    pub samples: Vec<Sample>,
    /// Samples thrown away because a thread lost its core or the clock changed.
    pub disturbed: usize,
    /// What disturbed the last of them.
    pub last_disturbance: Option<String>,
    /// Samples thrown away because the cores' distance was not the same before and after.
    pub flipped: usize,
    /// Rounds that ended without a sample: after [`MAX_TRIES`] tries, or when further tries of the suite
    /// had taken too long.
    pub empty_rounds: usize,
    /// Why the case was given up, if it was.
    pub failure: Option<String>,
    /// The program that is missing on this machine, if that is why there are no samples.
    pub absent: Option<String>,
}

impl Outcome {
    /// The values of one distance class, sorted. Cases off a pair have the class `None`.
    pub fn values(&self, class: Option<Class>) -> Vec<f64> {
        let of_class = self.samples.iter().filter(|sample| sample.class == class);
        let mut values: Vec<f64> = of_class.map(|sample| sample.value).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// The median of one distance class.
    pub fn median(&self, class: Option<Class>) -> Option<f64> {
        let values = self.values(class);
        let middle = values.len() / 2;
        match values.len() {
            0 => None,
            n if n % 2 == 1 => Some(values[middle]),
            _ => Some((values[middle - 1] + values[middle]) / 2.0),
        }
    }

    /// All samples thrown away.
    pub fn discarded(&self) -> usize {
        self.disturbed + self.flipped
    }
}

/// Tells how far apart two cores are, in nanoseconds one way.
pub type Distance = Box<dyn FnMut(Cores) -> io::Result<f64>>;

/// Hears the round and the case before each sample.
pub type Progress = Box<dyn FnMut(usize, &str)>;

/// Runs suites in rounds.
pub struct Harness {
    /// The cores to measure on.
    pub cores: Cores,
    /// How many rounds.
    pub rounds: usize,
    /// How long the second try of a round waits; each further one waits this much longer.
    pub pause: Duration,
    /// How much longer than all first tries of a suite so far its further tries may take. So a suite takes
    /// at most about twice as long as on a machine where nothing disturbs it.
    pub retry_grace: Duration,
    /// One-way latency of the two cores; [`one_way_ns`] unless a test stands in for the machine.
    pub distance: Distance,
    /// Told, before each sample, the round and the case.
    pub progress: Progress,
}

impl Harness {
    /// A harness on this machine.
    pub fn new(cores: Cores, rounds: usize) -> Harness {
        Harness {
            cores,
            rounds,
            pause: Duration::from_millis(20),
            retry_grace: RETRY_GRACE,
            distance: Box::new(one_way_ns),
            progress: Box::new(|_, _| {}),
        }
    }

    /// Runs all rounds of `suite` and returns one outcome per case, in order.
    pub fn run(&mut self, suite: &mut Suite) -> Vec<Outcome> {
        let sampler = Sampler { cores: self.cores, time: suite.time };
        let mut outcomes: Vec<Outcome> = suite.cases.iter().map(fresh).collect();
        let mut spent = Spent::default();
        for round in 0..self.rounds {
            for (case, outcome) in suite.cases.iter_mut().zip(&mut outcomes) {
                if outcome.failure.is_none() && outcome.absent.is_none() {
                    (self.progress)(round, &case.name);
                    self.round(round, suite.placement, &sampler, case, (outcome, &mut spent));
                }
            }
        }
        outcomes
    }

    fn round(
        &mut self,
        round: usize,
        placement: Placement,
        sampler: &Sampler,
        case: &mut Case,
        (outcome, spent): (&mut Outcome, &mut Spent),
    ) {
        for tries in 0..tries_after(outcome.empty_rounds) as u32 {
            if tries > 0 && spent.retries > spent.first_tries + self.retry_grace {
                break;
            }
            let start = Instant::now();
            // Whatever disturbed the last try gets time to pass.
            thread::sleep(self.pause * tries);
            let taken = self.sample(placement, sampler, case);
            *spent.of(tries) += start.elapsed();
            match taken {
                Ok(Taken::Counts(reading, distance)) => {
                    let Some(value) = in_unit(case.unit, reading) else {
                        outcome.failure =
                            Some("in cycles, but read without a frequency".to_owned());
                        return;
                    };
                    let (class, one_way_ns) = distance.unzip();
                    outcome.samples.push(Sample { value, class, one_way_ns, round });
                    return;
                }
                Ok(Taken::Flipped) => outcome.flipped += 1,
                Err(CaseError::Disturbed(why)) => {
                    outcome.disturbed += 1;
                    outcome.last_disturbance = Some(why);
                }
                Err(CaseError::Empty(why)) => {
                    outcome.last_disturbance = Some(why);
                    break;
                }
                Err(CaseError::Absent(what)) => {
                    outcome.absent = Some(what);
                    return;
                }
                Err(CaseError::Failed(why)) => {
                    outcome.failure = Some(why);
                    return;
                }
            }
        }
        outcome.empty_rounds += 1;
    }

    fn sample(
        &mut self,
        placement: Placement,
        sampler: &Sampler,
        case: &mut Case,
    ) -> Result<Taken, CaseError> {
        if placement != Placement::Pair {
            return Ok(Taken::Counts((case.body)(sampler)?, None));
        }
        let before = (self.distance)(self.cores)?;
        let reading = (case.body)(sampler)?;
        let after = (self.distance)(self.cores)?;
        Ok(match (Class::of(before), Class::of(after)) {
            (Some(a), Some(b)) if a == b && reading.class.is_none_or(|own| own == a) => {
                Taken::Counts(reading, Some((a, (before + after) / 2.0)))
            }
            _ => Taken::Flipped,
        })
    }
}

/// The tries of a round, if so many before it had no sample.
fn tries_after(empty_rounds: usize) -> usize {
    MAX_TRIES.checked_shr(empty_rounds as u32).unwrap_or(0).max(1)
}

/// The time that samples of a suite have taken so far.
#[derive(Default)]
struct Spent {
    first_tries: Duration,
    retries: Duration,
}

impl Spent {
    /// That of all tries like this one.
    fn of(&mut self, tries: u32) -> &mut Duration {
        if tries == 0 { &mut self.first_tries } else { &mut self.retries }
    }
}

/// What a try has brought.
enum Taken {
    /// A sample, and the distance of the cores around it.
    Counts(Reading, Option<(Class, f64)>),
    /// Nothing: the distance changed meanwhile.
    Flipped,
}

fn fresh(case: &Case) -> Outcome {
    Outcome {
        case: case.name.clone(),
        unit: case.unit,
        samples: Vec::new(),
        disturbed: 0,
        last_disturbance: None,
        flipped: 0,
        empty_rounds: 0,
        failure: None,
        absent: None,
    }
}

fn in_unit(unit: Unit, reading: Reading) -> Option<f64> {
    match unit {
        Unit::Cycles => reading.cycles_per_ns.map(|cycles_per_ns| reading.value * cycles_per_ns),
        _ => Some(reading.value),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    fn harness(rounds: usize, distances: Vec<f64>) -> Harness {
        let mut distances = distances.into_iter().cycle();
        Harness {
            pause: Duration::ZERO,
            distance: Box::new(move |_| Ok(distances.next().expect("a distance"))),
            ..Harness::new(Cores { first: 0, second: 1 }, rounds)
        }
    }

    fn suite(placement: Placement, cases: Vec<Case>) -> Suite {
        let mut suite = Suite::new("test", "", placement);
        suite.time = Duration::from_millis(1);
        cases.into_iter().for_each(|case| suite.push(case));
        suite
    }

    #[test]
    fn candidates_take_turns() {
        let order = Rc::new(RefCell::new(String::new()));
        let case = |name: &'static str| {
            let order = order.clone();
            Case::new(name, Unit::Mops, move |_| {
                order.borrow_mut().push_str(name);
                Ok(Reading::of(1.0))
            })
        };
        let mut suite = suite(Placement::Pair, vec![case("a"), case("b")]);
        harness(3, vec![30.0]).run(&mut suite);
        assert_eq!(*order.borrow(), "ababab");
    }

    #[test]
    fn a_flip_of_the_cores_discards_the_sample_and_takes_another() {
        let case = Case::new("a", Unit::Mops, |_| Ok(Reading::of(1.0)));
        // before, after: flips once, disturbed beyond far once, then near, then far.
        let distances = vec![30.0, 165.0, 500.0, 30.0, 31.0, 33.0, 160.0, 170.0];
        let outcome = harness(2, distances).run(&mut suite(Placement::Pair, vec![case])).remove(0);
        assert_eq!((outcome.flipped, outcome.disturbed, outcome.discarded()), (2, 0, 2));
        let seen: Vec<_> = outcome.samples.iter().map(|s| (s.class, s.one_way_ns)).collect();
        assert_eq!(seen, [(Some(Class::Near), Some(32.0)), (Some(Class::Far), Some(165.0))]);
    }

    #[test]
    fn a_reading_that_knows_another_distance_is_discarded() {
        let far = Reading { class: Some(Class::Far), ..Reading::of(1.0) };
        let case = Case::new("a", Unit::Mops, move |_| Ok(far));
        let outcome = harness(1, vec![30.0]).run(&mut suite(Placement::Pair, vec![case])).remove(0);
        assert_eq!((outcome.flipped, outcome.samples.len()), (MAX_TRIES, 0));
    }

    #[test]
    fn retries_are_bounded() {
        let case = Case::new("a", Unit::Mops, |_| Err(CaseError::Disturbed("always".to_owned())));
        let outcome =
            harness(2, vec![30.0]).run(&mut suite(Placement::SingleThread, vec![case])).remove(0);
        assert_eq!(outcome.disturbed, MAX_TRIES + MAX_TRIES / 2);
        assert_eq!((outcome.empty_rounds, outcome.samples.len()), (2, 0));
    }

    #[test]
    fn retries_of_a_suite_take_no_longer_than_its_first_tries() {
        let tries = Rc::new(std::cell::Cell::new(0));
        let counted = tries.clone();
        let case = Case::new("a", Unit::Mops, move |_| {
            counted.set(counted.get() + 1);
            if counted.get() > 1 {
                thread::sleep(Duration::from_millis(20));
            }
            Err(CaseError::Disturbed("always".to_owned()))
        });
        let mut harness = harness(1, vec![30.0]);
        harness.retry_grace = Duration::ZERO;
        let outcome = harness.run(&mut suite(Placement::SingleThread, vec![case])).remove(0);
        assert!((2..MAX_TRIES).contains(&tries.get()), "{} tries", tries.get());
        assert_eq!((outcome.disturbed, outcome.empty_rounds), (tries.get(), 1));
    }

    #[test]
    fn a_case_that_no_other_try_would_help_is_tried_once_a_round() {
        let tries = Rc::new(std::cell::Cell::new(0));
        let counted = tries.clone();
        let case = Case::new("a", Unit::Mops, move |_| {
            counted.set(counted.get() + 1);
            Err(CaseError::Empty("nothing".to_owned()))
        });
        let outcome =
            harness(2, vec![30.0]).run(&mut suite(Placement::SingleThread, vec![case])).remove(0);
        assert_eq!((tries.get(), outcome.empty_rounds, outcome.disturbed), (2, 2, 0));
    }

    #[test]
    fn a_case_that_never_has_a_sample_is_tried_less_and_less() {
        assert_eq!([0, 1, 2, 4, 5, 100].map(tries_after), [20, 10, 5, 1, 1, 1]);
    }

    #[test]
    fn a_failure_ends_the_case_and_not_the_suite() {
        let broken = Case::new("a", Unit::Mops, |_| Err(CaseError::Failed("no peer".to_owned())));
        let sound = Case::new("b", Unit::Mops, |_| Ok(Reading::of(2.0)));
        let outcomes =
            harness(3, vec![30.0]).run(&mut suite(Placement::Unpinned, vec![broken, sound]));
        assert_eq!(outcomes[0].failure.as_deref(), Some("no peer"));
        assert_eq!(outcomes[1].samples.len(), 3);
    }

    #[test]
    fn cycles_come_from_the_frequency_of_the_sample() {
        let reading = Reading { cycles_per_ns: Some(3.5), ..Reading::of(10.0) };
        assert_eq!(in_unit(Unit::Cycles, reading), Some(35.0));
        assert_eq!(in_unit(Unit::Nanoseconds, reading), Some(10.0));
        assert_eq!(in_unit(Unit::Cycles, Reading::of(10.0)), None);
    }

    #[test]
    fn medians_are_per_class() {
        let mut outcome = fresh(&Case::new("a", Unit::Mops, |_| Ok(Reading::of(0.0))));
        for (value, class) in [(3.0, Class::Near), (1.0, Class::Near), (9.0, Class::Far)] {
            let class = Some(class);
            outcome.samples.push(Sample { value, class, one_way_ns: None, round: 0 });
        }
        assert_eq!(outcome.median(Some(Class::Near)), Some(2.0));
        assert_eq!(outcome.median(Some(Class::Far)), Some(9.0));
        assert_eq!(outcome.median(None), None);
    }
}
