//! Segments over RDMA, beside perftest, and counted: what an operation posts, and what it costs the
//! owner's process.

use std::env;
use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;

use bench_kit::harness::Limit::AtMost;
use bench_kit::harness::{Bar, Case, Peer, Placement, Suite, Unit};
use bench_kit::measure::sampling::{CaseError, Reading};
use bench_kit::product::segment::cases::{Candidate, table_2, table_3};
use bench_kit::product::segment::{
    Counted, Host as Joined, Pair, Plan, RemoteOp, Statistic, run_host,
};
use bench_kit::roles::{Lifeline, Role, RoleProcess};
use gossamer_job::JobId;
use transport_api::{Carrier, HostId};
use transport_rdma::{Posted, RdmaConfig, RdmaTransport};
use transport_tcp::{Credentials, TcpConfig, TcpTransport};

use crate::Host;
use crate::lanes::TIMEOUT;
use crate::perftest::{self, Test};
use crate::suites::TIME;

/// One host of a pair.
pub(crate) const HOST: Role = Role { name: "segment-host-rdma", run: host };

const NUMBER: &str = "RDMA_BENCH_HOST";
const ADDRESSES: &str = "RDMA_BENCH_ADDRESSES";
const DEVICE: &str = "RDMA_BENCH_DEVICE";
/// The job of the carriers, and what both hosts say that they are: one program.
const NAMES: (JobId, [u8; 32]) = (JobId(1), [1; 32]);

/// The suites `segment-rdma`, `segment-rdma-counts`, `segment-rdma-owner`, and the paper's tables.
pub(crate) fn suites(hosts: &[Host; 2]) -> Vec<Suite> {
    let candidate = candidate(hosts);
    let mut suites = vec![
        access(&candidate, hosts),
        counts(&candidate),
        owner(&candidate),
        table_2(&candidate, "rdma", Placement::Unpinned),
        table_3(&candidate, "rdma", Placement::Unpinned),
    ];
    suites.iter_mut().for_each(|suite| suite.time = TIME);
    suites
}

/// Segments between these hosts.
pub(crate) fn candidate(hosts: &[Host; 2]) -> Candidate {
    Candidate {
        pair: pair(hosts),
        statistic: Statistic::Median,
        is_strict: false,
        unit: Unit::Microseconds,
    }
}

/// Two hosts with a device each, that join over TCP, as those of a job do but without TLS: data
/// travels by the devices.
fn pair(hosts: &[Host; 2]) -> Pair {
    let hosts = hosts.clone();
    Pair::new(move |sampler, request| {
        let listen = || TcpListener::bind(("127.0.0.1", 0));
        let addresses = {
            let listeners = [listen()?, listen()?];
            format!("{} {}", listeners[0].local_addr()?, listeners[1].local_addr()?)
        };
        let start = |number: usize, core| {
            let variables: [(&str, OsString); 4] = [
                (NUMBER, number.to_string().into()),
                (ADDRESSES, addresses.clone().into()),
                (DEVICE, hosts[number].device.clone().into()),
                (request.0, request.1.clone().into()),
            ];
            Ok::<_, CaseError>(RoleProcess::spawn(HOST, Some(core), &variables)?)
        };
        let _exporter = start(1, sampler.cores.second)?;
        Ok(start(0, sampler.cores.first)?.first_line()?)
    })
}

/// Ignores its lifeline: both hosts end together.
fn host(_: Lifeline) -> ExitCode {
    run_host(|| {
        let number: u32 = env::var(NUMBER)?.parse()?;
        let addresses = env::var(ADDRESSES)?;
        let addresses: Vec<SocketAddr> =
            addresses.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let listener = TcpListener::bind(addresses.get(number as usize).ok_or("no such host")?)?;
        // One thread more than segments have, for the transport itself.
        let credentials = Credentials::InsecureLoopback;
        let tcp = TcpConfig::new(NAMES, HostId(number), addresses, listener, 2, credentials);
        let carrier = TcpTransport::join(TcpConfig { loss_bound: TIMEOUT, ..tcp })?;
        let config = RdmaConfig { device: Some(env::var(DEVICE)?), ..RdmaConfig::default() };
        let transport = RdmaTransport::over(carrier as Arc<dyn Carrier>, config)?;
        let of = transport.clone();
        let counters = Box::new(move || {
            let Posted { work_requests, doorbells } = of.posted();
            Counted { work_requests, doorbells }
        });
        Ok(Joined { transport, counters: Some(counters) })
    })
}

fn access(candidate: &Candidate, hosts: &[Host; 2]) -> Suite {
    let about = "reads, writes and atomics on a segment of another process, beside perftest's, pinned \
                 0,1; a write is half a round trip of writes; a sample is the median of its operations";
    let mut suite = Suite::new("segment-rdma", about, Placement::Unpinned);
    for (name, plan, test) in [
        ("write, 8 bytes, one way", Plan::OneWay(8), Test::WriteLatency),
        ("read, 8 bytes", Plan::Repeat(RemoteOp::Read(8)), Test::ReadLatency),
        ("fetch_add", Plan::Repeat(RemoteOp::FetchAdd), Test::FetchAddLatency),
        ("compare_swap", Plan::Repeat(RemoteOp::CompareSwap), Test::CompareSwapLatency),
        ("write, 4 KiB, one way", Plan::OneWay(4096), Test::BlockWriteLatency),
        ("read, 4 KiB", Plan::Repeat(RemoteOp::Read(4096)), Test::BlockReadLatency),
    ] {
        suite.push(peer(hosts, test, Unit::Microseconds));
        let case = candidate.duration(format!("gossamer/{name}"), plan);
        suite.push(case.beside(Peer::case(test.text())));
    }
    let fenced = Plan::Repeat(RemoteOp::FencedWrite(8));
    let fenced = candidate.duration("gossamer/write and fence, 8 bytes", fenced);
    suite.push(fenced.beside(Peer::case(Test::ReadLatency.text())));
    suite.push(peer(hosts, Test::WriteBandwidth, Unit::GigabytesPerSecond));
    let blocks = Candidate { statistic: Statistic::Mean, ..candidate.clone() };
    let plan = Plan::Repeat(RemoteOp::WriteBlock(4096));
    let blocks = blocks.throughput("gossamer/write_block, 4 KiB", 4096, plan);
    suite.push(blocks.beside(Peer::case(Test::WriteBandwidth.text())));
    suite
}

fn peer(hosts: &[Host; 2], test: Test, unit: Unit) -> Case {
    let hosts = hosts.clone();
    Case::new(test.text(), unit, move |sampler| {
        Ok(Reading::of(perftest::figure(sampler, &hosts, test)?))
    })
}

fn counts(candidate: &Candidate) -> Suite {
    let about = "work requests and doorbells of the process that reads or writes a segment of \
                 another, for each of a thousand operations; blocks fill windows, so every 64th \
                 brings a fence";
    let mut suite = Suite::new("segment-rdma-counts", about, Placement::Unpinned);
    let one = Bar::value(AtMost(1.0));
    for (name, op, bar) in [
        ("read, 8 bytes", RemoteOp::Read(8), Some(one)),
        ("write, 8 bytes", RemoteOp::Write(8), Some(one)),
        ("fetch_add", RemoteOp::FetchAdd, Some(one)),
        ("compare_swap", RemoteOp::CompareSwap, Some(one)),
        ("read, 4 KiB", RemoteOp::Read(4096), Some(one)),
        ("write, 4 KiB", RemoteOp::Write(4096), None),
        ("write and fence, 8 bytes", RemoteOp::FencedWrite(8), None),
    ] {
        let requests = Plan::WorkRequests(op);
        let requests = candidate.count(format!("gossamer/{name}, work requests"), requests);
        let doorbells = candidate.count(format!("gossamer/{name}, doorbells"), Plan::Doorbells(op));
        for case in [requests, doorbells] {
            suite.push(match bar {
                Some(bar) => case.bar_value(bar),
                None => case,
            });
        }
    }
    suite
}

fn owner(candidate: &Candidate) -> Suite {
    let about = "CPU time of the process that owns a segment, while another uses it; what it takes \
                 when nothing is done is the carrier's heartbeat";
    let mut suite = Suite::new("segment-rdma-owner", about, Placement::Unpinned);
    let nothing = candidate.owner_cpu("gossamer/nothing is done", RemoteOp::Nothing);
    let peer = Peer::case(nothing.name());
    suite.push(nothing);
    for (name, op) in [
        ("read, 8 bytes", RemoteOp::Read(8)),
        ("write, 8 bytes", RemoteOp::Write(8)),
        ("fetch_add", RemoteOp::FetchAdd),
    ] {
        let case = candidate.owner_cpu(format!("gossamer/{name}"), op);
        suite.push(case.beside(peer.clone()));
    }
    suite
}
