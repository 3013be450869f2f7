//! The suite of mailboxes over loopback connections without TLS, which differs below segments only.

use std::sync::Arc;

use transport_api::conformance::Rack;
use transport_api::{HostId, Transport};
use transport_tcp::{Credentials, TcpTransport};

fn rack(hosts: u32, threads: u32) -> Rack {
    let rack = TcpTransport::in_process(hosts, threads, |config| {
        config.credentials = Credentials::InsecureLoopback;
    });
    let rack = rack.expect("a rack");
    let hosts = rack.iter().map(|host| host.clone() as Arc<dyn Transport>).collect();
    Rack { hosts, kill: Box::new(move |HostId(host)| rack[host as usize].sever()) }
}

mailbox::conformance!(rack);
