//! Tables and plots of all transports: what operations cost, the paper's Tables 2 and 3 (Thekkath,
//! Levy and Lazowska 1994), and GETs.

use super::list::{Lists, PROGRAMS, Row};
use super::merge::{NOTHING, Table};
use super::plot::{Line, dots};
use super::tables::{figure, parsed_ns, quotient, time};

/// How the transports of the programs are called, in the heads of tables.
pub(super) const TRANSPORTS: [&str; PROGRAMS.len()] = ["shared memory", "TCP", "RDMA (guest)"];

/// How they are called in the names of suites.
pub(super) const SUITES: [&str; PROGRAMS.len()] = ["shm", "tcp", "rdma"];

/// Where a figure is, for each program: its suite and case.
type Places = [(String, String); PROGRAMS.len()];

/// The same case, in the suites `PREFIX-TRANSPORT-REST`.
fn everywhere(prefix: &str, rest: &str, case: &str) -> Places {
    SUITES.map(|transport| (format!("{prefix}-{transport}{rest}"), case.to_owned()))
}

fn places(places: [(&str, &str); PROGRAMS.len()]) -> Places {
    places.map(|(suite, case)| (suite.to_owned(), case.to_owned()))
}

fn found<'a>(lists: &'a Lists, places: &Places) -> [Option<&'a Row>; PROGRAMS.len()] {
    std::array::from_fn(|at| lists.find(PROGRAMS[at], &places[at].0, &places[at].1))
}

/// A median as the table shows it.
fn cell(row: Option<&Row>) -> String {
    match row {
        Some(row) => match row.ns() {
            Some(ns) => time(ns),
            None => format!("{} {}", figure(row.median), row.unit),
        },
        None => NOTHING.to_owned(),
    }
}

/// What an operation took in 1994, in microseconds, and what it is called.
const WRITE_1994: f64 = 30.0;
const CACHED_1994: f64 = 196.0;

/// The operations of Table 2: their names here, those of their cases, and microseconds of 1994.
const TABLE_2: [(&str, &str, Option<f64>); 5] = [
    ("write, 40 bytes, one way", "write, 40 bytes, one way", Some(WRITE_1994)),
    ("read, 40 bytes", "read, 40 bytes", Some(45.0)),
    ("compare and swap", "compare_swap", Some(38.0)),
    (
        "write and notification, to a process that sleeps",
        "write_notify, 8 bytes, one way, to a process that sleeps",
        Some(290.0),
    ),
    (
        "the same, to a process that polls",
        "write_notify, 8 bytes, one way, to a process that polls",
        None,
    ),
];

/// Those of Table 3.
const TABLE_3: [(&str, &str, Option<f64>); 6] = [
    ("lookup, cached", "lookup, cached", Some(CACHED_1994)),
    ("lookup, uncached: one READ", "lookup, uncached", Some(264.0)),
    ("*a cached lookup and 1.2 READs*", "a cached lookup and 1.2 READs", Some(250.0)),
    ("lookup with control transfer", "lookup, control transfer", Some(524.0)),
    ("export", "export", Some(665.0)),
    ("revoke", "revoke", Some(307.0)),
];

/// Table 2, and the rates of blocks.
pub(super) fn table_2(lists: &Lists) -> String {
    let mut table = ratios(lists, "-table-2", &TABLE_2, "write");
    for (name, case, then) in [
        ("blocks of 4 KiB, written", "write_block, 4 KiB", "35.4 Mb/s"),
        ("blocks of 4 KiB, read", "read_block, 4 KiB", "the same"),
    ] {
        let cells = found(lists, &everywhere("segment", "-table-2", case)).map(cell);
        table += &format!("| {name} | {then} |  |");
        cells.iter().for_each(|cell| table += &format!(" {cell} |  |"));
        table += "\n";
    }
    table
}

/// Table 3.
pub(super) fn table_3(lists: &Lists) -> String {
    ratios(lists, "-names", &TABLE_3, "cached")
}

/// Times, and each divided by that of the first row.
fn ratios(
    lists: &Lists,
    suite: &str,
    operations: &[(&str, &str, Option<f64>)],
    first: &str,
) -> String {
    let mut table = format!("| | 1994 | / {first} |");
    TRANSPORTS.iter().for_each(|name| table += &format!(" {name} | / {first} |"));
    table += &format!("\n|---|{}\n", "---|---|".repeat(1 + TRANSPORTS.len()));
    let mut firsts = [None; 1 + PROGRAMS.len()];
    for (at, (name, case, then)) in operations.iter().enumerate() {
        let rows = found(lists, &everywhere("segment", suite, case));
        let now = rows.map(|row| row.and_then(Row::ns));
        let all = [then.map(|us| us * 1e3), now[0], now[1], now[2]];
        if at == 0 {
            firsts = all;
        }
        table += &format!("| {name} |");
        for (ns, first) in all.into_iter().zip(firsts) {
            let ratio = quotient(ns, first);
            let ns = ns.map_or_else(|| NOTHING.to_owned(), time);
            table += &format!(" {ns} | {ratio} |");
        }
        table += "\n";
    }
    table
}

/// What operations cost: their name, where their figures are, and what the paper has.
fn operations() -> Vec<(&'static str, Places, &'static str)> {
    let table_2 = |case| everywhere("segment", "-table-2", case);
    let names = |case| everywhere("segment", "-names", case);
    let get = |case| everywhere("get", "", case);
    vec![
        (
            "`write`, 8 bytes, at the writer; TCP and RDMA: until it has arrived",
            places([
                ("segment-access", "gossamer/write"),
                ("segment-tcp", "gossamer/write, one way, 8 bytes"),
                ("segment-rdma", "gossamer/write, 8 bytes, one way"),
            ]),
            "",
        ),
        ("`write`, 40 bytes, until it has arrived", table_2("write, 40 bytes, one way"), "30 us"),
        (
            "`read`, 8 bytes",
            places([
                ("segment-access", "gossamer/read"),
                ("segment-tcp", "gossamer/read, 8 bytes"),
                ("segment-rdma", "gossamer/read, 8 bytes"),
            ]),
            "45 us (40 bytes)",
        ),
        (
            "`compare_swap`",
            places([
                ("segment-access", "gossamer/compare_swap"),
                ("segment-tcp", "gossamer/compare_swap"),
                ("segment-rdma", "gossamer/compare_swap"),
            ]),
            "38 us",
        ),
        ("`write_block`, 4 KiB", table_2("write_block, 4 KiB"), "35.4 Mb/s"),
        ("`read_block`, 4 KiB", table_2("read_block, 4 KiB"), "the same"),
        (
            "`write_notify`, until an owner that polls has it",
            table_2("write_notify, 8 bytes, one way, to a process that polls"),
            "",
        ),
        (
            "the same, an owner that sleeps",
            table_2("write_notify, 8 bytes, one way, to a process that sleeps"),
            "290 us",
        ),
        ("lookup, cached", names("lookup, cached"), "196 us"),
        ("lookup, one READ", names("lookup, uncached"), "264 us"),
        ("lookup with control transfer", names("lookup, control transfer"), "524 us"),
        ("export", names("export"), "665 us"),
        ("revoke", names("revoke"), "307 us"),
        ("a value of 100 bytes by READ", get("gossamer/by READ, 100 bytes, 1 fiber"), ""),
        ("the same value by `Trust::apply`", get("gossamer/by delegation, 100 bytes, 1 fiber"), ""),
    ]
}

/// What each operation costs on each transport.
pub(super) fn costs(lists: &Lists) -> String {
    let mut table = format!("| | {} | 1994 |\n|---|---|---|---|---|\n", TRANSPORTS.join(" | "));
    for (name, places, then) in operations() {
        let cells = found(lists, &places).map(cell).join(" | ");
        table += &format!("| {name} | {cells} | {then} |\n");
    }
    table
}

/// The ways to GET a value: their names, and how the names of their cases begin.
const WAYS: [(&str, &str); 4] = [
    ("by READ", "gossamer/by READ"),
    ("by delegation", "gossamer/by delegation"),
    ("`kv serve`", "kv serve"),
    ("memcached", "memcached"),
];

/// Bytes of values and GETs under way, with the ends of their cases' names, here and for servers.
const SIZES: [(u32, u32, &str, &str); 4] = [
    (100, 1, "100 bytes, 1 fiber", "100 bytes, 1 under way"),
    (1000, 1, "1000 bytes, 1 fiber", "1000 bytes, 1 under way"),
    (100, 64, "100 bytes, 64 fibers", "100 bytes, 64 under way"),
    (1000, 64, "1000 bytes, 64 fibers", "1000 bytes, 64 under way"),
];

/// The case of a way.
fn get_case(way: &str, (fibers, under_way): (&str, &str)) -> String {
    let end = if way.starts_with("gossamer/") { fibers } else { under_way };
    format!("{way}, {end}")
}

/// Times of GETs.
pub(super) fn gets(lists: &Lists) -> String {
    let ways = WAYS.map(|(name, _)| name).join(" | ");
    let mut table = format!("| | value | under way | {ways} |\n|---|---|---|---|---|---|---|\n");
    for (at, transport) in TRANSPORTS.into_iter().enumerate() {
        for (bytes, under_way, ours, theirs) in SIZES {
            let cells = WAYS.map(|(_, way)| {
                let suite = format!("get-{}", SUITES[at]);
                cell(lists.find(PROGRAMS[at], &suite, &get_case(way, (ours, theirs))))
            });
            let cells = cells.join(" | ");
            table += &format!("| {transport} | {bytes} bytes | {under_way} | {cells} |\n");
        }
    }
    table
}

/// The plot of the operations of tables 2 and 3, as they are in the documents.
pub(super) fn operations_picture(tables: &[Table]) -> String {
    let lines = tables.iter().flat_map(|table| &table.rows).map(|row| {
        // Each is followed by what it is divided by the first.
        let ns = |column: usize| row.get(column).and_then(|cell| parsed_ns(cell));
        let points = [3, 5, 7, 1].map(ns).into();
        Line { name: plain(&row[0]), points }
    });
    // Blocks have throughputs, which are not drawn.
    let lines = lines.filter(|line| line.points.iter().any(Option::is_some)).collect::<Vec<_>>();
    let [shm, tcp, rdma] = TRANSPORTS;
    let title = "segments: time of an operation, and that of 1994";
    dots(title, &[shm, tcp, rdma, "1994"], &lines, time)
}

/// The plot of the table of GETs, as it is in the documents.
pub(super) fn gets_picture(table: &Table) -> String {
    let lines = table.rows.iter().map(|row| {
        let name = format!("{}, {}, {} under way", row[0], row[1], row[2]);
        Line { name, points: row[3..].iter().map(|cell| parsed_ns(cell)).collect() }
    });
    let ways = WAYS.map(|(name, _)| plain(name));
    let ways = ways.each_ref().map(|name| &**name);
    let title = "GETs: time of the sample divided by their number";
    dots(title, &ways, &lines.collect::<Vec<_>>(), time)
}

/// A text without marks of Markdown.
fn plain(text: &str) -> String {
    text.replace(['`', '*'], "")
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::row;
    use super::*;

    fn lists() -> Lists {
        let mut lists = Lists::default();
        lists.add(
            "core",
            vec![
                row("segment-shm-table-2", "write, 40 bytes, one way", 50.0, "ns"),
                row("segment-shm-table-2", "read, 40 bytes", 5.0, "ns"),
                row("segment-shm-table-2", "write_block, 4 KiB", 118.0, "GB/s"),
                row("get-shm", "kv serve, 100 bytes, 1 under way", 40.0, "us"),
            ],
        );
        lists
    }

    #[test]
    fn ratios_are_those_to_the_first_row() {
        let table = table_2(&lists());
        let read = "| read, 40 bytes | 45.0 us | 1.50 | 5.00 ns | 0.100 | – |  | – |  |";
        assert!(table.contains(read), "{table}");
        let columns = |line: &str| line.matches('|').count();
        let first = table.lines().next().map(columns);
        assert!(table.lines().all(|line| Some(columns(line)) == first), "{table}");
    }

    #[test]
    fn times_of_tables_are_drawn_and_throughputs_are_not() {
        let tables = [table_2(&lists()), table_3(&lists())];
        let tables = tables.map(|text| Table::parse(&text).expect("a table"));
        let dots = |svg: &str| svg.matches(r#"width="8.0""#).count();
        let of_1994 = TABLE_2.iter().chain(&TABLE_3).filter(|(_, _, then)| then.is_some()).count();
        let svg = operations_picture(&tables);
        assert_eq!(dots(&svg), 2 + of_1994, "{svg}");
        assert!(
            !svg.contains("blocks") && svg.contains(">a cached lookup and 1.2 READs<"),
            "{svg}"
        );
        let table = Table::parse(&gets(&lists())).expect("a table");
        assert_eq!(dots(&gets_picture(&table)), 1);
    }

    #[test]
    fn every_table_has_lines_of_as_many_columns() {
        let lists = lists();
        for table in [costs(&lists), gets(&lists), table_3(&lists)] {
            let columns = |line: &str| line.matches('|').count();
            let first = table.lines().next().map(columns);
            assert!(table.lines().all(|line| Some(columns(line)) == first), "{table}");
        }
        let gets = gets(&lists);
        let line = "| shared memory | 100 bytes | 1 | – | – | 40.0 us | – |";
        assert!(gets.contains(line), "{gets}");
        assert!(!lists.report().is_empty());
    }
}
