//! The work requests and doorbells of each operation on a segment; its owner uses no time for it.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use std::{env, fs, process};

use gossamer::RdmaConfig;
use gossamer_job::JobId;
use gossamer_segment::{RemoteSegment, Segments};
use transport_api::{Carrier, HostId, Transport};
use transport_rdma::{Posted, RdmaTransport};
use transport_tcp::{Credentials, TcpConfig, TcpTransport};

use super::{DEADLINE, pair};
use crate::common::rdma::devices;

const ONE: Posted = Posted { work_requests: 1, doorbells: 1 };

/// Writes between two fences: few enough that the device has room for all.
const BATCH: u64 = 16;

/// Operations of each kind.
const OPERATIONS: u64 = 128;

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn an_operation_is_one_work_request_and_one_doorbell_and_none_of_the_owner() {
    let is_over = &AtomicBool::new(false);
    let owner = |segments: &Segments, attached: &gossamer_segment::Attached| {
        let _segment = segments.builder("counted").len(8_192).export().expect("a segment");
        while !is_over.load(Ordering::Acquire) {
            attached.park(DEADLINE);
        }
    };
    pair(owner, |hosts, segments| {
        let segment = segments.options().timeout(DEADLINE).open("counted").expect("a segment");
        let posted = |operation: &mut dyn FnMut()| {
            let before = hosts[1].posted();
            operation();
            hosts[1].posted() - before
        };
        let owners = hosts[0].posted();
        for number in 0..OPERATIONS {
            let bytes = vec![number as u8; [1, 8, 100, 4_096][number as usize % 4]];
            let write = posted(&mut || segment.write(40, &bytes).expect("a write"));
            assert_eq!(write, ONE, "write {number} of {} bytes", bytes.len());
            if number % BATCH == BATCH - 1 {
                segment.fence().expect("a fence");
            }
        }
        let mut bytes = [0; 4_096];
        let waits: [(&str, &mut dyn FnMut()); 4] = [
            ("read of 8 bytes", &mut || _ = segment.at::<u64>(1).read().expect("a read")),
            ("read of 4096 bytes", &mut || segment.read(1, &mut bytes).expect("a read")),
            ("fetch_add", &mut || _ = segment.fetch_add(0, 1).expect("an addition")),
            ("compare_swap", &mut || _ = segment.compare_swap(0, 1, 2).expect("a swap")),
        ];
        for (name, operation) in waits {
            let start = Instant::now();
            let all: Vec<_> = (0..OPERATIONS).map(|_| posted(operation)).collect();
            // A thread that sleeps while it waits writes its sleep flag at its peer twice, when it
            // falls asleep and when it wakes, each with one request and one doorbell.
            for each in &all {
                let is_one = each.work_requests % 2 == 1 && each.doorbells == each.work_requests;
                assert!(is_one, "{name}: {each:?}");
            }
            let alone = all.iter().filter(|each| **each == ONE).count();
            let took = start.elapsed() / OPERATIONS as u32;
            println!("{name}: {alone} of {OPERATIONS} without a sleep, {took:?} each");
            assert!(alone > 0, "{name}: {all:?}");
        }
        let owners = hosts[0].posted() - owners;
        println!("the owner posted {owners:?}");
        assert!(owners.work_requests < OPERATIONS / 4, "the owner posted {owners:?}");
        is_over.store(true, Ordering::Release);
        hosts[0].unpark(0);
    });
}

/// The variable with the addresses of both hosts; it makes a started process the owner.
const ADDRESSES: &str = "GOSSAMER_TEST_ADDRESSES";

/// The offsets of a request and of its answer.
const REQUEST: usize = 0;
const ANSWER: usize = 1;
const QUIET: usize = 8;

/// Writes, and as many reads, that use no time of the owner.
const UNNOTICED: u64 = 1_000;
/// Requests that it answers.
const REQUESTS: u64 = 250;

fn host(host: u32, addresses: Vec<SocketAddr>, listener: TcpListener) -> Arc<RdmaTransport> {
    let credentials = Credentials::InsecureLoopback;
    let names = (JobId(0x5e6), [7; 32]);
    let config = TcpConfig::new(names, HostId(host), addresses, listener, 2, credentials);
    let carrier = TcpTransport::join(TcpConfig { loss_bound: DEADLINE / 4, ..config });
    let devices = devices();
    let device = Some(devices[host as usize % devices.len()].clone());
    let config = RdmaConfig { device, join_timeout: DEADLINE / 4, ..RdmaConfig::default() };
    let carrier: Arc<dyn Carrier> = carrier.expect("a carrier");
    RdmaTransport::over(carrier, config).unwrap_or_else(|error| panic!("{error}"))
}

/// A process that is killed when this is dropped, so that a failed test leaves no process behind.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// The processor time of its threads, in nanoseconds.
    fn time(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("a process");
        let of = |task: fs::DirEntry| {
            let times = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            times.split(' ').next().and_then(|time| time.parse::<u64>().ok()).unwrap_or(0)
        };
        tasks.map(|task| of(task.expect("a thread"))).sum()
    }
}

#[test]
#[ignore = "this is what the next test starts"]
fn the_owner() {
    let Ok(addresses) = env::var(ADDRESSES) else { return };
    let addresses: Vec<SocketAddr> =
        addresses.split(',').map(|address| address.parse().expect("an address")).collect();
    let listener = TcpListener::bind(addresses[0]).expect("its address");
    let segments = Segments::new(host(0, addresses, listener));
    let _attached = segments.attach(0).expect("a thread of the rack");
    let segment = segments.builder("served").len(4_096).export().expect("a segment");
    while let Ok(Some(_)) = segment.notified_timeout(DEADLINE) {
        let request = segment.at::<u64>(REQUEST).read().expect("a request");
        segment.at(ANSWER).write(&request).expect("its own memory");
    }
    process::exit(0);
}

/// The owner is a separate process, so that its processor time is all its own. It sleeps while another
/// host writes and reads. The scale is the time for answering requests, because it reflects how slow
/// this machine is.
#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn reads_and_writes_take_no_time_of_the_owners_process() {
    let listen = || TcpListener::bind("127.0.0.1:0").expect("a listener");
    let (theirs, ours) = (listen(), listen());
    let addresses = [&theirs, &ours].map(|l| l.local_addr().expect("an address"));
    // The owner's process listens at this address.
    drop(theirs);
    let owner = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "over_rdma::cost::the_owner", "--ignored"])
        .env(ADDRESSES, addresses.map(|address| address.to_string()).join(","))
        .spawn();
    let owner = Process(owner.expect("a process"));
    let segments = Segments::new(host(1, addresses.to_vec(), ours));
    let _attached = segments.attach(0).expect("a thread of the rack");
    let segment = segments.options().timeout(DEADLINE).open("served").expect("a segment");
    // Work that is done only once is done by now.
    (1..=10).for_each(|n| serve(&segment, n));

    let begin = owner.time();
    for n in 0..UNNOTICED {
        segment.at(QUIET).write(&n).expect("a write");
        assert_eq!(segment.at::<u64>(QUIET).read().expect("a read"), n);
    }
    let between = owner.time();
    (1..=REQUESTS).for_each(|n| serve(&segment, n));
    let end = owner.time();

    let unnoticed = (between - begin) / (2 * UNNOTICED);
    let served = (end - between) / REQUESTS;
    println!("nanoseconds of the owner: {unnoticed} of a read or write, {served} of a request");
    assert!(unnoticed * 4 < served, "{unnoticed} ns of a read or write, {served} of a request");
}

/// Sends the owner a request, and reads until it has answered.
fn serve(segment: &RemoteSegment, n: u64) {
    segment.at(REQUEST).write_notify(&n).expect("a request");
    while segment.at::<u64>(ANSWER).read().expect("an answer") != n {}
}
