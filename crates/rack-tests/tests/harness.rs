//! Racks of several processes under the standard test harness. A process that is started as another host
//! runs this whole program again, in which only the thread that has the same test joins the rack.

use std::time::Duration;
use std::{env, process};

use gossamer::{Rack, RackError};

/// Runs a rack of two hosts. In a process that is a host of another test's rack, it must be refused.
fn run_two_hosts() {
    let is_host = env::var_os("GOSSAMER_HOST_PROCESS").is_some();
    let ran = Rack::new().hosts(2).threads(1).run(|| {
        let counter = gossamer::entrust(0u32);
        let add = |counter: gossamer::Trust<u32>| counter.apply(|n| *n += 1);
        for thread in gossamer::trustees() {
            gossamer::spawn_on_with(thread, add, counter.clone()).join().unwrap();
        }
        // The process of the other host comes to its other tests meanwhile.
        gossamer::sleep(Duration::from_millis(300));
        counter.apply(|n| *n)
    });
    match ran {
        Ok(count) => assert_eq!(count, 2),
        Err(RackError::Settings(reason)) if is_host && reason.contains("harness = false") => {}
        // The output of this process is lost, so the rack of the other test must fail.
        Err(_) if is_host => process::abort(),
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn a_test_runs_a_rack_of_two_hosts() {
    run_two_hosts();
}

#[test]
fn another_test_runs_a_rack_of_two_hosts() {
    run_two_hosts();
}

#[test]
fn a_test_beside_them_runs_a_rack_of_one_host() {
    let ran = Rack::new().threads(2).run(|| gossamer::trustees().count());
    assert_eq!(ran.unwrap(), 2);
}
