//! The conformance suite over loopback connections without TLS: the hosts share a process, and
//! nothing else.

use gossamer_transport_tcp::Credentials;
use transport_api::HostId;
use transport_api::conformance::{Rack, bulk};

use crate::common;

fn rack(hosts: u32, threads: u32) -> Rack {
    common::rack(common::configs(hosts, threads, |_| Credentials::InsecureLoopback))
}

transport_api::conformance!(rack);

/// A rack whose last host is lost as soon as it has joined.
fn losing(hosts: u32, threads: u32) -> Rack {
    let rack = rack(hosts, threads);
    (rack.kill)(HostId(hosts - 1));
    rack
}

/// Without this, the side that waits sleeps on, and the loss looks like a lost wake.
#[test]
#[should_panic(expected = "waited in vain for a bulk payload; its peer: Some(Peer(Lost")]
fn a_sleeper_that_waits_for_a_payload_reports_a_loss() {
    bulk::a_bulk_payload_wakes_its_receiver(losing);
}
