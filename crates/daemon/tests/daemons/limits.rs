//! Limits of the daemon that are not those of programs.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::Rack;

#[test]
fn a_daemon_may_open_more_files_than_the_programs_that_it_starts() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let hard = maximum.expect("the system limits it");
    // Inherited by the daemon. No other test notices that it is one less.
    let soft = hard - 1;
    setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum }).unwrap();
    let rack = Rack::new(&["a"]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", rack.daemon_pid(0))).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let words: Vec<_> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(words, [hard.to_string(), hard.to_string()], "soft and hard");
    let ran = rack.script("a", "ulimit -Sn; ulimit -Hn");
    assert_eq!(ran.out, format!("[a] {soft}\n[a] {hard}\n"), "{ran:?}");
}
