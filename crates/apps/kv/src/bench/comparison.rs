//! Compares several stores over several interleaved rounds.
//!
//! A machine's speed drifts with other load, clock rates and thread placement. So each round runs
//! every store once, and comparisons use medians over the rounds.

use crate::bench::report::Report;
use crate::ycsb::Workload;

/// A store to compare.
pub trait Candidate {
    /// The name in results.
    fn name(&self) -> &str;

    /// Loads a fresh store and runs the workload on it.
    ///
    /// # Errors
    /// A message if the store cannot be run.
    fn run(&mut self, workload: &Workload, round: u64) -> Result<Outcome, String>;
}

/// The result of one round of one store.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The load phase.
    pub load: Report,
    /// The run phase.
    pub run: Report,
}

/// Median, minimum and maximum of a figure over the rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// The spread of `figures`; all zeros if it is empty.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (figures.first(), figures.last()) else {
            return Self::default();
        };
        let middle = figures.len() / 2;
        let median = match figures.len() % 2 {
            1 => figures[middle],
            _ => (figures[middle - 1] + figures[middle]) / 2.0,
        };
        Self { median, min, max }
    }
}

/// The results of all rounds of one store.
#[derive(Clone, Debug)]
pub struct Score {
    /// The name of the store.
    pub name: String,
    /// The rounds, in order.
    pub rounds: Vec<Outcome>,
}

impl Score {
    /// Operations per second while running.
    pub fn throughput(&self) -> Spread {
        Spread::of(self.rounds.iter().map(|round| round.run.throughput()))
    }

    /// Records per second while loading.
    pub fn load_throughput(&self) -> Spread {
        Spread::of(self.rounds.iter().map(|round| round.load.throughput()))
    }

    /// The run phases of all rounds, added up.
    pub fn run(&self) -> Report {
        let mut total = Report::default();
        for round in &self.rounds {
            total.add_round(&round.run);
        }
        total
    }
}

/// Runs every store in every round.
///
/// # Errors
/// The message of the first store that fails, with its name.
pub fn compare<C: Candidate + ?Sized>(
    candidates: &mut [Box<C>],
    workload: &Workload,
    rounds: u64,
) -> Result<Vec<Score>, String> {
    let mut scores: Vec<Score> = candidates
        .iter()
        .map(|candidate| Score { name: candidate.name().to_owned(), rounds: Vec::new() })
        .collect();
    for round in 0..rounds {
        for (candidate, score) in candidates.iter_mut().zip(&mut scores) {
            let outcome = candidate.run(workload, round);
            score.rounds.push(outcome.map_err(|error| format!("{}: {error}", score.name))?);
        }
    }
    Ok(scores)
}
