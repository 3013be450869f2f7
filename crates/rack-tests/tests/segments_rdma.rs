//! The suite of segments over RDMA, and tests of RDMA alone. They need devices: `cargo xtask
//! rdma-test` runs them in a guest that has some.

mod common;
mod over_rdma;

use std::sync::Arc;

use transport_api::conformance::Rack;
use transport_api::{HostId, Transport};

fn rack(hosts: u32, threads: u32) -> Rack {
    let rack = common::rdma::joined(hosts, threads);
    let hosts = rack.iter().map(|host| host.clone() as Arc<dyn Transport>).collect();
    Rack { hosts, kill: Box::new(move |HostId(host)| rack[host as usize].sever()) }
}

gossamer_segment::conformance!(
    #[ignore = "needs an RDMA device: cargo xtask rdma-test"]
    rack
);
