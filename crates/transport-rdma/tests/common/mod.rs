//! What the tests of this crate share: racks whose hosts are this machine's RDMA devices.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;
use std::time::Duration;
use std::{fs, thread};

use gossamer_transport_rdma::{RdmaConfig, RdmaError, RdmaTransport};
use transport_api::conformance::Rack;
use transport_api::{Carrier, HostId, Transport};
use transport_tcp::{TcpConfig, TcpTransport};

/// The names of this machine's devices.
///
/// # Panics
/// If there are none: then nothing would be tested.
pub(crate) fn devices() -> Vec<String> {
    const WHERE: &str = "/sys/class/infiniband";
    let entries = fs::read_dir(WHERE).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    assert!(!names.is_empty(), "no RDMA device in {WHERE}: run `cargo xtask rdma-test`");
    names
}

/// The loss bound of carriers: the machine that runs the tests may be busy.
pub(crate) const LOSS_BOUND: Duration = Duration::from_secs(10);

/// Carriers over loopback of `hosts` hosts, for racks with `threads` threads on each.
pub(crate) fn carriers(hosts: u32, threads: u32) -> Vec<Arc<TcpTransport>> {
    let change = |config: &mut TcpConfig| config.loss_bound = LOSS_BOUND;
    TcpTransport::in_process(hosts, threads + 1, change).expect("carriers")
}

/// The settings of host number `host`: its device is the one of that number, in turn.
pub(crate) fn config(host: u32) -> RdmaConfig {
    let devices = devices();
    let device = devices[host as usize % devices.len()].clone();
    RdmaConfig { device: Some(device), ..RdmaConfig::default() }
}

/// Hosts over `carriers` with the settings that `config` gives them.
pub(crate) fn join_all(
    carriers: Vec<Arc<TcpTransport>>,
    config: impl Fn(u32) -> RdmaConfig,
) -> Vec<Result<Arc<RdmaTransport>, RdmaError>> {
    let join = |(host, carrier): (u32, Arc<TcpTransport>)| {
        let config = config(host);
        thread::spawn(|| RdmaTransport::over(carrier as Arc<dyn Carrier>, config))
    };
    let joins: Vec<_> = (0..).zip(carriers).map(join).collect();
    joins.into_iter().map(|join| join.join().expect("no panic")).collect()
}

/// A rack of `hosts` hosts with `threads` threads each.
pub(crate) fn hosts(hosts: u32, threads: u32) -> Vec<Arc<RdmaTransport>> {
    let joined = join_all(carriers(hosts, threads), config).into_iter();
    joined.map(|host| host.unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// A rack, for the conformance suite.
pub(crate) fn rack(hosts: u32, threads: u32) -> Rack {
    let rack = self::hosts(hosts, threads);
    let hosts = rack.iter().map(|host| host.clone() as Arc<dyn Transport>).collect();
    Rack { hosts, kill: Box::new(move |HostId(host)| rack[host as usize].sever()) }
}
