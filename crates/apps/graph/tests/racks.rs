//! The program as a user runs it: the benchmark and questions, on racks of threads and of processes,
//! and over TCP as tasks of a Slurm step.

mod common;

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{fs, thread};

use common::{graph, text, two_tasks, value};

fn succeeds(arguments: &[&str]) -> String {
    let output = graph(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}\n{}", text(&output.stderr));
    text(&output.stdout)
}

fn fails(arguments: &[&str]) -> String {
    let output: Output = graph(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?} succeeded");
    text(&output.stderr)
}

/// Racks of threads and of processes that share memory, also with more members than some graphs have
/// vertices.
const RACKS: [[&str; 4]; 4] = [
    ["--hosts", "1", "--threads", "1"],
    ["--hosts", "1", "--threads", "3"],
    ["--hosts", "2", "--threads", "1"],
    ["--hosts", "3", "--threads", "2"],
];

#[test]
fn the_benchmark_is_valid_on_every_rack_and_finds_the_same_edges() {
    let mut found = Vec::new();
    for rack in RACKS {
        let run = [&["graph500", "--scale", "9", "--roots", "6"][..], &rack].concat();
        let block = succeeds(&run);
        assert_eq!((value(&block, "SCALE"), value(&block, "NBFS")), ("9", "6"));
        value(&block, "bfs  harmonic_mean_TEPS");
        value(&block, "sssp harmonic_mean_TEPS");
        found.push(value(&block, "mean_nedge").to_owned());
    }
    found.dedup();
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn the_benchmark_and_questions_run_over_tcp() {
    let run = ["graph500", "--scale", "9", "--roots", "6", "--threads", "2"];
    let (tcp, alone) = (two_tasks(&run, "0", None), succeeds(&run));
    assert_eq!(value(&tcp, "mean_nedge"), value(&alone, "mean_nedge"));
    assert_eq!(value(&tcp, "num_mpi_processes"), "4");
    let roads = file("tcp.gr", ROADS);
    let way = two_tasks(&["path", &roads, "--from", "1", "--to", "8"], "1", None);
    assert_eq!(way, "length 21, 3 edges\n1 2 7 8\n");
}

#[test]
fn a_short_benchmark_prints_a_table() {
    let table = succeeds(&["bench", "--scale", "8", "--roots", "3", "--hosts", "2"]);
    assert!(table.starts_with("scale 8, edge factor 16, 3 roots, "), "{table}");
    assert_eq!(table.matches("valid").count(), 2, "{table}");
}

#[test]
fn a_benchmark_draws_its_plot_unless_the_file_cannot_be_written() {
    let plot = format!("{}/bench.svg", env!("CARGO_TARGET_TMPDIR"));
    succeeds(&["bench", "--scale", "8", "--roots", "3", "--hosts", "2", "--plot", &plot]);
    let svg = fs::read_to_string(&plot).unwrap();
    assert!(svg.starts_with("<svg ") && svg.matches("<polyline").count() == 2, "{svg}");
    // Before it measures: this scale would not fit.
    let error =
        fails(&["bench", "--scale", "30", "--edge-factor", "1024", "--plot", "/no/such/p.svg"]);
    assert!(error.contains("cannot write /no/such/p.svg"), "{error}");
}

#[test]
fn a_benchmark_that_fails_leaves_the_last_plot() {
    let plot = file("last.svg", "of the last run");
    fails(&["bench", "--scale", "30", "--edge-factor", "1024", "--plot", &plot]);
    assert_eq!(fs::read_to_string(&plot).unwrap(), "of the last run");
}

#[test]
fn a_benchmark_whose_edges_are_all_loops_is_an_error() {
    for command in ["graph500", "bench"] {
        let error = fails(&[command, "--scale", "1", "--edge-factor", "1", "--hosts", "2"]);
        assert!(error.contains("graph: no vertex to search from"), "{error}");
    }
}

/// A file in a folder of this test program.
fn file(name: &str, contents: &str) -> String {
    let path = format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
    fs::write(&path, contents).unwrap();
    path
}

/// A ring of ten roads with a shortcut, and two vertices beside it.
const ROADS: &str = "c roads\np sp 12 13\na 1 2 5\na 2 3 5\na 3 4 5\na 4 5 5\na 5 6 5\na 6 7 5\n\
                     a 7 8 5\na 8 9 5\na 9 10 5\na 10 1 5\na 2 7 11\na 11 12 1\na 12 11 16777217\n";

#[test]
fn questions_are_answered_on_every_rack() {
    let roads = file("roads.gr", ROADS);
    for rack in RACKS {
        let ask = |question: &[&str]| succeeds(&[question, &rack].concat());
        let way = ask(&["path", &roads, "--from", "1", "--to", "8"]);
        assert_eq!(way, "length 21, 3 edges\n1 2 7 8\n");
        let back = ask(&["path", &roads, "--from", "8", "--to", "1"]);
        assert_eq!(back, "length 15, 3 edges\n8 9 10 1\n");
        let hops =
            ask(&["path", &roads, "--from", "1", "--to", "6", "--undirected", "--unweighted"]);
        assert!(hops.starts_with("length 3, 3 edges\n1 2 7 6"), "{hops}");
        let components = ask(&["components", &roads]);
        assert_eq!(components, "components 2\nlargest 10 2\n");
        let statistics = ask(&["stats", &roads]);
        assert!(statistics.starts_with("vertices 12\nedges 13 (directed"), "{statistics}");
        let ranks = ask(&["pagerank", &roads, "--top", "12"]);
        let sum: f64 = ranks
            .lines()
            .skip(1)
            .map(|line| line.split_once(' ').unwrap().1.parse::<f64>().unwrap())
            .sum();
        assert!((sum - 1.0).abs() < 1e-6, "{ranks}");
        // 11 and 12 lead to each other only, and 7 has two edges to it.
        let first = ranks.lines().nth(1).unwrap();
        assert!(
            ["7 ", "8 ", "9 ", "10 "].iter().any(|vertex| first.starts_with(vertex)),
            "{ranks}"
        );
    }
}

#[test]
fn what_cannot_be_answered_is_said() {
    let roads = file("errors.gr", ROADS);
    let path =
        |from: &str, to: &str| fails(&["path", &roads, "--from", from, "--to", to, "--hosts", "2"]);
    assert!(path("1", "12").contains("no path from 1 to 12"));
    assert!(path("0", "3").contains("no vertex 0"));
    assert!(path("1", "13").contains("they are 1 to 12"));
    let bad = file("bad.gr", "p sp 2 1\na 1 x 3\n");
    assert!(fails(&["stats", &bad]).contains("bad.gr:2: \"x\", expected a vertex"));
    assert!(fails(&["stats", "/no/such/file"]).contains("cannot read /no/such/file"));
}

/// Numbers that a file may have and a graph may not, and a compressed file that was cut off.
#[test]
fn files_with_absurd_numbers_and_broken_ones_are_refused() {
    let huge = file("huge.txt", &format!("0 {}\n", u64::MAX));
    assert!(fails(&["stats", &huge]).contains("vertices are too many"));
    let announced = file("announced.gr", &format!("p sp {} 0\n", u64::MAX));
    assert!(fails(&["components", &announced]).contains("vertices are too many"));
    let wide = file(
        "wide.mtx",
        "%%MatrixMarket matrix coordinate pattern general\n2147483648 2147483648 0\n",
    );
    assert!(fails(&["pagerank", &wide, "--threads", "1"]).contains("the graph takes about"));
    let vertex = file("vertex.txt", "0 18446744073709551616\n");
    assert!(
        fails(&["stats", &vertex])
            .contains("vertex.txt:1: \"18446744073709551616\", expected a vertex")
    );
    // Header and first bytes of a gzip member.
    let cut = format!("{}/cut.txt.gz", env!("CARGO_TARGET_TMPDIR"));
    fs::write(&cut, [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x33, 0x50]).unwrap();
    let error = fails(&["stats", &cut]);
    assert!(error.contains("cannot read") && error.contains("cut.txt.gz"), "{error}");
    for delta in ["0", "nan", "-1", "1e-30"] {
        assert!(fails(&["bench", "--scale", "5", &format!("--delta={delta}")]).contains("delta"));
    }
}

/// A file is read twice, so what can be read once only is refused; and a reader that has seen enough of
/// the results ends nothing badly.
#[test]
fn pipes_at_both_ends() {
    let mut piped = graph(&["components", "/dev/stdin"]);
    let mut running = piped.stdin(Stdio::piped()).spawn().unwrap();
    running.stdin.take().unwrap().write_all(b"0 1\n1 2\n").unwrap();
    let output = running.wait_with_output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("graphs are read twice"), "{}", text(&output.stderr));

    let roads = file("pipes.gr", ROADS);
    let mut running = graph(&["pagerank", &roads, "--top", "12"]).spawn().unwrap();
    drop(running.stdout.take());
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// A path through very many buckets takes no memory for those after it.
#[test]
fn a_long_path_takes_little_memory() {
    let mut roads = "p sp 3000 2999\n".to_owned();
    (1..3000).for_each(|at| roads += &format!("a {at} {} {}\n", at + 1, 1_000_000));
    // Short edges make buckets narrow.
    (1..3000).for_each(|at| roads += &format!("a {at} {at} 0\n"));
    let roads = file("long.gr", &roads.replacen("2999", "5998", 1));
    let way = succeeds(&["path", &roads, "--from", "1", "--to", "3000", "--hosts", "2"]);
    assert!(way.starts_with("length 2999000000, 2999 edges"), "{way}");
}

/// Weights so large that a bucket has no width of its own: vertices that no path reaches must still
/// have none.
#[test]
fn the_largest_weights_have_paths() {
    let max = "340282350000000000000000000000000000000";
    let text = format!("p sp 4 3\na 1 2 {max}\na 2 3 {max}\na 1 3 {max}\n");
    let path = file("largest.gr", &text);
    let way = succeeds(&["path", &path, "--from", "1", "--to", "3", "--undirected"]);
    assert!(way.ends_with("edges\n1 3\n"), "{way}");
    assert!(fails(&["path", &path, "--from", "1", "--to", "4"]).contains("no path from 1 to 4"));
}

#[test]
fn a_graph_that_does_not_fit_is_refused_before_it_is_built() {
    let error = fails(&["graph500", "--scale", "30", "--edge-factor", "1024"]);
    assert!(error.contains("the graph takes about") && error.contains("available"), "{error}");
}

#[test]
fn a_host_that_is_killed_ends_the_run_with_its_name() {
    let run = ["graph500", "--scale", "14", "--roots", "300", "--hosts", "3", "--threads", "1"];
    let running = graph(&run).spawn().unwrap();
    let leader = running.id();
    // The other hosts are its children.
    let children = || {
        let list = format!("/proc/{leader}/task/{leader}/children");
        let list = fs::read_to_string(list).unwrap_or_default();
        list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for _ in 0..600 {
        if children().len() == 2 {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    // While it makes its graph, or searches it.
    thread::sleep(Duration::from_millis(300));
    let victim = children().pop().expect("a host");
    assert!(Command::new("kill").args(["-9", &victim]).status().unwrap().success());
    let output = running.wait_with_output().unwrap();
    assert!(!output.status.success());
    let error = text(&output.stderr);
    assert!(
        error.contains("host 2 was lost and the rack ended")
            || error.contains("host 1 was lost and the rack ended"),
        "{error}"
    );
}
