//! The conformance suite over TLS, each host with a certificate of its own.

use transport_api::conformance::Rack;

use crate::common;

fn rack(hosts: u32, threads: u32) -> Rack {
    let authority = common::Authority::new();
    common::rack(common::configs(hosts, threads, |host| authority.of(host)))
}

transport_api::conformance!(rack);
