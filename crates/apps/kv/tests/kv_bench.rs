//! `kv bench` as a user runs it: a rack of two processes, small workloads.

use std::process::{Command, Output};

/// Runs `kv bench`.
fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kv")).arg("bench").args(arguments).output().unwrap()
}

fn succeeds(arguments: &[&str]) -> String {
    let output = bench(arguments);
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(output.status.success(), "{arguments:?}\n{out}\n{err}");
    out
}

fn fails(arguments: &[&str]) -> String {
    let output = bench(arguments);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const SMALL: [&str; 4] = ["--records", "1000", "--operations", "5000"];

#[test]
fn every_core_workload_runs_on_two_hosts() {
    for (letter, operations) in [
        ("a", &["READ", "UPDATE"][..]),
        ("b", &["READ", "UPDATE"]),
        ("c", &["READ"]),
        ("d", &["READ", "INSERT"]),
        ("e", &["SCAN", "INSERT"]),
        ("f", &["READ", "READ-MODIFY-WRITE"]),
    ] {
        let out = succeeds(&[&["--workload", letter][..], &SMALL].concat());
        let rack = "rack: 2 processes of 1 thread, over shared memory";
        let head = format!("{rack}\nworkload{letter}: 1000 records of 1000 bytes");
        assert!(out.starts_with(&head), "{out}");
        for operation in operations {
            assert!(out.contains(operation), "{operation} is missing in\n{out}");
        }
        assert_eq!(out.matches("Throughput").count(), 1, "host 0 alone reports:\n{out}");
    }
}

#[test]
fn a_comparison_writes_figures_and_a_picture() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let (json, svg) = (format!("{folder}/kv.json"), format!("{folder}/kv.svg"));
    let more = ["--vs", "--rounds", "2", "--threads", "2", "--json", &json, "--plot", &svg];
    let out = succeeds(&[&SMALL[..], &more].concat());
    assert!(out.contains("dashmap") && out.contains("2 rounds"), "{out}");
    let text = std::fs::read_to_string(&json).unwrap();
    let figures: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let compared = figures.iter().filter(|figure| figure["peer"].is_string()).count();
    assert_eq!(compared, 5, "the rack is compared with each lock-based store");
    assert!(figures.iter().all(|figure| figure["rounds"] == 2));
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg "));
}

#[test]
fn workload_files_and_properties_are_applied_with_warnings() {
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/mine");
    std::fs::write(path, "recordcount=7\ncolour=blue\n").unwrap();
    let shape = ["-p", "fieldcount=2", "-p", "requestdistribution=uniform"];
    let arguments = [&["--workload", path][..], &SMALL, &shape].concat();
    let output = bench(&arguments);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("mine: 1000 records of 200 bytes, uniform keys"), "{out}");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(err.matches("unknown property colour").count(), 1, "{err}");
}

#[test]
fn errors_name_the_argument() {
    assert!(fails(&["--workload", "no/such"]).contains("no/such"));
    let err = fails(&["-p", "readproportion=many"]);
    assert!(err.contains("command line: readproportion=many: expected a fraction"), "{err}");
    let err = fails(&["-p", "readproportoin=1"]);
    assert!(
        err.contains("unknown property readproportoin") && err.contains(" readproportion,"),
        "{err}"
    );
    for flag in ["--fibers", "--hosts", "--threads", "--rounds"] {
        assert!(fails(&[flag, "0"]).contains(flag), "{flag}");
    }
}

#[test]
fn an_unwritable_file_is_reported_before_the_run() {
    for flag in ["--json", "--plot"] {
        // Loading this many records would take longer than the test may.
        let many = ["--records", "1000000000", flag, "no/such/folder/file"];
        let output = bench(&many);
        assert!(!output.status.success() && output.stdout.is_empty());
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(err.contains("cannot write no/such/folder/file"), "{err}");
    }
}

#[test]
fn results_replace_longer_older_results() {
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/again.json");
    std::fs::write(path, "old ".repeat(10_000)).unwrap();
    fails(&["--json", path, "--plot", "no/such/folder/file"]);
    assert!(std::fs::read_to_string(path).unwrap().starts_with("old"), "nothing was lost");
    succeeds(&[&SMALL[..], &["--json", path]].concat());
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str::<Vec<serde_json::Value>>(&text).unwrap();
}
