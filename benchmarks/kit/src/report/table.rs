//! The table for readers: one per distance class, a line per comparison, and the discarded samples.

use std::fmt::Write;

use super::rows::Row;
use crate::harness::{MAX_TRIES, Outcome, Suite};

/// The rows of one suite as a table, with a headline per placement.
pub fn table(suite: &Suite, rows: &[Row]) -> String {
    let mut text = format!("{}: {}\n", suite.name, suite.about);
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(12);
    let mut placement = "";
    let mut above = "";
    for row in rows {
        if row.placement != placement {
            placement = &row.placement;
            above = "";
            let _ = writeln!(
                text,
                "  {placement:<width$}  {:>9} {:6} {:>10} {:>10} {:>3} {:>6}",
                "median", "", "min", "max", "n", "thrown"
            );
        }
        if row.name == above {
            let _ = write!(text, "  {:width$}  {:50}", "", "");
        } else {
            let _ = write!(
                text,
                "  {:<width$}  {:>9} {:<6} {:>10} {:>10} {:>3} {:>6} ",
                row.name,
                figure(row.median),
                row.unit.name(),
                figure(row.min),
                figure(row.max),
                row.rounds,
                row.discarded
            );
        }
        above = &row.name;
        text.push_str(&comparison(row));
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

fn comparison(row: &Row) -> String {
    let mut text = String::new();
    if let Some(peer) = &row.peer {
        let ratio = row.ratio.map_or_else(|| "   -".to_owned(), |ratio| format!("{ratio:.2}"));
        let _ = write!(text, " {ratio} x {peer}");
    }
    if let Some(bar) = &row.bar {
        let verdict = match row.holds {
            Some(true) => "holds",
            Some(false) => "FAILS",
            None => "not measured",
        };
        let _ = write!(text, " [{bar}: {verdict}]");
    }
    text
}

/// The value with three or more significant digits, rounded.
fn figure(number: f64) -> String {
    match number.abs() {
        n if n >= 1_000.0 => format!("{number:.0}"),
        n if n >= 100.0 => format!("{number:.1}"),
        n if n >= 1.0 || n == 0.0 => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    }
}

/// One line per case that needs a program which is not on this machine.
pub fn absences(suite: &Suite, outcomes: &[Outcome]) -> Vec<String> {
    let absent = |outcome: &Outcome| {
        let what = outcome.absent.as_ref()?;
        Some(format!("{}: {}: not measured: {what} is not here", suite.name, outcome.case))
    };
    outcomes.iter().filter_map(absent).collect()
}

/// One line per case that failed or had rounds without a sample; empty if there are none.
pub fn failures(suite: &Suite, outcomes: &[Outcome]) -> Vec<String> {
    let mut lines = Vec::new();
    for outcome in outcomes {
        let name = format!("{}: {}", suite.name, outcome.case);
        if let Some(why) = &outcome.failure {
            lines.push(format!("{name}: not measured: {why}"));
        } else if outcome.empty_rounds > 0 {
            let last = outcome.last_disturbance.as_deref();
            lines.push(format!(
                "{name}: {} rounds without a sample after up to {MAX_TRIES} tries each: {} while the \
                 distance of the cores changed, {} disturbed{}",
                outcome.empty_rounds,
                outcome.flipped,
                outcome.disturbed,
                last.map(|why| format!(", last because {why}")).unwrap_or_default()
            ));
        }
    }
    lines
}

/// Every valid sample, one per line: suite, case, round, value, unit, class, one-way latency.
pub fn raw(suite: &Suite, outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        for sample in &outcome.samples {
            let class = sample.class.map_or("-", |class| class.name());
            let distance =
                sample.one_way_ns.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}"));
            let _ = writeln!(
                text,
                "{}\t{}\t{}\t{}\t{}\t{class}\t{distance}",
                suite.name,
                outcome.case,
                sample.round,
                sample.value,
                outcome.unit.name()
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Bar, Case, Harness, Limit, Peer, Placement, Unit};
    use crate::measure::cores::Cores;
    use crate::measure::sampling::{CaseError, Reading};
    use crate::report::rows;

    #[test]
    fn the_table_shows_verdicts_and_the_list_shows_what_is_missing() {
        let mut suite = Suite::new("s", "one operation is one test", Placement::Unpinned);
        suite.push(Case::new("peer", Unit::Mops, |_| Ok(Reading::of(2.0))));
        let bar = Bar::ratio(Limit::AtLeast(1.0));
        let ours = Case::new("ours", Unit::Mops, |_| Ok(Reading::of(1.0)));
        suite.push(ours.bar(Peer::case("peer"), bar).beside(Peer::case("none")));
        suite.push(Case::new("missing", Unit::Mops, |_| Err(CaseError::Absent("a tool".into()))));
        suite.push(Case::new("gone", Unit::Mops, |_| Err(CaseError::Failed("no tool".into()))));
        let cores = Cores { first: 0, second: 1 };
        let outcomes = Harness::new(cores, 2).run(&mut suite);
        let text = table(&suite, &rows(&suite, &outcomes, cores));
        assert!(text.contains("0.50 x peer [ratio >= 1: FAILS]"), "{text}");
        assert!(text.contains("- x none"), "{text}");
        assert_eq!(failures(&suite, &outcomes), ["s: gone: not measured: no tool"]);
        assert_eq!(absences(&suite, &outcomes), ["s: missing: not measured: a tool is not here"]);
        assert_eq!(raw(&suite, &outcomes).lines().count(), 4);
    }

    #[test]
    fn figures_stay_short() {
        let shown: Vec<_> = [123_456.7, 223.44, 9.126, 0.5, 0.0].map(figure).to_vec();
        assert_eq!(shown, ["123457", "223.4", "9.13", "0.5000", "0.00"]);
    }
}
