//! Tables of one program's rows, in Markdown.

use std::fmt::Write;

use super::list::{Row, Suite};

/// What stands where nothing was measured.
const NOTHING: &str = "Not measured yet.\n";

/// All rows, a table for each suite.
pub(super) fn rows(suites: &[Suite]) -> String {
    if suites.is_empty() {
        return NOTHING.to_owned();
    }
    let tables = suites.iter().map(|(suite, rows)| {
        let mut table = format!(
            "**{suite}**\n\n| case | placement | unit | median | least to most | rounds | discarded \
             | beside | ratio |\n|---|---|---|---|---|---|---|---|---|\n"
        );
        for row in rows {
            let Row { name, placement, unit, median, min, max, rounds, discarded, .. } = row;
            let (median, spread) = (figure(*median), spread(*min, *max));
            let (peer, ratio) = (row.peer.as_deref().unwrap_or(""), ratio(row));
            let _ = writeln!(
                table,
                "| {name} | {placement} | {unit} | {median} | {spread} | {rounds} | {discarded} | \
                 {peer} | {ratio} |"
            );
        }
        table
    });
    tables.collect::<Vec<_>>().join("\n")
}

/// The rows that have a bar, in one table.
pub(super) fn bars(suites: &[Suite]) -> String {
    if suites.is_empty() {
        return NOTHING.to_owned();
    }
    let mut table = "| suite | case | placement | median | beside | ratio | bar | |\n\
                     |---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for row in suites.iter().flat_map(|(_, rows)| rows) {
        let Some(bar) = &row.bar else { continue };
        let Row { suite, name, placement, unit, .. } = row;
        let median = figure(row.median);
        let (peer, ratio) = (row.peer.as_deref().unwrap_or(""), ratio(row));
        let verdict = match row.holds {
            Some(true) => "holds",
            Some(false) => "**fails**",
            None => "not measured",
        };
        let _ = writeln!(
            table,
            "| {suite} | {name} | {placement} | {median} {unit} | {peer} | {ratio} | {bar} | {verdict} |"
        );
    }
    table
}

fn ratio(row: &Row) -> String {
    row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
}

fn spread(min: f64, max: f64) -> String {
    format!("{} to {}", figure(min), figure(max))
}

/// A number with three significant digits, or all in front of the point.
pub(super) fn figure(number: f64) -> String {
    let decimals = match number.abs() {
        n if n >= 100.0 => 0,
        n if n >= 10.0 => 1,
        n if n >= 1.0 || n == 0.0 => 2,
        n => (2 - n.log10().floor() as i32).clamp(0, 6) as usize,
    };
    format!("{number:.decimals$}")
}

/// A time in the unit in which it has few digits.
pub(super) fn time(ns: f64) -> String {
    match ns {
        ns if ns >= 1e6 => format!("{} ms", figure(ns / 1e6)),
        ns if ns >= 1e3 => format!("{} us", figure(ns / 1e3)),
        ns => format!("{} ns", figure(ns)),
    }
}

/// Nanoseconds of a time that [`time`] has written.
pub(super) fn parsed_ns(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    let per_unit = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * per_unit)
}

/// One figure divided by another: empty if neither was measured, which leaves what a document has.
pub(super) fn quotient(one: Option<f64>, other: Option<f64>) -> String {
    match (one, other) {
        (Some(one), Some(other)) => figure(one / other),
        (None, None) => String::new(),
        _ => "not measured together".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::row;
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let shown = [123_456.7, 223.44, 58.06, 9.126, 0.5, 0.0889, 0.0].map(figure);
        assert_eq!(shown, ["123457", "223", "58.1", "9.13", "0.500", "0.0889", "0.00"]);
        assert_eq!([3.08, 45_480.0, 2.5e6].map(time), ["3.08 ns", "45.5 us", "2.50 ms"]);
    }

    #[test]
    fn a_time_can_be_read_back() {
        assert_eq!(
            ["3.08 ns", "45.5 us", "2.50 ms"].map(parsed_ns),
            [3.08, 45_500.0, 2.5e6].map(Some)
        );
        assert_eq!(["–", "", "93.2 GB/s", "the same", "5.00"].map(parsed_ns), [None; 5]);
    }

    #[test]
    fn a_quotient_needs_both_figures() {
        assert_eq!(quotient(Some(3.0), Some(2.0)), "1.50");
        assert_eq!(quotient(None, None), "");
        assert_eq!(quotient(None, Some(2.0)), "not measured together");
    }

    #[test]
    fn a_table_has_a_line_for_each_row() {
        let plain = row("s", "plain", 2.0, "us");
        let barred = Row {
            peer: Some("plain".to_owned()),
            ratio: Some(1.5),
            bar: Some("ratio <= 1".to_owned()),
            holds: Some(false),
            ..row("s", "ours", 3.0, "us")
        };
        let suites = [("s".to_owned(), vec![plain, barred])];
        let all = rows(&suites);
        assert_eq!(all.lines().count(), 6, "{all}");
        let line = "| plain | pinned 0,1 near | us | 2.00 | 1.00 to 4.00 | 7 | 0 |  |  |";
        assert!(all.contains(line), "{all}");
        let bars = bars(&suites);
        assert_eq!(bars.lines().count(), 3, "{bars}");
        let line =
            "| s | ours | pinned 0,1 near | 3.00 us | plain | 1.50 | ratio <= 1 | **fails** |";
        assert!(bars.contains(line), "{bars}");
    }
}
