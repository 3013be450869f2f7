//! The suite over shared memory that is altered to look unmapped: what tests of the layers above find
//! out with [`Altered`] holds for other transports only if it keeps the contract.

use gossamer_transport_shm::ShmTransport;
use transport_api::HostId;
use transport_api::conformance::{Altered, Rack};

fn rack(hosts: u32, threads: u32) -> Rack {
    let rack = ShmTransport::in_process(hosts, threads).expect("a rack");
    let hosts = rack.iter().map(|host| Altered::unmapped(host.clone())).collect();
    Rack { hosts, kill: Box::new(move |HostId(host)| rack[host as usize].sever()) }
}

transport_api::conformance!(rack);
