//! The suite of segments over TLS, each host with a certificate of its own.

#![cfg(not(loom))]

mod tcp;

use transport_api::conformance::Rack;

fn rack(hosts: u32, threads: u32) -> Rack {
    tcp::rack(hosts, threads, tcp::of_a_job())
}

gossamer_segment::conformance!(rack);
