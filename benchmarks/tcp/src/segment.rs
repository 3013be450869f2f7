//! Segments over TCP, with TLS and without, beside puts and gets of UCX over TCP.

use std::env;
use std::ffi::OsString;
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Duration;

use bench_kit::harness::Limit::AtMost;
use bench_kit::harness::{Bar, Case, Peer, Placement, Suite, Unit};
use bench_kit::measure::sampling::{CaseError, Reading, Sampler};
use bench_kit::product::segment::cases::{Candidate, table_2, table_3};
use bench_kit::product::segment::{Host, Pair, Plan, RemoteOp, Statistic, local, run_host};
use bench_kit::roles::{Lifeline, Role, RoleProcess};
use bench_kit::ucx::{Run, Test};
use transport_tcp::TcpTransport;

use crate::rack::{self, Authority, Security};

/// One host of a pair.
pub(crate) const HOST: Role = Role { name: "segment-host-tcp", run: host };

/// How long a sample takes: long enough for some thousand round trips.
const TIME: Duration = Duration::from_millis(200);

/// The suites `segment-tcp`, `segment-tcp-table-2` and `segment-tcp-names`.
pub(crate) fn suites() -> Vec<Suite> {
    let candidate = candidate(Security::Off);
    vec![
        access(),
        table_2(&candidate, "tcp", Placement::Pair),
        table_3(&candidate, "tcp", Placement::Pair),
    ]
}

pub(crate) fn candidate(security: Security) -> Candidate {
    Candidate {
        pair: pair(security),
        statistic: Statistic::Mean,
        is_strict: true,
        unit: Unit::Microseconds,
    }
}

/// Two hosts that join over TCP.
fn pair(security: Security) -> Pair {
    Pair::new(move |sampler, request| {
        let addresses = rack::free_addresses()?.map(|address| address.to_string()).join(" ");
        let authority = Authority::of(security)?;
        let start = |number: u32, core| {
            let mut variables: Vec<(&str, OsString)> =
                rack::variables(number, &addresses, authority.as_ref())?;
            variables.push((request.0, request.1.clone().into()));
            Ok::<_, CaseError>(RoleProcess::spawn(HOST, Some(core), &variables)?)
        };
        let _exporter = start(1, sampler.cores.second)?;
        Ok(start(0, sampler.cores.first)?.first_line()?)
    })
}

/// Ignores its lifeline: both hosts end together.
fn host(_: Lifeline) -> ExitCode {
    run_host(|| {
        let number: u32 = env::var(rack::NUMBER)?.parse()?;
        let addresses = rack::addresses()?;
        let address = addresses.get(number as usize).ok_or("no such host")?;
        let listener = TcpListener::bind(address)?;
        let config = rack::config(number, addresses, listener)?;
        Ok(Host::new(TcpTransport::join(config)?))
    })
}

/// What UCX does that is compared with: runs of its benchmark, added up.
fn ucx(name: impl Into<String>, runs: impl IntoIterator<Item = (Test, usize)>) -> Case {
    let runs: Vec<_> = runs.into_iter().collect();
    Case::new(name, Unit::Microseconds, move |sampler| {
        // A sample has the suite's time, however many runs it adds up.
        let sampler = Sampler { time: sampler.time / runs.len() as u32, ..*sampler };
        let run = |&(test, bytes): &(Test, usize)| {
            Run { test, over: "tcp", bytes, expected: Duration::from_micros(20) }
                .microseconds(&sampler)
        };
        Ok(Reading::of(runs.iter().map(run).sum::<Result<f64, CaseError>>()?))
    })
}

/// The candidates of UCX that operations on so many bytes stand beside: a write one way, a write and
/// a fence, a read.
///
/// UCX carries a get over TCP as an active message there and one back, with the data, and perftest's
/// `ucp_get` times something else: its owner looks for messages only once in a millisecond.
fn ucx_cases(bytes: usize) -> [Case; 3] {
    let size = local::size(bytes);
    let (put, message) = ((Test::PutLatency, bytes), (Test::AmLatency, 8));
    [
        ucx(format!("ucx/ucp_put_lat, {size}"), [put]),
        ucx(format!("ucx/ucp_put_lat, {size}, and ucp_am_lat back"), [put, message]),
        ucx(
            format!("ucx/ucp_am_lat, 8 bytes there, {size} back"),
            [message, (Test::AmLatency, bytes)],
        ),
    ]
}

fn access() -> Suite {
    let about = "reads and writes of a segment of another process over loopback, both of which poll; \
                 a write one way, or until a fence says that it is there; an operation is one of \
                 them; UCX's are sums of its one-way latencies";
    let mut suite = Suite::new("segment-tcp", about, Placement::Pair);
    suite.time = TIME;
    for bytes in [8, 4096] {
        let size = local::size(bytes);
        let cases = ucx_cases(bytes);
        let peers = cases.each_ref().map(|case| Peer::case(case.name()));
        cases.into_iter().for_each(|case| suite.push(case));
        for security in [Security::Off, Security::Tls] {
            let candidate = candidate(security);
            let plans = [
                ("write, one way", Plan::OneWay(bytes)),
                ("write and fence", Plan::Repeat(RemoteOp::FencedWrite(bytes))),
                ("read", Plan::Repeat(RemoteOp::Read(bytes))),
            ];
            for ((what, plan), peer) in plans.into_iter().zip(peers.clone()) {
                let name = format!("gossamer/{what}, {size}{}", security.text());
                let case = candidate.duration(name, plan);
                suite.push(match security {
                    Security::Off => case.bar(peer, Bar::ratio(AtMost(1.1))),
                    // UCX does not encrypt.
                    Security::Tls => case.beside(peer),
                });
            }
        }
    }
    let candidate = candidate(Security::Off);
    for (test, name, op) in [
        (Test::FetchAdd, "fetch_add", RemoteOp::FetchAdd),
        (Test::CompareSwap, "compare_swap", RemoteOp::CompareSwap),
    ] {
        let peer = ucx(format!("ucx/{}", test.name()), [(test, 8)]);
        let name = format!("gossamer/{name}");
        let case = candidate.duration(name, Plan::Repeat(op)).beside(Peer::case(peer.name()));
        suite.push(peer);
        suite.push(case);
    }
    suite
}
