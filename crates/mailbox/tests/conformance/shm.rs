//! The suite of mailboxes over shared memory: hosts in one process, which share sealed files and
//! speak over sockets exactly as processes do.

use std::sync::Arc;

use transport_api::conformance::Rack;
use transport_api::{HostId, Transport};
use transport_shm::ShmTransport;

fn rack(hosts: u32, threads: u32) -> Rack {
    let rack = ShmTransport::in_process(hosts, threads).expect("a rack");
    let hosts = rack.iter().map(|host| host.clone() as Arc<dyn Transport>).collect();
    Rack { hosts, kill: Box::new(move |HostId(host)| rack[host as usize].sever()) }
}

mailbox::conformance!(rack);
