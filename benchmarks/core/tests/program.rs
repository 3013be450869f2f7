//! The program from outside: what it lists, what it refuses, what it writes, and that its roles
//! end with their case.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_core-bench");

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env_remove("GOSSAMER_PROTOTYPE");
    command.output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_list_can_be_narrowed() {
    let all = text(&run(&["--list"]).stdout);
    assert!(all.lines().any(|line| line == "counter/lock/ticket"), "{all}");
    for part in [
        "segment-access/local/load",
        "segment-notify/eventfd/",
        "segment-shm-names/",
        "get-shm/gossamer/by READ, ",
    ] {
        assert!(all.lines().any(|line| line.starts_with(part)), "no {part} in\n{all}");
    }
    let some = text(&run(&["--list", "--suite", "counter", "--filter", "ticket"]).stdout);
    assert_eq!(some, "counter/lock/ticket\n");
}

#[test]
fn a_case_that_does_not_exist_is_refused() {
    let output = run(&["--filter", "no such case"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--list"), "{}", text(&output.stderr));
}

#[test]
fn rows_are_written_as_a_list() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let file = folder.path().join("rows.json");
    let path = file.to_str().expect("a name in UTF-8");
    let case = ["--suite", "idle", "--filter", "std channels", "--rounds", "1", "--json", path];
    let output = run(&case);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.contains("machine: "), "{printed}");
    let peers = printed.lines().find(|line| line.starts_with("peers: ")).expect("the peers");
    assert!(!peers.replace("ucx absent", "").contains("absent"), "{peers}");
    let json = fs::read(&file).expect("the file");
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&json).expect("a list");
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0]["suite"], &rows[0]["rounds"]), (&"idle".into(), &1.into()));
}

#[test]
fn a_role_ends_when_its_case_is_gone() {
    let mut command = Command::new(PROGRAM);
    command.env("BENCH_ROLE", "hog").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut hog = command.spawn().expect("a hog");
    let mut line = String::new();
    let mut output = BufReader::new(hog.stdout.take().expect("its output"));
    output.read_line(&mut line).expect("a line");
    assert_eq!(line, "burning\n");
    drop(hog.stdin.take());
    assert!(hog.wait().expect("its end").success());
}

#[test]
fn a_role_that_does_not_exist_is_refused() {
    let mut command = Command::new(PROGRAM);
    let output = command.env("BENCH_ROLE", "nobody").output().expect("the program runs");
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("nobody"), "{}", text(&output.stderr));
}

#[test]
fn fadd_measures_what_was_asked_for_and_draws_it() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let [json, plot] = ["rows.json", "plot.svg"].map(|name| folder.path().join(name));
    let files = ["--json", json.to_str().expect("UTF-8"), "--plot", plot.to_str().expect("UTF-8")];
    let plan = ["fadd", "--objects", "2,64", "--distribution", "zipfian", "--threads", "3"];
    let plan = [&plan[..], &["--local", "50", "--rounds", "1", "--filter", "gossamer/"]].concat();
    let output = run(&[&plan[..], &files].concat());
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(
        error.contains("--local needs an object for each of 3 threads, got --objects 2"),
        "{error}"
    );
    let plan: Vec<_> =
        plan.iter().map(|word| if *word == "2,64" { "8,64" } else { word }).collect();
    let output = run(&[&plan[..], &files].concat());
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let rows: Vec<serde_json::Value> =
        serde_json::from_slice(&fs::read(&json).expect("the file")).expect("a list");
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().expect("a name")).collect();
    assert!(names.iter().any(|name| name.starts_with("gossamer/processes")), "{names:?}");
    assert!(rows.iter().all(|row| row["median"].as_f64().expect("a rate") > 0.0), "{rows:?}");
    assert!(fs::read_to_string(&plot).expect("the plot").matches("<polyline").count() >= 3);
}

#[test]
fn fadd_lists_every_candidate() {
    let list = text(&run(&["fadd", "--list", "--objects", "1"]).stdout);
    for part in [
        "fadd-uniform-1/lock/parking_lot",
        "fadd-uniform-1/atomic/fetch_add",
        "fadd-zipfian-1/gossamer/64 fibers",
        "fadd-zipfian-1/mpi/MPI_Fetch_and_op",
        "fadd-uniform-1/ucx/ucp_fadd",
    ] {
        assert!(list.lines().any(|line| line.starts_with(part)), "no {part} in\n{list}");
    }
}
