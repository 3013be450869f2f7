//! Regions cost what is touched of them: one test, in a process of its own, because it watches the
//! memory of the whole process.

use std::time::{Duration, Instant};
use std::{fs, thread};

use gossamer_transport_shm::ShmTransport;
use primitive::sync::Ordering;
use transport_api::{HostId, Region, RegionKey, Rights, Transport};

const LARGE: usize = 256 << 20;

/// Bytes that this process has in memory, shared ones included.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("the status of this process");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line VmRSS");
    let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok());
    kilobytes.expect("a number") * 1024
}

fn export(host: &dyn Transport, key: u64) -> Region {
    host.export(RegionKey(key), LARGE, Rights::ALL.into()).expect("an export")
}

#[test]
fn large_regions_cost_what_is_touched() {
    let (threads, hosts) = (ShmTransport::threads(16).unwrap(), ShmTransport::in_process(2, 16));
    let hosts = hosts.expect("a rack");
    // What the first export and import allocate for good is not what this is about.
    drop(export(&*threads, 1));
    let before = resident();
    let regions: Vec<_> = (1..5).map(|key| export(&*threads, key)).collect();
    let shared: Vec<_> = (1..5).map(|key| export(&*hosts[0], key)).collect();
    let import = |key| hosts[1].import(HostId(0), RegionKey(key), Duration::from_secs(10));
    let imports: Vec<_> = (1..5).map(|key| import(key).expect("an import")).collect();
    let grown = resident().saturating_sub(before);
    assert!(grown < 9 << 20, "{grown} bytes for twelve mappings of {LARGE} bytes");

    let before = resident();
    for at in (0..32 << 20).step_by(4096) {
        shared[0].memory().store(at, 1, Ordering::Relaxed);
        regions[0].memory().store(at, 1, Ordering::Relaxed);
    }
    let grown = resident().saturating_sub(before);
    assert!(grown > 60 << 20, "{grown} bytes for 64 MiB that were touched: nothing was measured");

    let before = resident();
    drop((regions, shared, imports));
    // A region is free when its importers have quiesced.
    let (start, mut shrunk) = (Instant::now(), 0);
    while shrunk <= 60 << 20 && start.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(1));
        shrunk = before.saturating_sub(resident());
    }
    assert!(shrunk > 60 << 20, "{shrunk} bytes came back of 64 MiB");
}
