//! The suite of segments over the lanes of one host to itself.

use transport_api::conformance::Rack;
use transport_tcp::Credentials;

use crate::tcp;

fn rack(_: u32, threads: u32) -> Rack {
    tcp::rack(1, threads, |_| Credentials::InsecureLoopback)
}

gossamer_segment::conformance!(rack, one_host);
