//! Racks of several processes under the standard test harness. A process that is started as another host
//! runs this whole program again, in which only the thread that has the same test joins the rack.

use std::time::Duration;
use std::{env, process, thread};

use gossamer::{Rack, RackError, Trust};

/// Runs a rack of two hosts. In a process that is a host of another test's rack, it must be refused.
fn on_two_hosts(main: fn() -> u32, expected: u32) {
    let is_host = env::var_os("GOSSAMER_HOST_PROCESS").is_some();
    match Rack::new().hosts(2).threads(1).run(main) {
        Ok(result) => assert_eq!(result, expected),
        Err(RackError::Settings(reason)) if is_host && reason.contains("harness = false") => {}
        // The output of this process is lost, so the rack of the other test must fail.
        Err(_) if is_host => process::abort(),
        Err(error) => panic!("{error:?}"),
    }
}

fn count_on_two_hosts() {
    let main = || {
        let counter = gossamer::entrust(0u32);
        let add = |counter: Trust<u32>| counter.apply(|n| *n += 1);
        for thread in gossamer::trustees() {
            gossamer::spawn_on_with(thread, add, counter.clone()).join().unwrap();
        }
        // The process of the other host comes to its other tests meanwhile.
        gossamer::sleep(Duration::from_millis(300));
        counter.apply(|n| *n)
    };
    on_two_hosts(main, 2);
}

#[test]
fn a_test_runs_a_rack_of_two_hosts() {
    count_on_two_hosts();
}

#[test]
fn another_test_runs_a_rack_of_two_hosts() {
    count_on_two_hosts();
}

#[test]
fn a_test_beside_them_runs_a_rack_of_one_host() {
    let ran = Rack::new().threads(2).run(|| gossamer::trustees().count());
    assert_eq!(ran.unwrap(), 2);
}

/// The trusts of a process in several racks have names by which no host takes them for its own.
#[test]
fn a_host_that_runs_another_rack_besides_keeps_trusts_apart() {
    const CLONES: u32 = 40;
    let main = || {
        let counter = gossamer::entrust(0u32);
        let count = |(first, mut other): (Trust<u32>, Trust<u32>)| {
            let besides = thread::spawn(|| Rack::new().threads(1).run(|| ()));
            besides.join().unwrap().unwrap();
            // Each time the first one and another are all that keeps the counter.
            for _ in 0..CLONES {
                let next = other.clone();
                drop(other);
                other = next;
                first.apply(|n| *n += 1);
            }
        };
        let both = (counter.clone(), counter.clone());
        let reader = counter.clone();
        drop(counter);
        let far = gossamer::trustees().last().expect("a trustee");
        let counting = gossamer::spawn_on_with(far, count, both);
        drop(reader);
        counting.join().unwrap();
        CLONES
    };
    on_two_hosts(main, CLONES);
}
