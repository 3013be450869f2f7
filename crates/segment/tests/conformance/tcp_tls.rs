//! The suite of segments over TLS, each host with a certificate of its own.

use transport_api::conformance::Rack;

use crate::tcp;

fn rack(hosts: u32, threads: u32) -> Rack {
    tcp::rack(hosts, threads, tcp::of_a_job())
}

gossamer_segment::conformance!(rack);
