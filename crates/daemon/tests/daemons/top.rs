//! What the threads of a job do can be watched while it runs, by administrators and viewers.

use std::process::{Child, Stdio};

use crate::common::{ENDLESS, Rack, Ran, eventually, finish, kv, send};

/// Starts a bench on two hosts that goes on until it is ended.
fn start(rack: &Rack) -> Child {
    rack.run("a,b", &[kv(), "bench"]).args(ENDLESS).spawn().expect("it starts")
}

#[test]
fn without_a_terminal_it_says_what_else_there_is() {
    let rack = Rack::new(&["a"]);
    let ran = Ran::from(rack.gossamer(&["top"]).stdin(Stdio::null()).output().unwrap());
    assert!(ran.status == Some(125) && ran.err.contains("`top --once` for a table"), "{ran:?}");
}

#[test]
fn every_thread_of_a_job_is_shown_with_what_it_does() {
    let rack = Rack::new(&["a", "b"]);
    rack.add_viewer();
    let job = start(&rack);
    let rows = eventually("both hosts report requests", || {
        let mut top = rack.gossamer(&["top", "--once", "--json"]);
        let output = top.env("GOSSAMER_IDENTITY", rack.path("rack/viewer")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = rows.as_array().unwrap().clone();
        let works = |row: &serde_json::Value| {
            ["requests_in", "requests_out", "bytes_in", "bytes_out", "busy"]
                .iter()
                .all(|rate| row["rates"][rate].as_f64().is_some_and(|rate| rate > 0.0))
        };
        (rows.len() == 2 && rows.iter().all(works)).then_some(rows)
    });
    for (row, host) in rows.iter().zip(["a", "b"]) {
        assert_eq!((row["host"].as_str(), row["thread"].as_u64()), (Some(host), Some(0)), "{row}");
        assert!(row["fibers"].as_u64().is_some_and(|fibers| fibers > 0), "{row}");
        assert!(row["rates"]["busy"].as_f64().is_some_and(|busy| busy <= 1.0), "{row}");
    }
    let table = rack.gossamer(&["top", "--once"]).output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    assert_eq!(table.lines().count(), 3, "a head and two threads: {table}");
    send(job.id(), "INT");
    finish(job);
    rack.assert_nothing_left();
}
