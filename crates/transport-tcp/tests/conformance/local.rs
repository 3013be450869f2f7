//! The conformance suite over the lanes of one host to itself.

use gossamer_transport_tcp::Credentials;
use transport_api::conformance::Rack;

use crate::common;

fn rack(_hosts: u32, threads: u32) -> Rack {
    common::rack(common::configs(1, threads, |_| Credentials::InsecureLoopback))
}

transport_api::conformance!(rack, one_host);
