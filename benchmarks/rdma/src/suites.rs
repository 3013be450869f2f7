//! The cases: half a round trip with one request outstanding and the rate with several, each beside
//! what perftest does on the same two devices; how a write tells that it is there; queue pairs in
//! numbers; and what is held against what.

use std::path::Path;
use std::time::Duration;

use bench_kit::harness::Limit::{AtLeast, AtMost};
use bench_kit::harness::{Bar, Case, Peer, Placement, Suite, Unit};
use bench_kit::measure::sampling::Reading;
use bench_kit::product::get;
use bench_kit::product::share::FIBERS;

use crate::lanes::{self, Joining, Telling};
use crate::perftest::{self, Test};
use crate::rack::{self, Plan, Sender};
use crate::{Host, jam, payloads, segment};

/// How long a sample takes: long enough for some thousand round trips of an emulated machine.
pub(crate) const TIME: Duration = Duration::from_millis(500);

/// The suite whose figures are drawn: [`plot`](crate::plot).
pub(crate) const QUEUE_PAIRS: &str = "rdma-queue-pairs";

/// Threads of a host in that suite.
pub(crate) const THREADS: [u32; 4] = [1, 2, 4, 8];

/// All suites, between these two hosts; `kv` is the program.
pub(crate) fn all(hosts: &[Host; 2], kv: Option<&Path>) -> Vec<Suite> {
    let mut suites = vec![half_round_trip(hosts), rate(hosts), signal(hosts), payloads(hosts)];
    suites.push(queue_pairs(hosts));
    suites.extend(segment::suites(hosts));
    suites.push(gets(hosts, kv));
    suites.extend(jam::suites(hosts));
    suites
}

fn gets(hosts: &[Host; 2], kv: Option<&Path>) -> Suite {
    let (hosts, kv) = (hosts.clone(), (kv.map(Path::to_owned), false));
    let mut suite = get::suite("get-rdma", Placement::Unpinned, kv, move |sampler, plan| {
        let sender = Sender::Get(plan);
        let plan = Plan { sender, inline: true, sleeps: false, time: sampler.time };
        rack::figure(sampler, &hosts, plan)
    });
    suite.time = TIME;
    suite
}

fn suite(name: &str, about: &str) -> Suite {
    let mut suite = Suite::new(name, about, Placement::Unpinned);
    suite.time = TIME;
    suite
}

fn half_round_trip(hosts: &[Host; 2]) -> Suite {
    let about =
        "8 bytes, 1 outstanding, pinned 0,1; a sample is the median of half its round trips";
    let mut suite = suite("rdma-half-round-trip", about);
    for test in [Test::WriteLatency, Test::SendLatency] {
        let hosts = hosts.clone();
        suite.push(Case::new(test.text(), Unit::Microseconds, move |sampler| {
            Ok(Reading::of(perftest::figure(sampler, &hosts, test)?))
        }));
    }
    let peers = [Test::WriteLatency, Test::SendLatency].map(|test| Peer::case(test.text()));
    for (name, inline, sleeps) in [
        ("gossamer/apply", true, false),
        ("gossamer/apply, nothing inline", false, false),
        ("gossamer/apply, threads may sleep", true, true),
    ] {
        let hosts = hosts.clone();
        let case = Case::new(name, Unit::Microseconds, move |sampler| {
            let plan = Plan { sender: Sender::OneFiber, inline, sleeps, time: sampler.time };
            Ok(Reading::of(rack::figure(sampler, &hosts, plan)?))
        });
        let [write, send] = peers.clone();
        let case = match name {
            "gossamer/apply" => case.bar(write, Bar::ratio(AtMost(1.3))),
            _ => case.beside(write),
        };
        suite.push(case.beside(send));
    }
    suite
}

fn rate(hosts: &[Host; 2]) -> Suite {
    let about = "requests of 8 bytes, each answered, beside messages of 64 that nobody answers, \
                 pinned 0,1; an operation is a request or a message";
    let mut suite = suite("rdma-rate", about);
    let peer = Test::WriteRate.text();
    let of_peer = hosts.clone();
    suite.push(Case::new(peer, Unit::Mops, move |sampler| {
        Ok(Reading::of(perftest::figure(sampler, &of_peer, Test::WriteRate)?))
    }));
    let windows = [1, 4, 16, 64].map(Sender::Window);
    let batches = [4, 16].map(Sender::Batch);
    let senders = windows.into_iter().chain(batches).chain([Sender::Fibers(FIBERS)]);
    let inline = senders.map(|sender| (sender, true));
    for (sender, inline) in inline.chain([1, 16].map(|window| (Sender::Window(window), false))) {
        let hosts = hosts.clone();
        let how = if inline { "" } else { ", nothing inline" };
        let name = format!("gossamer/{}{how}", sender.text());
        let case = Case::new(name, Unit::Mops, move |sampler| {
            let plan = Plan { sender, inline, sleeps: false, time: sampler.time };
            Ok(Reading::of(rack::figure(sampler, &hosts, plan)? / 1e6))
        });
        // With few requests there is little to put into one write: that is shown, and no bar.
        suite.push(match sender {
            Sender::Window(64) | Sender::Fibers(_) => {
                case.bar(Peer::case(peer), Bar::ratio(AtLeast(10.0)))
            }
            _ => case.beside(Peer::case(peer)),
        });
    }
    suite
}

fn signal(hosts: &[Host; 2]) -> Suite {
    let about = "bytes to the other side and back, and how each is told that they are there, between \
                 bare lanes, pinned 0,1; a sample is the median of half its round trips";
    let mut suite = suite("rdma-signal", about);
    for bytes in [16, 256, 1024] {
        let case = |how: &str, telling| {
            let hosts = hosts.clone();
            Case::new(format!("{bytes} bytes, {how}"), Unit::Microseconds, move |sampler| {
                Ok(Reading::of(lanes::half_round_trip_us(sampler, &hosts, telling, bytes)?))
            })
        };
        let two = case("a second write tells", Telling::SecondWrite);
        let peer = Peer::case(two.name());
        suite.push(two);
        suite.push(case("the same write tells", Telling::SameWrite).beside(peer));
    }
    suite
}

fn payloads(hosts: &[Host; 2]) -> Suite {
    let about = "a payload to the other side and word that it is there, between bare lanes, pinned \
                 0,1; a sample is the median of its trips";
    let mut suite = suite("rdma-payload", about);
    for kib in [16, 256, 4096] {
        for (joining, how) in [(Joining::Encrypted, "TLS"), (Joining::Open, "no TLS")] {
            let case = |what: &str, way| {
                let hosts = hosts.clone();
                let name = format!("{kib} KiB, {what}, {how}");
                Case::new(name, Unit::Microseconds, move |sampler| {
                    Ok(Reading::of(payloads::trip_us(sampler, &hosts, way, kib << 10)?))
                })
            };
            let carried = case("by the carrier", (joining, false));
            let peer = Peer::case(carried.name());
            suite.push(carried);
            suite.push(case("read by the other side", (joining, true)).beside(peer));
        }
    }
    suite
}

/// The name of a case of the suite that is drawn.
pub(crate) fn queue_pairs_case(threads: u32, queue_pairs: u32) -> String {
    let plural = |count: u32| if count == 1 { "" } else { "s" };
    let (of_threads, of_pairs) = (plural(threads), plural(queue_pairs));
    format!("{threads} thread{of_threads}, {queue_pairs} queue pair{of_pairs}")
}

fn queue_pairs(hosts: &[Host; 2]) -> Suite {
    let about = "writes of 256 bytes from one host to another, by threads that have a queue pair \
                 each, or one for each thread of the other host; an operation is a write";
    let mut suite = suite(QUEUE_PAIRS, about);
    for threads in THREADS {
        let case = |lanes: u32| {
            let hosts = hosts.clone();
            Case::new(queue_pairs_case(threads, threads * lanes), Unit::Mops, move |sampler| {
                Ok(Reading::of(lanes::write_rate(sampler, &hosts, threads, lanes)?))
            })
        };
        let reduced = case(1);
        if threads == 1 {
            suite.push(reduced);
            continue;
        }
        let quadratic = case(threads);
        let peer = Peer::case(quadratic.name());
        suite.push(quadratic);
        suite.push(reduced.beside(peer));
    }
    suite
}
