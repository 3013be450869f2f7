//! Payloads that do not fit a slot go where the settings say, by the devices' packet counters.

#![cfg(feature = "verbs")]

mod common;

use std::fs;
use std::time::{Duration, Instant};

use gossamer_transport_rdma::RdmaConfig;
use transport_api::{Event, HostId, Tag, Transport};

/// Bytes that are sent.
const BYTES: usize = 1 << 20;
/// Packets that they take at least: no device sends more than 4 KiB in one.
const PACKETS: u64 = (BYTES / 4096) as u64;

/// Packets that all devices of this machine have sent so far.
fn sent() -> u64 {
    let count = |device: String| {
        let path = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        text.trim().parse::<u64>().expect("a number")
    };
    common::devices().into_iter().map(count).sum()
}

/// Packets that devices send for a payload from the first to the second of two hosts with such settings.
fn packets(reads_payloads: [bool; 2]) -> u64 {
    let config =
        |host| RdmaConfig { reads_payloads: reads_payloads[host as usize], ..common::config(host) };
    let joined = common::join_all(common::carriers(2, 1), config);
    let hosts: Vec<_> = joined.into_iter().map(|host| host.expect("a host")).collect();
    let mut lane = hosts[0].lane(0, HostId(1)).expect("a lane");
    let mut back = hosts[1].lane(0, HostId(0)).expect("a lane");
    let before = sent();
    let payload: Vec<u8> = (0..BYTES).map(|n| (n ^ n >> 8) as u8).collect();
    lane.bulk(0, Tag(7), payload.clone()).expect("a payload");
    lane.flush().expect("a flush");
    let (start, mut come) = (Instant::now(), None);
    while come.is_none() {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not arrive");
        lane.poll(&mut |event| panic!("{event:?}"));
        back.poll(&mut |event| match event {
            Event::Bulk { tag: Tag(7), payload, .. } => come = Some(payload),
            other => panic!("{other:?}"),
        });
    }
    assert!(come == Some(payload), "what was sent");
    sent() - before
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn payloads_are_read_by_the_peers_device_or_use_the_carrier() {
    // The settings of the sender decide.
    for other in [true, false] {
        let (read, carried) = (packets([true, other]), packets([false, other]));
        assert!(read >= PACKETS, "{read} packets for {BYTES} bytes");
        assert!(carried < PACKETS / 4, "{carried} packets for what the carrier has");
    }
}
