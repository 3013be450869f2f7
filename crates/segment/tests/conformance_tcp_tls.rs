//! The suite of segments over TLS, each host with a certificate of its own.

mod common;

use transport_api::conformance::Rack;

fn rack(hosts: u32, threads: u32) -> Rack {
    let authority = common::Authority::new();
    common::rack(hosts, threads, |host| authority.of(host))
}

gossamer_segment::conformance!(rack);
