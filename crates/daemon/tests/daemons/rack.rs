//! A whole rack at work: real daemons, a real program of delegation on three of them, its processes
//! joined over TCP and TLS; and one with two processes on each host, which share its memory. It ends
//! well, or, whatever happens to one of its processes, with the
//! cause named.

use std::collections::HashSet;
use std::fs;
use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

use crate::common::{ENDLESS, Rack, Ran, eventually, finish, kv, send};

const HOSTS: [&str; 3] = ["a", "b", "c"];

/// Starts the bench on all hosts, with the time in milliseconds after which a silent one is lost, and waits
/// until its processes have found each other.
fn start(rack: &Rack, loss_bound_ms: u32, arguments: &[&str]) -> Child {
    let (kv, tag) = (kv(), format!("TEST_TAG={}", rack.tag));
    let bound = loss_bound_ms.to_string();
    let (hosts, bound) = (["--hosts", "a,b,c", "--threads", "1"], ["--loss-bound", &bound]);
    let run = [&["run"][..], &hosts, &["--env", &tag], &bound, &["--", kv]].concat();
    let job = rack.gossamer(&run).arg("bench").args(arguments).spawn().expect("it starts");
    wait_for(rack, 3);
    job
}

/// Waits until this number of processes has found each other.
fn wait_for(rack: &Rack, processes: u32) {
    eventually("every process has a runtime thread", || {
        (0..processes).all(|number| process(rack, number).is_some()).then_some(())
    });
}

/// The process of the program on a host, once it has found the others: only then are there runtime
/// threads, which have names.
fn process(rack: &Rack, host: u32) -> Option<u32> {
    let name = format!("gossamer-{host}.0\n");
    let works = |pid: &u32| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut names = threads.map(|thread| fs::read_to_string(thread.path().join("comm")));
        names.any(|found| found.is_ok_and(|found| found == name))
    };
    rack.processes_on(host).into_iter().find(works)
}

fn is_a_result(ran: &Ran) {
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.out.contains("[a] gossamer, 3 hosts x 1 thread x"), "{ran:?}");
    assert_eq!(ran.out.matches("Throughput").count(), 1, "host 0 alone reports: {ran:?}");
    assert!(ran.out.lines().all(|line| line.starts_with("[a] ")), "{ran:?}");
}

#[test]
fn a_program_runs_on_all_hosts_of_its_job() {
    let rack = Rack::new(&HOSTS);
    let bench = ["bench", "--records", "1000", "--operations", "5000"];
    let run = ["run", "--hosts", "a,b,c", "--threads", "1", "--", kv()];
    let ran = Ran::from(rack.gossamer(&run).args(bench).output().expect("it runs"));
    is_a_result(&ran);
    rack.assert_nothing_left();
}

#[test]
fn a_rack_ends_with_any_of_its_processes_and_says_which() {
    let rack = Rack::new(&HOSTS);
    for (number, name) in (0..).zip(HOSTS) {
        let job = start(&rack, 60_000, &ENDLESS);
        let victim = process(&rack, number).expect("it runs");
        send(victim, "KILL");
        let ran = finish(job);
        assert_eq!(ran.status, Some(137), "{ran:?}");
        let cause = format!("because of {name}: the program was killed by signal 9 (SIGKILL)");
        assert!(ran.err.contains(&cause), "{ran:?}");
        rack.assert_nothing_left();
    }
}

/// Two processes on each of two hosts: those of one host share memory.
#[test]
fn the_processes_of_a_host_share_its_memory() {
    let rack = Rack::new(&["a", "b"]);
    let tag = format!("TEST_TAG={}", rack.tag);
    let job = |arguments: &[&str]| {
        let mut run = rack.gossamer(&["run", "--hosts", "a,b", "--processes-per-host", "2"]);
        run.args(["--threads", "1", "--env", &tag, "--", kv(), "bench"]).args(arguments);
        run
    };
    let bench = ["--records", "1000", "--operations", "5000"];
    let ran = Ran::from(job(&bench).output().expect("it runs"));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.out.contains("[a/0] gossamer, 4 hosts x 1 thread x"), "{ran:?}");
    rack.assert_nothing_left();

    let running = job(&ENDLESS).spawn().expect("it starts");
    wait_for(&rack, 4);
    let list = Ran::from(rack.gossamer(&["ps"]).output().expect("it answers"));
    assert!(list.out.contains("a/0,a/1,b/0,b/1"), "{list:?}");
    // Memory that is shared has a name in the kernel's list, and an inode of its own.
    let regions = |number: u32| {
        let pid = process(&rack, number).expect("it runs");
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("its mappings");
        let shared = maps.lines().filter(|line| line.contains("memfd:gossamer-region"));
        let inodes = shared.filter_map(|line| line.split_whitespace().nth(4).map(str::to_owned));
        inodes.collect::<HashSet<_>>()
    };
    let all: Vec<_> = (0..4).map(regions).collect();
    for (one, other) in [(0, 1), (2, 3), (0, 2), (1, 3), (0, 3), (1, 2)] {
        let is_shared = !all[one].is_disjoint(&all[other]);
        assert_eq!(is_shared, one / 2 == other / 2, "{one} and {other}");
    }
    send(process(&rack, 3).expect("it runs"), "KILL");
    let ran = finish(running);
    assert_eq!(ran.status, Some(137), "{ran:?}");
    let cause = "because of b/1: the program was killed by signal 9 (SIGKILL)";
    assert!(ran.err.contains(cause), "{ran:?}");
    rack.assert_nothing_left();
}

/// The printed output and the job's log name the process of each line.
#[test]
fn each_process_of_a_host_speaks_under_its_own_name() {
    let rack = Rack::new(&["a", "b"]);
    let run = ["run", "--hosts", "a,b", "--processes-per-host", "2", "--", "/bin/sh", "-c"];
    let mut job = rack.gossamer(&run);
    let job = job.arg("echo said; echo warned >&2; exec sleep 600").spawn().expect("it starts");
    let named = |what: &str| ["a/0", "a/1", "b/0", "b/1"].map(|name| format!("[{name}] {what}"));
    let sorted = |output: &str| {
        let mut lines: Vec<_> = output.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let number = eventually("the log has the output of all four", || {
        let list = Ran::from(rack.gossamer(&["ps", "--json"]).output().expect("it answers"));
        let jobs: serde_json::Value = serde_json::from_str(&list.out).expect("a list");
        let number = jobs[0]["job"].as_str()?.to_owned();
        let log = Ran::from(rack.gossamer(&["logs", &number]).output().expect("it answers"));
        let is_all = sorted(&log.out) == named("said") && sorted(&log.err) == named("warned");
        is_all.then_some(number)
    });
    let killed = Ran::from(rack.gossamer(&["kill", &number]).output().expect("it answers"));
    assert_eq!(killed.status, Some(0), "{killed:?}");
    let ran = finish(job);
    assert_eq!(sorted(&ran.out), named("said"), "{ran:?}");
    for line in named("warned") {
        assert!(ran.err.lines().any(|printed| printed == line), "{ran:?}");
    }
    rack.assert_nothing_left();
}

#[test]
fn a_process_that_stops_for_less_than_the_bound_is_no_loss() {
    let rack = Rack::new(&HOSTS);
    let job = start(
        &rack,
        60_000,
        &["--records", "1000", "--operations", "1000000000000", "--seconds", "3"],
    );
    let process = process(&rack, 2).expect("it runs");
    send(process, "STOP");
    sleep(Duration::from_millis(500));
    send(process, "CONT");
    is_a_result(&finish(job));
    rack.assert_nothing_left();
}

#[test]
fn a_process_that_stops_for_longer_than_the_bound_is_lost() {
    let rack = Rack::new(&HOSTS);
    let job = start(&rack, 500, &ENDLESS);
    let process = process(&rack, 2).expect("it runs");
    send(process, "STOP");
    let ran = finish(job);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(ran.err.contains("host 2 was lost and the rack ended"), "{ran:?}");
    rack.assert_nothing_left();
}
