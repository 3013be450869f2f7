//! The cases: every candidate at 1 and at 64 requests outstanding, Gossamer also at 1,024, and what is
//! held against what.

use std::path::Path;
use std::time::Duration;

use bench_kit::harness::Limit::{AtLeast, AtMost};
use bench_kit::harness::{Bar, Case, Peer, Placement, Suite, Unit};
use bench_kit::measure::sampling::{CaseError, Reading, Sampler};
use bench_kit::product::get;
use bench_kit::product::two_process::{Sender, Work};
use bench_kit::roles::Role;
use bench_kit::ucx::{Run, Test};

use crate::peer::{self, tarpc, tonic};
use crate::rack::{self, Security};
use crate::{jam, segment, sockets};

/// The roles that cases start this program in.
pub(crate) const ROLES: [Role; 5] =
    [rack::HOST, segment::HOST, sockets::SERVER, tarpc::SERVER, tonic::SERVER];

/// How long a sample takes: long enough for some thousand round trips.
const TIME: Duration = Duration::from_millis(200);

/// Requests under way when the rate is measured.
const WINDOW: u64 = 64;

/// The suites `tcp-round-trip`, `tcp-rate`, `segment-tcp*`, `get-tcp` and `jam-tcp*`; `kv` is the program.
pub(crate) fn all(kv: Option<&Path>) -> Vec<Suite> {
    let mut suites = vec![round_trip(), rate()];
    suites.extend(segment::suites());
    suites.push(gets(kv));
    suites.extend(jam::suites());
    suites
}

fn round_trip() -> Suite {
    let about = "1 request of 8 bytes outstanding, over loopback; an operation is a round trip";
    let mut suite = Suite::new("tcp-round-trip", about, Placement::Pair);
    suite.time = TIME;
    let micros = |name: &str, per_second: fn(&Sampler) -> Result<f64, CaseError>| {
        Case::new(name, Unit::Microseconds, move |sampler| {
            Ok(Reading::of(1e6 / per_second(sampler)?))
        })
    };
    suite.push(micros("sockets/write and read, polled", sockets::round_trips));
    suite.push(Case::new("ucx/ucp_am_lat over tcp, twice", Unit::Microseconds, |sampler| {
        let expected = Duration::from_micros(20);
        let run = Run { test: Test::AmLatency, over: "tcp", bytes: 8, expected };
        Ok(Reading::of(2.0 * run.microseconds(sampler)?))
    }));
    suite.push(micros("tarpc", |sampler| peer::per_second::<tarpc::Client>(sampler, 1)));
    suite.push(micros("tonic", |sampler| peer::per_second::<tonic::Client>(sampler, 1)));
    let [ucx, tarpc, tonic] = [1, 2, 3].map(|at| Peer::case(suite.cases[at].name()));
    for (name, per_second) in [
        ("gossamer/apply", one_fiber as fn(&Sampler) -> Result<f64, CaseError>),
        ("gossamer/apply, TLS", one_fiber_tls),
    ] {
        let case = micros(name, per_second);
        let case = case.bar(ucx.clone(), Bar::ratio(AtMost(1.0)));
        suite.push(case.beside(tarpc.clone()).beside(tonic.clone()));
    }
    suite
}

fn gets(kv: Option<&Path>) -> Suite {
    let kv = (kv.map(Path::to_owned), true);
    let mut suite = get::suite("get-tcp", Placement::Pair, kv, |sampler, plan| {
        rack::per_second(sampler, Work::Get(plan), Security::Off)
    });
    suite.time = TIME;
    suite
}

fn one_fiber(sampler: &Sampler) -> Result<f64, CaseError> {
    rack::per_second(sampler, Work::Send(Sender::OneFiber), Security::Off)
}

fn one_fiber_tls(sampler: &Sampler) -> Result<f64, CaseError> {
    rack::per_second(sampler, Work::Send(Sender::OneFiber), Security::Tls)
}

fn rate() -> Suite {
    let about = "64 requests of 8 bytes outstanding, or as many as the case names, each answered \
                 (UCX's are not), over loopback; an operation is a request";
    let mut suite = Suite::new("tcp-rate", about, Placement::Pair);
    suite.time = TIME;
    suite.push(mops("ucx/ucp_am_bw over tcp, one way", |sampler| {
        let expected = Duration::from_nanos(500);
        Run { test: Test::AmRate, over: "tcp", bytes: 8, expected }.per_second(sampler)
    }));
    suite.push(mops("tarpc", |sampler| peer::per_second::<tarpc::Client>(sampler, WINDOW)));
    suite.push(mops("tonic", |sampler| peer::per_second::<tonic::Client>(sampler, WINDOW)));
    let [ucx, tarpc, tonic] = [0, 1, 2].map(|at| Peer::case(suite.cases[at].name()));
    for (sender, name) in [
        (Sender::Window, "apply_then"),
        (Sender::WideWindow, "apply_then, 1024 outstanding"),
        (Sender::ManyFibers, "apply, 64 fibers"),
    ] {
        for security in [Security::Off, Security::Tls] {
            let name = format!("gossamer/{name}{}", security.text());
            let case =
                mops(&name, move |sampler| rack::per_second(sampler, Work::Send(sender), security));
            if sender == Sender::WideWindow {
                // No peer here has as many outstanding.
                let narrow = Peer::case(format!("gossamer/apply_then{}", security.text()));
                suite.push(case.beside(narrow).bar_value(Bar::value(AtLeast(10.0))));
                continue;
            }
            let case = case.bar(tonic.clone(), Bar::ratio(AtLeast(5.0)));
            let case = case.bar(tarpc.clone(), Bar::ratio(AtLeast(2.0)));
            suite.push(case.beside(ucx.clone()));
        }
    }
    suite
}

fn mops(name: &str, per_second: impl Fn(&Sampler) -> Result<f64, CaseError> + 'static) -> Case {
    Case::new(name, Unit::Mops, move |sampler| Ok(Reading::of(per_second(sampler)? / 1e6)))
}
