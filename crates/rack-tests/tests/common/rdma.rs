//! Hosts of one process that are joined over RDMA.

use std::sync::Arc;
use std::{fs, thread};

use gossamer::RdmaConfig;
use transport_api::Carrier;
use transport_rdma::RdmaTransport;
use transport_tcp::{Credentials, TcpTransport};

use super::tcp;

/// The names of this machine's RDMA devices.
///
/// # Panics
/// If the machine has no device: the test would check nothing.
pub(crate) fn devices() -> Vec<String> {
    const WHERE: &str = "/sys/class/infiniband";
    let entries = fs::read_dir(WHERE).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    assert!(!names.is_empty(), "no RDMA device in {WHERE}: run `cargo xtask rdma-test`");
    names
}

/// Hosts of which each has a device of its own, in turn. Their carriers have no TLS, whose handshakes
/// take an emulated guest long; those of processes and of jobs have.
pub(crate) fn joined(hosts: u32, threads: u32) -> Vec<Arc<RdmaTransport>> {
    let carriers = tcp::hosts(hosts, threads + 1, |_| Credentials::InsecureLoopback);
    let devices = devices();
    let join = |(index, carrier): (usize, Arc<TcpTransport>)| {
        let device = Some(devices[index % devices.len()].clone());
        let config = RdmaConfig { device, ..RdmaConfig::default() };
        thread::spawn(move || RdmaTransport::over(carrier as Arc<dyn Carrier>, config))
    };
    let joining: Vec<_> = carriers.into_iter().enumerate().map(join).collect();
    let joined = joining.into_iter().map(|host| host.join().expect("no panic"));
    joined.map(|host| host.unwrap_or_else(|error| panic!("{error}"))).collect()
}
