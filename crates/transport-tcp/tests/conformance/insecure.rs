//! The conformance suite over loopback connections without TLS: the hosts share a process, and
//! nothing else.

use gossamer_transport_tcp::Credentials;
use transport_api::conformance::Rack;

use crate::common;

fn rack(hosts: u32, threads: u32) -> Rack {
    common::rack(common::configs(hosts, threads, |_| Credentials::InsecureLoopback))
}

transport_api::conformance!(rack);
