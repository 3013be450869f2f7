//! The conformance suite over two hosts in one process, which share sealed files in memory and
//! speak over sockets exactly as two processes do.

use std::sync::Arc;

use gossamer_transport_shm::ShmTransport;
use transport_api::conformance::Rack;
use transport_api::{HostId, Transport};

fn rack(hosts: u32, threads: u32) -> Rack {
    let rack = ShmTransport::in_process(hosts, threads).expect("a rack");
    let hosts = rack.iter().map(|host| host.clone() as Arc<dyn Transport>).collect();
    Rack { hosts, kill: Box::new(move |HostId(host)| rack[host as usize].sever()) }
}

transport_api::conformance!(rack);
