//! Tables and plots of jams over all transports: the figures 5 to 8 and 11 to 14 of Grodowitz et al.
//! 2021, and calls of trustees.

use super::comparisons::{SUITES, TRANSPORTS};
use super::list::{Lists, PROGRAMS, Row};
use super::merge::{NOTHING, Table};
use super::plot::{Line, dots};
use super::tables::{figure, parsed_ns, quotient, time};

const FUNCTIONS: [&str; 2] = ["Server-Side Sum", "Indirect Put"];
const FORMS: [&str; 3] = ["Local", "Cached", "Injected"];
const PAYLOADS: [&str; 5] = ["4 bytes", "64 bytes", "512 bytes", "4 KiB", "32 KiB"];
/// Those that are measured over RDMA, and those on a loaded machine.
const OVER_RDMA: [&str; 2] = ["64 bytes", "4 KiB"];
const LOADED: [&str; 3] = ["64 bytes", "4 KiB", "32 KiB"];

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

/// A time in the unit in which it has few digits, or a number without a unit.
fn cell(row: Option<&Row>) -> String {
    match row {
        Some(row) => row.ns().map_or_else(|| figure(row.median), time),
        None => NOTHING.to_owned(),
    }
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
            let (median, tail) = (median.and_then(Row::ns), tail.and_then(Row::ns));
            quotient(tail.zip(median).map(|(tail, median)| tail - median), median)
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

/// A plot that stands below a table.
pub(super) struct Picture {
    /// Its file, in the folder of the documents.
    pub(super) file: &'static str,
    /// What it shows.
    pub(super) shows: &'static str,
    pub(super) svg: String,
}

/// The plot of a part, from its table as it is in the document; `None` if the part has no plot, or its
/// table no figure that is drawn.
pub(super) fn picture(part: &str, table: &Table) -> Option<Picture> {
    let of_forms = || {
        let of_transport = |transport| table.rows.iter().filter(move |row| row[0] == transport);
        let lines = TRANSPORTS.into_iter().flat_map(|transport| {
            FUNCTIONS.into_iter().enumerate().flat_map(move |(at, function)| {
                let first = 2 + at * FORMS.len();
                let forms = move |row: &Vec<String>| {
                    let cells = row[first..first + FORMS.len()].iter().chain(row.last());
                    let name = format!("{transport}, {function}, {}", row[1]);
                    Line { name, points: cells.map(|cell| drawn_ns(cell)).collect() }
                };
                of_transport(transport).map(forms)
            })
        });
        lines.collect::<Vec<_>>()
    };
    let of_columns = |names: usize, columns: &[usize], value: fn(&str) -> Option<f64>| {
        let line = |row: &Vec<String>| {
            let points = columns.iter().map(|&column| value(&row[column])).collect();
            Line { name: row[..names].join(", "), points }
        };
        table.rows.iter().map(line).collect::<Vec<_>>()
    };
    let forms: &[&str] = &["Local", "Cached", "Injected", "UCX"];
    let loads: &[&str] = &["alone: median", "99.9th", "stress-ng: median", "99.9th"];
    let (file, shows, title, series, mut lines) = match part {
        "jam-frames" => (
            "jams-frames.svg",
            "Half a round trip of a frame that runs nothing",
            "a frame that runs nothing: half a round trip",
            &["write", "empty frame", "UCX put"][..],
            of_columns(2, &[2, 3, 5], drawn_ns),
        ),
        "jam-latency" => (
            "jams-latency.svg",
            "Half a round trip of each jam in each form",
            "jams from mailbox to mailbox: half a round trip",
            forms,
            of_forms(),
        ),
        "jam-rate" => (
            "jams-rate.svg",
            "Time of a message at full rate",
            "jams to a mailbox: time of a message at full rate",
            forms,
            of_forms(),
        ),
        "jam-loaded" => (
            "jams-loaded.svg",
            "Median and 99.9th percentile, alone and beside stress-ng",
            "jams over shared memory, alone and beside stress-ng: half a round trip",
            loads,
            of_columns(1, &[1, 2, 4, 5], drawn_ns),
        ),
        "jam-waiting" => (
            "jams-waiting.svg",
            "Processor time of a host that polls, and of one that waits",
            "jams over shared memory: processor time of the receiving host",
            &["spins", "waits"][..],
            of_columns(1, &[2, 4], |cell| cell.parse().ok()),
        ),
        _ => return None,
    };
    lines.retain(|line| line.points.iter().any(Option::is_some));
    let label: fn(f64) -> String =
        if part == "jam-waiting" { |percent| format!("{percent} %") } else { time };
    let svg = dots(title, series, &lines, label);
    (!lines.is_empty()).then_some(Picture { file, shows, svg })
}

/// Nanoseconds of an operation in a cell, also where it has millions of them a second.
fn drawn_ns(cell: &str) -> Option<f64> {
    parsed_ns(cell).or_else(|| Some(1e3 / cell.parse::<f64>().ok()?))
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
                row(
                    "jam-shm-waiting",
                    "gossamer/Indirect Put, one in a millisecond, waits, processor time",
                    12.3,
                    "%",
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
    fn what_was_measured_is_drawn() {
        let lists = lists();
        let dots = |part: &str, text: String| {
            let table = Table::parse(&text).expect("a table");
            picture(part, &table).map(|picture| picture.svg.matches(r#"width="8.0""#).count())
        };
        assert_eq!(dots("jam-frames", frames(&lists)), Some(2));
        assert_eq!(dots("jam-rate", rate(&lists)), Some(1));
        assert_eq!(dots("jam-loaded", loaded(&lists)), Some(2));
        assert_eq!(dots("jam-latency", latency(&lists)), None);
        assert_eq!(dots("jam-waiting", waiting(&lists)), Some(1));
        let waiting = picture("jam-waiting", &Table::parse(&waiting(&lists)).expect("a table"));
        let svg = waiting.expect("a plot").svg;
        assert!(svg.contains("10 %") && svg.contains("100 %"), "{svg}");
    }

    #[test]
    fn a_rate_is_drawn_as_a_time() {
        assert_eq!(
            ["5.00", "45.0 us", "–", ""].map(drawn_ns),
            [Some(200.0), Some(45_000.0), None, None]
        );
    }
}
