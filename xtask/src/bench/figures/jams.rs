//! Tables and plots of jams over all transports: the figures 5 to 8 and 11 to 14 of Grodowitz et al.
//! 2021, and calls of trustees.

use super::comparisons::{SUITES, TRANSPORTS};
use super::list::{Lists, PROGRAMS, Row};
use super::plot::{Line, dots};
use super::tables::{figure, time};

const FUNCTIONS: [&str; 2] = ["Server-Side Sum", "Indirect Put"];
const FORMS: [&str; 3] = ["Local", "Cached", "Injected"];
const PAYLOADS: [&str; 5] = ["4 bytes", "64 bytes", "512 bytes", "4 KiB", "32 KiB"];
/// Those that are measured over RDMA, and those on a loaded machine.
const OVER_RDMA: [&str; 2] = ["64 bytes", "4 KiB"];
const LOADED: [&str; 3] = ["64 bytes", "4 KiB", "32 KiB"];
/// What stands where nothing was measured.
const NOTHING: &str = "–";

/// A row of the suite `jam-TRANSPORT-WHAT`.
fn row<'a>(lists: &'a Lists, at: usize, what: &str, case: &str) -> Option<&'a Row> {
    lists.find(PROGRAMS[at], &format!("jam-{}-{what}", SUITES[at]), case)
}

/// What UCX has for comparison; not over RDMA.
fn ucx<'a>(lists: &'a Lists, at: usize, what: &str, case: &str) -> Option<&'a Row> {
    (PROGRAMS[at] != "rdma").then(|| row(lists, at, what, &format!("ucx/{case}"))).flatten()
}

fn payloads(at: usize) -> &'static [&'static str] {
    if PROGRAMS[at] == "rdma" { &OVER_RDMA } else { &PAYLOADS }
}

/// Nanoseconds of an operation, also where the row has a rate.
fn ns(row: Option<&Row>) -> Option<f64> {
    let row = row?;
    row.ns().or_else(|| (row.unit == "Mops").then(|| 1e3 / row.median))
}

/// A time in the unit in which it has few digits, or a number without a unit.
fn cell(row: Option<&Row>) -> String {
    match row {
        Some(row) => row.ns().map_or_else(|| figure(row.median), time),
        None => NOTHING.to_owned(),
    }
}

fn quotient(one: Option<f64>, other: Option<f64>) -> String {
    one.zip(other).map_or_else(String::new, |(one, other)| figure(one / other))
}

/// A table: its head, and a line for each transport and payload.
fn by_payload(columns: &[&str], cells: impl Fn(usize, &str) -> Vec<String>) -> String {
    let mut table = format!("| | payload | {} |\n|---|---|", columns.join(" | "));
    table += &"---|".repeat(columns.len());
    for (at, transport) in TRANSPORTS.into_iter().enumerate() {
        for payload in payloads(at) {
            let cells = cells(at, payload).join(" | ");
            table += &format!("\n| {transport} | {payload} | {cells} |");
        }
    }
    table + "\n"
}

/// Figures 5 and 6: a frame that runs nothing beside a write.
pub(super) fn frames(lists: &Lists) -> String {
    let columns = [
        "write",
        "empty frame",
        "/ write",
        "UCX put",
        "writes, GB/s",
        "empty frames, GB/s",
        "/ writes",
        "UCX puts, GB/s",
    ];
    by_payload(&columns, |at, payload| {
        let (write, frame) =
            (format!("gossamer/write, {payload}"), format!("gossamer/empty frame, {payload}"));
        let mut cells = Vec::new();
        for (what, test) in [("frame-latency", "ucp_put_lat"), ("frame-bandwidth", "ucp_put_bw")] {
            let [write, frame] = [&write, &frame].map(|case| row(lists, at, what, case));
            let median = |row: Option<&Row>| row.map(|row| row.median);
            let put = ucx(lists, at, what, &format!("{test}, {payload}"));
            cells.extend([cell(write), cell(frame), quotient(median(frame), median(write))]);
            cells.push(cell(put));
        }
        cells
    })
}

/// Figures 7 and 8: both functions in each form, in half a round trip or at full rate.
fn forms(lists: &Lists, what: &str, test: &str) -> String {
    let columns = ["sum: Local", "Cached", "Injected", "put: Local", "Cached", "Injected", "UCX"];
    by_payload(&columns, |at, payload| {
        let mut cells = Vec::new();
        for function in FUNCTIONS {
            for form in FORMS {
                let case = format!("gossamer/{function}, {form}, {payload}");
                cells.push(cell(row(lists, at, what, &case)));
            }
        }
        cells.push(cell(ucx(lists, at, what, &format!("{test}, {payload}"))));
        cells
    })
}

/// Figure 7.
pub(super) fn latency(lists: &Lists) -> String {
    forms(lists, "latency", "ucp_am_lat")
}

/// Figure 8.
pub(super) fn rate(lists: &Lists) -> String {
    forms(lists, "rate", "ucp_am_bw")
}

/// Calls of a trustee: whole calls one at a time, and 64 of them.
pub(super) fn calls(lists: &Lists) -> String {
    let forms = ["apply", "Local", "Cached", "Injected"];
    let mut table = format!("| | call | {} | Cached / apply |\n", forms.join(" | "));
    table += "|---|---|---|---|---|---|---|";
    for (at, transport) in TRANSPORTS.into_iter().enumerate() {
        let one = payloads(at).iter().map(|payload| ("inject-latency", format!(", {payload}")));
        let one = one.map(|(what, payload)| (what, "Indirect Put", payload, "one"));
        let many = [
            ("a word in and out", ""),
            ("Indirect Put", ", 64 bytes"),
            ("Indirect Put", ", 4 KiB"),
        ];
        let many = many
            .map(|(function, end)| ("inject-rate", function, end.to_owned(), "64 under way, Mops"));
        for (what, function, payload, how) in one.chain(many) {
            let case =
                |form| row(lists, at, what, &format!("gossamer/{function}, {form}{payload}"));
            let rows = forms.map(case);
            let median = |at: usize| rows[at].map(|row| row.median);
            let cells = rows.map(cell).join(" | ");
            let ratio = quotient(median(2), median(0));
            table += &format!("\n| {transport} | {function}{payload}, {how} | {cells} | {ratio} |");
        }
    }
    table + "\n"
}

/// Figures 11 and 12: the median and the 99.9th percentile, alone and beside stress-ng.
pub(super) fn loaded(lists: &Lists) -> String {
    let mut table = "| | alone: median | 99.9th percentile | spread | beside stress-ng: median | \
                     99.9th percentile | spread |\n|---|---|---|---|---|---|---|"
        .to_owned();
    for (name, rows) in loaded_rows(lists) {
        let [alone, alone_tail, beside, beside_tail] = rows;
        let spread = |median: Option<&Row>, tail: Option<&Row>| {
            let spread = ns(tail).zip(ns(median)).map(|(tail, median)| (tail - median) / median);
            spread.map_or_else(String::new, figure)
        };
        table += &format!(
            "\n| {name} | {} | {} | {} | {} | {} | {} |",
            cell(alone),
            cell(alone_tail),
            spread(alone, alone_tail),
            cell(beside),
            cell(beside_tail),
            spread(beside, beside_tail)
        );
    }
    table + "\n"
}

fn loaded_rows(lists: &Lists) -> Vec<(String, [Option<&Row>; 4])> {
    let what = FUNCTIONS.into_iter().flat_map(|function| LOADED.map(|it| (function, it)));
    what.map(|(function, payload)| {
        let parts = [
            "alone, median",
            "alone, 99.9th percentile",
            "beside stress-ng, median",
            "beside stress-ng, 99.9th percentile",
        ];
        let name = format!("{function}, {payload}");
        let rows = parts.map(|part| row(lists, 0, "loaded", &format!("gossamer/{name}, {part}")));
        (name, rows)
    })
    .collect()
}

/// Figures 13 and 14: what waiting costs.
pub(super) fn waiting(lists: &Lists) -> String {
    let mut table =
        "| | spins: half a round trip | processor time, % | waits: half a round trip | \
                     processor time, % |\n|---|---|---|---|---|"
            .to_owned();
    for function in FUNCTIONS {
        for pace in ["without pause", "one in a millisecond"] {
            let case = |how: &str, what: &str| {
                let case = format!("gossamer/{function}, {pace}, {how}, {what}");
                cell(row(lists, 0, "waiting", &case))
            };
            let cells = [
                case("spins", "half a round trip"),
                case("spins", "processor time"),
                case("waits", "half a round trip"),
                case("waits", "processor time"),
            ];
            table += &format!("\n| {function}, {pace} | {} |", cells.join(" | "));
        }
    }
    table + "\n"
}

/// The plots: their files below the root, and what is in them.
pub(super) fn pictures(lists: &Lists) -> [(&'static str, String); 4] {
    let of_forms = |what: &str, test: &str| {
        let mut lines = Vec::new();
        for (at, transport) in TRANSPORTS.into_iter().enumerate() {
            for function in FUNCTIONS {
                for payload in payloads(at) {
                    let form = |form| {
                        let case = format!("gossamer/{function}, {form}, {payload}");
                        ns(row(lists, at, what, &case))
                    };
                    let mut points: Vec<_> = FORMS.map(form).into();
                    points.push(ns(ucx(lists, at, what, &format!("{test}, {payload}"))));
                    lines
                        .push(Line { name: format!("{transport}, {function}, {payload}"), points });
                }
            }
        }
        lines
    };
    let mut of_frames = Vec::new();
    for (at, transport) in TRANSPORTS.into_iter().enumerate() {
        for payload in payloads(at) {
            let of =
                |case: &str| ns(row(lists, at, "frame-latency", &format!("{case}, {payload}")));
            let put = ns(ucx(lists, at, "frame-latency", &format!("ucp_put_lat, {payload}")));
            let points = vec![of("gossamer/write"), of("gossamer/empty frame"), put];
            of_frames.push(Line { name: format!("{transport}, {payload}"), points });
        }
    }
    let of_loaded = loaded_rows(lists).into_iter();
    let of_loaded = of_loaded.map(|(name, rows)| Line { name, points: rows.map(ns).into() });
    let forms = ["Local", "Cached", "Injected", "UCX"];
    let loads = ["alone: median", "99.9th", "stress-ng: median", "99.9th"];
    [
        (
            "docs/jams-frames.svg",
            dots(
                "a frame that runs nothing: half a round trip",
                &["write", "empty frame", "UCX put"],
                &of_frames,
            ),
        ),
        (
            "docs/jams-latency.svg",
            dots(
                "jams from mailbox to mailbox: half a round trip",
                &forms,
                &of_forms("latency", "ucp_am_lat"),
            ),
        ),
        (
            "docs/jams-rate.svg",
            dots(
                "jams to a mailbox: time of a message at full rate",
                &forms,
                &of_forms("rate", "ucp_am_bw"),
            ),
        ),
        (
            "docs/jams-loaded.svg",
            dots(
                "jams over shared memory, alone and beside stress-ng: half a round trip",
                &loads,
                &of_loaded.collect::<Vec<_>>(),
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::row as figure_of;
    use super::*;

    fn lists() -> Lists {
        let mut lists = Lists::default();
        let row = figure_of;
        lists.add(
            "core",
            vec![
                row("jam-shm-frame-latency", "gossamer/write, 4 bytes", 200.0, "ns"),
                row("jam-shm-frame-latency", "gossamer/empty frame, 4 bytes", 210.0, "ns"),
                row("jam-shm-rate", "gossamer/Indirect Put, Cached, 4 KiB", 5.0, "Mops"),
                row("jam-shm-loaded", "gossamer/Indirect Put, 4 KiB, alone, median", 1.0, "us"),
                row(
                    "jam-shm-loaded",
                    "gossamer/Indirect Put, 4 KiB, alone, 99.9th percentile",
                    3.0,
                    "us",
                ),
            ],
        );
        lists
    }

    #[test]
    fn every_table_has_lines_of_as_many_columns() {
        let lists = lists();
        let tables = [frames, latency, rate, calls, loaded, waiting].map(|table| table(&lists));
        for table in &tables {
            let columns = |line: &str| line.matches('|').count();
            let first = table.lines().next().map(columns);
            assert!(table.lines().all(|line| Some(columns(line)) == first), "{table}");
        }
        let [frames, _, rate, _, loaded, _] = tables;
        assert!(
            frames.contains("| shared memory | 4 bytes | 200 ns | 210 ns | 1.05 |"),
            "{frames}"
        );
        assert!(rate.contains("| 5.00 |"), "{rate}");
        let line = "| Indirect Put, 4 KiB | 1.00 us | 3.00 us | 2.00 | – | – |  |";
        assert!(loaded.contains(line), "{loaded}");
    }

    #[test]
    fn a_rate_is_drawn_as_a_time() {
        let pictures = pictures(&lists());
        let dots = pictures.map(|(_, svg)| svg.matches(r#"width="8.0""#).count());
        assert_eq!(dots, [2, 0, 1, 2]);
    }
}
