//! The suite between the first and the last of four hosts: a thread there has so many connections that
//! it asks which of them to read.

use gossamer_transport_tcp::Credentials;
use transport_api::conformance::Rack;

use crate::common;

fn rack(hosts: u32, threads: u32) -> Rack {
    let hosts = if hosts == 1 { 1 } else { 4 };
    common::rack(common::configs(hosts, threads, |_| Credentials::InsecureLoopback))
}

// The tests of losses, which `one_host` leaves out, are of two hosts.
transport_api::conformance!(rack, one_host);
