//! `gossamer hosts` shows the queue pairs of jobs over RDMA. The test needs devices: `cargo xtask
//! rdma-test` runs it in a guest that has some.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use std::{env, fs};

use common::{Rack, eventually, finish, send};

/// How many threads each process of the job has, and how many processes there are: their queue
/// pairs are then neither threads x threads nor threads x hosts.
const THREADS: u64 = 3;
const HOSTS: u64 = 2;

#[test]
#[ignore = "this is what the processes of the next test's job run"]
fn task() {
    if env::var_os("GOSSAMER_JOB_FD").is_some() {
        let rack = gossamer::Rack::from_args().unwrap();
        rack.run(|| gossamer::sleep(Duration::from_secs(600))).unwrap();
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn hosts_show_one_queue_pair_for_each_thread_and_other_process() {
    let devices = fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let device = devices.map(|entry| entry.file_name().into_string().unwrap()).min();
    let device = device.expect("no RDMA device: run `cargo xtask rdma-test`");
    // In the guest, devices are root's.
    let rack = Rack::as_own_user(&["a", "b"]);
    // The daemons are sent a script that runs this program, which has megabytes: to encrypt and to check
    // them takes an emulated guest half a minute.
    let program = rack.path("program");
    let itself = env::current_exe().unwrap();
    fs::write(&program, format!("#!/bin/sh\nexec '{}' \"$@\"\n", itself.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut job = rack.gossamer(&["run", "--hosts", "a,b", "--threads", &THREADS.to_string()]);
    job.args(["--env", &format!("TEST_TAG={}", rack.tag)]);
    job.args(["--env", &format!("GOSSAMER_RDMA_DEVICE={device}"), "--"]);
    job.args([&program, "task", "--exact", "--ignored", "--nocapture"]);
    let mut job = job.spawn().unwrap();
    let reports = eventually("the processes report their queue pairs", || {
        assert_eq!(job.try_wait().unwrap(), None, "the job has ended");
        let hosts = rack.gossamer(&["hosts", "--json"]).output().unwrap();
        let hosts: serde_json::Value = serde_json::from_slice(&hosts.stdout).unwrap();
        let has_reported =
            |host: &serde_json::Value| host["over_rdma"].as_array().unwrap().len() == 1;
        let hosts = hosts.as_array().unwrap().clone();
        (hosts.len() == 2 && hosts.iter().all(has_reported)).then_some(hosts)
    });
    for report in &reports {
        let process = &report["over_rdma"][0];
        let [threads, hosts, pairs] =
            ["threads", "hosts", "queue_pairs"].map(|key| process[key].as_u64());
        assert_eq!((threads, hosts), (Some(THREADS), Some(HOSTS)), "{report}");
        assert_eq!(pairs, Some(THREADS * (HOSTS - 1)), "{report}");
        assert!(report["topology"]["rdma"].as_array().unwrap().len() >= 2, "{report}");
    }
    let table = rack.gossamer(&["hosts"]).output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    let shown = table.lines().filter(|line| line.contains(&format!(" {THREADS}  "))).count();
    assert!(table.contains("QUEUE PAIRS") && table.contains(&device) && shown == 2, "{table}");
    send(job.id(), "INT");
    finish(job);
    rack.assert_nothing_left();
}
