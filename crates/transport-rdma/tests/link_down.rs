//! The link between two devices goes down, while the processes and their carrier go on: writers see a
//! loss. Alone in its program, because it takes the link down for all.

#![cfg(feature = "verbs")]

mod common;

use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use primitive::SharedBytes;
use transport_api::{Event, HostId, PeerEvent, RegionKey, Rights, Transport};

const SOON: Duration = Duration::from_secs(30);

/// The network interface of a device of Soft-RoCE.
fn interface(device: &str) -> String {
    let parent = format!("/sys/class/infiniband/{device}/parent");
    let name = fs::read_to_string(&parent);
    name.unwrap_or_else(|error| panic!("{parent}: {error}")).trim().to_owned()
}

fn set(interface: &str, state: &str) {
    let status = Command::new("ip").args(["link", "set", interface, state]).status();
    assert!(status.expect("ip of iproute2").success(), "ip link set {interface} {state}");
}

/// Brings the link up again, also when the test fails.
struct Down(String);

impl Drop for Down {
    fn drop(&mut self) {
        set(&self.0, "up");
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn a_link_that_goes_down_is_a_loss() {
    let hosts = common::hosts(2, 1);
    let mut lane = hosts[0].lane(0, HostId(1)).expect("a lane");
    let _region = hosts[1].export(RegionKey(1), 4096, Rights::ALL.into()).expect("a region");
    let remote = hosts[0].import(HostId(1), RegionKey(1), SOON).expect("an import");
    let bytes = SharedBytes::heap(4096);
    lane.write(&remote, 0, &bytes).expect("a write");
    lane.flush().expect("a flush");
    thread::sleep(Duration::from_millis(100));
    let devices = common::devices();
    let down = Down(interface(devices.get(1).unwrap_or(&devices[0])));
    set(&down.0, "down");
    let (mut lost, start) = (None, Instant::now());
    while lost.is_none() {
        assert!(start.elapsed() < SOON, "the loss is not reported");
        lane.write(&remote, 0, &bytes).expect("a write");
        lane.flush().expect("a flush");
        lane.poll(&mut |event| lost = Some(event));
        thread::sleep(Duration::from_millis(1));
    }
    let Some(Event::Peer(PeerEvent::Lost(HostId(1), reason))) = lost else { panic!("{lost:?}") };
    let text = reason.to_string();
    assert!(text.contains("the queue pair to it"), "{text}");
}
