//! The suite of segments where no memory is mapped and each write arrives piece by piece, in no order.

use transport_api::HostId;
use transport_api::conformance::{Altered, Rack};
use transport_shm::ShmTransport;

fn rack(hosts: u32, threads: u32) -> Rack {
    let rack = ShmTransport::in_process(hosts, threads).expect("a rack");
    let hosts = rack.iter().map(|host| Altered::unmapped(host.clone())).collect();
    Rack { hosts, kill: Box::new(move |HostId(host)| rack[host as usize].sever()) }
}

gossamer_segment::conformance!(rack);
