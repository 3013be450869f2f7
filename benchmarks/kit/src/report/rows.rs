//! Rows: one per case, distance class and comparison, as they stand in the JSON list.

use serde::Serialize;

use crate::harness::{Comparison, Outcome, Peer, Placement, Suite, Unit};
use crate::measure::cores::Cores;
use crate::measure::latency::Class;

/// One line of the JSON list. A case with several comparisons has several rows that differ only in
/// the last four fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Suite.
    pub suite: String,
    /// Case.
    pub name: String,
    /// Where it ran: "pinned 0,1 near", "pinned 0,1 far", "pinned 0" or "free".
    pub placement: String,
    /// Unit of the next three fields, and of bars on the value.
    pub unit: Unit,
    /// Median of the samples.
    pub median: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
    /// Samples in this placement.
    pub rounds: usize,
    /// Discarded samples of this case, over all placements.
    pub discarded: usize,
    /// The case it is compared with.
    pub peer: Option<String>,
    /// Median divided by the peer's in the same placement.
    pub ratio: Option<f64>,
    /// The required result, in words.
    pub bar: Option<String>,
    /// Whether the result is as required; absent if there is no bar, or no figure of its peer in
    /// this placement.
    pub holds: Option<bool>,
}

/// The rows of one suite after its rounds, in the order of its cases, near before far.
pub fn rows(suite: &Suite, outcomes: &[Outcome], cores: Cores) -> Vec<Row> {
    let classes: &[Option<Class>] = match suite.placement {
        Placement::Pair => &[Some(Class::Near), Some(Class::Far)],
        Placement::SingleThread | Placement::Unpinned => &[None],
    };
    let mut rows = Vec::new();
    for &class in classes {
        let placement = placement(suite.placement, class, cores);
        for (case, outcome) in suite.cases.iter().zip(outcomes) {
            let Some(median) = outcome.median(class) else { continue };
            let values = outcome.values(class);
            let plain = Row {
                suite: suite.name.clone(),
                name: outcome.case.clone(),
                placement: placement.clone(),
                unit: outcome.unit,
                median,
                min: values[0],
                max: values[values.len() - 1],
                rounds: values.len(),
                discarded: outcome.discarded(),
                peer: None,
                ratio: None,
                bar: None,
                holds: None,
            };
            let comparisons = case.comparisons();
            if comparisons.is_empty() {
                rows.push(plain);
            } else {
                let compared = comparisons.iter().map(|c| compare(&plain, c, class, outcomes));
                rows.extend(compared);
            }
        }
    }
    rows
}

fn placement(placement: Placement, class: Option<Class>, cores: Cores) -> String {
    match (placement, class) {
        (Placement::Pair, Some(class)) => {
            format!("pinned {},{} {}", cores.first, cores.second, class.name())
        }
        (Placement::Pair | Placement::SingleThread, _) => format!("pinned {}", cores.first),
        (Placement::Unpinned, _) => "free".to_owned(),
    }
}

fn compare(
    plain: &Row,
    comparison: &Comparison,
    class: Option<Class>,
    outcomes: &[Outcome],
) -> Row {
    let peer = comparison.peer.as_ref().and_then(|peer| find(peer, plain.unit, class, outcomes));
    let ratio = peer.as_ref().map(|(_, median)| plain.median / median);
    let counts = comparison.only.is_none() || comparison.only == class;
    let bar = comparison.bar.filter(|_| counts);
    let wanted = comparison.peer.as_ref().map(|peer| match peer {
        Peer::Case(name) => name.clone(),
        Peer::Best(prefix) => format!("best of {prefix}*"),
    });
    Row {
        peer: peer.map(|(name, _)| name).or(wanted),
        ratio,
        bar: bar.map(|bar| bar.text()),
        holds: bar.and_then(|bar| bar.holds(plain.median, ratio)),
        ..plain.clone()
    }
}

/// The peer's name and median; a figure in another unit is not compared.
fn find(
    peer: &Peer,
    unit: Unit,
    class: Option<Class>,
    outcomes: &[Outcome],
) -> Option<(String, f64)> {
    let fits = |outcome: &&Outcome| {
        outcome.unit == unit
            && match peer {
                Peer::Case(name) => outcome.case == *name,
                Peer::Best(prefix) => outcome.case.starts_with(prefix),
            }
    };
    let medians = outcomes
        .iter()
        .filter(fits)
        .filter_map(|outcome| outcome.median(class).map(|median| (outcome.case.clone(), median)));
    let better = |a: &(String, f64), b: &(String, f64)| {
        let order = a.1.total_cmp(&b.1);
        if unit.more_is_better() { order } else { order.reverse() }
    };
    medians.max_by(better)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Bar, Case, Harness, Limit};
    use crate::measure::sampling::Reading;

    const CORES: Cores = Cores { first: 0, second: 1 };

    fn measure_load(mut suite: Suite, one_way_ns: f64) -> Vec<Row> {
        let mut harness =
            Harness { distance: Box::new(move |_| Ok(one_way_ns)), ..Harness::new(CORES, 3) };
        let outcomes = harness.run(&mut suite);
        rows(&suite, &outcomes, CORES)
    }

    fn fixed(name: &str, unit: Unit, value: f64) -> Case {
        Case::new(name, unit, move |_| Ok(Reading::of(value)))
    }

    fn suite() -> Suite {
        let bar = Bar::ratio(Limit::AtLeast(1.6));
        let mut suite = Suite::new("counter", "", Placement::Pair);
        suite.push(fixed("lock/a", Unit::Mops, 10.0));
        suite.push(fixed("lock/b", Unit::Mops, 20.0));
        let ours = fixed("ours", Unit::Mops, 40.0);
        suite.push(ours.bar_near(Peer::best("lock/"), bar).beside(Peer::case("lock/a")));
        suite
    }

    #[test]
    fn the_best_peer_is_the_one_with_the_best_median() {
        let rows = measure_load(suite(), 30.0);
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[2].placement, "pinned 0,1 near");
        assert_eq!(rows[2].peer.as_deref(), Some("lock/b"));
        assert_eq!((rows[2].ratio, rows[2].holds), (Some(2.0), Some(true)));
        assert_eq!((rows[3].ratio, rows[3].holds), (Some(4.0), None));
    }

    #[test]
    fn a_bar_for_near_cores_says_nothing_about_far_ones() {
        let rows = measure_load(suite(), 165.0);
        assert_eq!(rows[2].placement, "pinned 0,1 far");
        assert_eq!((rows[2].ratio, rows[2].holds), (Some(2.0), None));
        assert_eq!(rows[2].bar, None);
    }

    #[test]
    fn the_best_time_is_the_shortest() {
        let mut suite = Suite::new("fiber", "", Placement::SingleThread);
        suite.push(fixed("raw/a", Unit::Nanoseconds, 3.0));
        suite.push(fixed("raw/b", Unit::Nanoseconds, 9.0));
        suite.push(fixed("raw/c", Unit::Mops, 1.0));
        suite.push(fixed("ours", Unit::Nanoseconds, 6.0).beside(Peer::best("raw/")));
        let rows = measure_load(suite, 30.0);
        assert_eq!(rows[3].placement, "pinned 0");
        assert_eq!(rows[3].peer.as_deref(), Some("raw/a"));
    }

    #[test]
    fn a_peer_without_a_figure_leaves_the_bar_open() {
        let mut suite = Suite::new("s", "", Placement::Unpinned);
        let bar = Bar::ratio(Limit::AtMost(1.0));
        suite.push(fixed("ours", Unit::Percent, 0.2).bar(Peer::case("absent"), bar));
        let rows = measure_load(suite, 30.0);
        assert_eq!(rows[0].peer.as_deref(), Some("absent"));
        assert_eq!((rows[0].bar.as_deref(), rows[0].holds), (Some("ratio <= 1"), None));
    }

    #[test]
    fn a_row_has_the_fields_that_other_tools_read() {
        let json = serde_json::to_value(&measure_load(suite(), 30.0)[2]).expect("json");
        let fields: Vec<_> = json.as_object().expect("an object").keys().cloned().collect();
        let mut wanted = [
            "suite",
            "name",
            "placement",
            "unit",
            "median",
            "min",
            "max",
            "rounds",
            "discarded",
            "peer",
            "ratio",
            "bar",
            "holds",
        ];
        wanted.sort_unstable();
        assert_eq!(fields, wanted);
        assert_eq!(json["unit"], "Mops");
    }
}
