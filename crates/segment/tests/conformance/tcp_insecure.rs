//! The suite of segments over loopback connections without TLS.

use transport_api::conformance::Rack;
use transport_tcp::Credentials;

use crate::tcp;

fn rack(hosts: u32, threads: u32) -> Rack {
    tcp::rack(hosts, threads, |_| Credentials::InsecureLoopback)
}

gossamer_segment::conformance!(rack);
