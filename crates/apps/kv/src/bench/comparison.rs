//! Several stores, several rounds, one after the other in turn.
//!
//! A machine's speed drifts: other work, clock rates, where threads happen to be. So the stores
//! take turns within each round, and what is compared are medians over the rounds.

use crate::bench::report::Report;
use crate::ycsb::Workload;

/// A store that takes part.
pub trait Candidate {
    /// What results call it.
    fn name(&self) -> &str;

    /// Fills a fresh store and runs the workload on it.
    ///
    /// # Errors
    /// A message when the store could not be driven.
    fn run(&mut self, workload: &Workload, round: u64) -> Result<Outcome, String>;
}

/// One round of one store.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What filling measured.
    pub load: Report,
    /// What running measured.
    pub run: Report,
}

/// Median, least and greatest of one figure over the rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// The spread of `figures`; zeros when there is none.
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

/// All rounds of one store.
#[derive(Clone, Debug)]
pub struct Score {
    /// The store.
    pub name: String,
    /// Its rounds, in order.
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

    /// All rounds together.
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
/// The first message of a store that could not be driven, with its name.
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
