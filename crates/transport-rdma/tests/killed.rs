//! A peer whose process is killed is reported to a thread that writes to it and to one that sleeps.

#![cfg(feature = "verbs")]

mod common;

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, thread};

use gossamer_transport_rdma::{RdmaConfig, RdmaTransport};
use primitive::SharedBytes;
use transport_api::{Carrier, Event, HostId, PeerEvent, RegionError, RegionKey, Rights, Transport};
use transport_tcp::{Credentials, JobId, TcpConfig, TcpTransport};

/// Tells a started process that it is host 1, and the addresses of both hosts.
const ADDRESSES: &str = "GOSSAMER_TEST_ADDRESSES";

const SOON: Duration = Duration::from_secs(20);

fn host(host: u32, addresses: Vec<SocketAddr>, listener: TcpListener) -> Arc<RdmaTransport> {
    let names = (JobId(9), [9; 32]);
    let credentials = Credentials::InsecureLoopback;
    let config = TcpConfig::new(names, HostId(host), addresses, listener, 3, credentials);
    let carrier = TcpTransport::join(TcpConfig { loss_bound: common::LOSS_BOUND, ..config });
    let carrier: Arc<dyn Carrier> = carrier.expect("a carrier");
    let config = RdmaConfig { join_timeout: SOON, ..common::config(host) };
    RdmaTransport::over(carrier, config).unwrap_or_else(|error| panic!("{error}"))
}

/// Kills the process when dropped, so that a test that fails leaves nothing behind.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Host 0, and the process that is host 1.
fn pair() -> (Arc<RdmaTransport>, Process) {
    let listen = || TcpListener::bind("127.0.0.1:0").expect("a listener");
    let (ours, theirs) = (listen(), listen());
    let addresses = [&ours, &theirs].map(|l| l.local_addr().expect("an address"));
    // The other process takes its place.
    drop(theirs);
    let descriptor = addresses.map(|address| address.to_string()).join(",");
    let child = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "the_other_process", "--ignored"])
        .env(ADDRESSES, descriptor)
        .spawn()
        .expect("a process");
    let child = Process(child);
    (host(0, addresses.to_vec(), ours), child)
}

#[test]
#[ignore = "this is what the other tests start"]
fn the_other_process() {
    let Ok(descriptor) = env::var(ADDRESSES) else { return };
    let addresses: Vec<SocketAddr> =
        descriptor.split(',').map(|address| address.parse().expect("an address")).collect();
    let listener = TcpListener::bind(addresses[1]).expect("the other address");
    let transport = host(1, addresses, listener);
    let _region = transport.export(RegionKey(1), 4096, Rights::ALL.into()).expect("a region");
    thread::sleep(SOON * 3);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn a_killed_peer_is_lost_to_a_writer() {
    let (transport, mut other) = pair();
    let remote = transport.import(HostId(1), RegionKey(1), SOON).expect("a region");
    let mut lane = transport.lane(0, HostId(1)).expect("a lane");
    let bytes = SharedBytes::heap(4096);
    let (mut lost, start) = (None, Instant::now());
    while lost.is_none() {
        assert!(start.elapsed() < SOON, "the loss is not reported");
        // Without end: nothing must hang, or fail before the loss is reported.
        lane.write(&remote, 0, &bytes).expect("a write");
        lane.flush().expect("a flush");
        lane.poll(&mut |event| lost = Some(event));
        if start.elapsed() > Duration::from_millis(200) {
            other.0.kill().expect("to be killed");
        }
    }
    let Some(Event::Peer(PeerEvent::Lost(HostId(1), reason))) = lost else { panic!("{lost:?}") };
    assert!(!reason.to_string().is_empty());
    assert!(lane.write(&remote, 0, &bytes).is_err());
    let import = transport.import(HostId(1), RegionKey(2), SOON);
    assert!(matches!(import, Err(RegionError::PeerLost(HostId(1), _))));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn a_killed_peer_is_lost_to_a_sleeper() {
    let (transport, mut other) = pair();
    let mut lane = transport.lane(1, HostId(1)).expect("a lane");
    let mut parker = transport.parker(1).expect("a parker");
    other.0.kill().expect("to be killed");
    let (mut lost, start) = (false, Instant::now());
    while !lost {
        assert!(start.elapsed() < SOON, "the loss is not reported");
        parker.park(SOON, &mut || false);
        lane.poll(&mut |event| lost |= matches!(event, Event::Peer(PeerEvent::Lost(..))));
    }
}
