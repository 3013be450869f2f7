//! The program from outside: what it lists, what it refuses, and that every candidate answers.

use std::fs;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tcp-bench"));
    command.args(arguments).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_list_can_be_narrowed() {
    let all = text(&run(&["--list"]).stdout);
    for part in [
        "tarpc",
        "tonic",
        "ucx",
        "sockets",
        "gossamer/apply, TLS",
        "ucp_put_lat",
        "ucp_am_lat, 4 KiB back",
        "get-tcp/memcached, 1000 bytes",
    ] {
        assert!(all.contains(part), "no {part} in\n{all}");
    }
    let some = text(&run(&["--list", "--filter", "tcp-rate/tarpc"]).stdout);
    assert_eq!(some, "tcp-rate/tarpc\n");
}

#[test]
fn a_case_that_does_not_exist_is_refused() {
    let output = run(&["--filter", "no such case"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--list"), "{}", text(&output.stderr));
}

/// On a machine that is busy with other things, samples are thrown away; but no candidate fails.
#[test]
fn every_candidate_answers() {
    let file = env!("CARGO_TARGET_TMPDIR").to_owned() + "/rows.json";
    let output = run(&["--rounds", "1", "--json", &file]);
    let said = text(&output.stdout);
    for line in said.lines().filter(|line| line.contains("not measured: ")) {
        assert!(line.contains("is not here"), "{line}\nin {said}");
    }
    let rows: serde_json::Value =
        serde_json::from_slice(&fs::read(&file).expect("the file")).expect("a list");
    let rows = rows.as_array().expect("a list");
    assert!(rows.iter().any(|row| row["name"] == "gossamer/apply, TLS"), "{said}");
}
