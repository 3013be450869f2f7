//! Segments over TCP, with TLS and without, beside puts and gets of UCX over TCP.

use std::env;
use std::ffi::OsString;
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Duration;

use bench_kit::harness::Limit::AtMost;
use bench_kit::harness::{Bar, Case, Peer, Placement, Suite, Unit};
use bench_kit::measure::sampling::{CaseError, Reading};
use bench_kit::product::segment::cases::{Candidate, table_2, table_3};
use bench_kit::product::segment::{Access, Host, Pace, Pair, Plan, local, run_host};
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

fn candidate(security: Security) -> Candidate {
    Candidate { pair: pair(security), pace: Pace::Mean, is_strict: true, unit: Unit::Microseconds }
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

/// What UCX does that is compared with: a put, which the other side polls for, and a get.
fn ucx(test: Test, bytes: usize, times: f64, name: String) -> Case {
    Case::new(name, Unit::Microseconds, move |sampler| {
        let expected = Duration::from_micros(20);
        let run = Run { test, over: "tcp", bytes, expected };
        Ok(Reading::of(times * run.microseconds(sampler)?))
    })
}

fn access() -> Suite {
    let about = "reads and writes of a segment of another process over loopback, both of which poll; \
                 a write one way, or until a fence says that it is there; an operation is one of them";
    let mut suite = Suite::new("segment-tcp", about, Placement::Pair);
    suite.time = TIME;
    for bytes in [8, 4096] {
        let size = local::size(bytes);
        let put = ucx(Test::PutLatency, bytes, 1.0, format!("ucx/ucp_put_lat, {size}"));
        let puts = ucx(Test::PutLatency, bytes, 2.0, format!("ucx/ucp_put_lat, {size}, twice"));
        let get = ucx(Test::GetLatency, bytes, 1.0, format!("ucx/ucp_get, {size}"));
        let peers = [&put, &puts, &get].map(|case| Peer::case(case.name()));
        for case in [put, puts, get] {
            suite.push(case);
        }
        for security in [Security::Off, Security::Tls] {
            let candidate = candidate(security);
            let plans = [
                ("write, one way", Plan::OneWay(bytes)),
                ("write and fence", Plan::Repeat(Access::FencedWrite(bytes))),
                ("read", Plan::Repeat(Access::Read(bytes))),
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
    for (test, name, access) in [
        (Test::FetchAdd, "fetch_add", Access::FetchAdd),
        (Test::CompareSwap, "compare_swap", Access::CompareSwap),
    ] {
        let peer = ucx(test, 8, 1.0, format!("ucx/{}", test.name()));
        let name = format!("gossamer/{name}");
        let case = candidate.duration(name, Plan::Repeat(access)).beside(Peer::case(peer.name()));
        suite.push(peer);
        suite.push(case);
    }
    suite
}
