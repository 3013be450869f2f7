//! The cases: half a round trip with one request outstanding and the rate with several, each beside
//! what perftest does on the same two devices, and what is held against what.

use std::time::Duration;

use core_bench::harness::Limit::{AtLeast, AtMost};
use core_bench::harness::{Bar, Case, Peer, Placement, Suite, Unit};
use core_bench::measure::room::Reading;
use core_bench::product::share::FIBERS;

use crate::Host;
use crate::perftest::{self, Test};
use crate::rack::{self, Plan, Sender};

/// How long a sample takes: long enough for some thousand round trips of an emulated machine.
const TIME: Duration = Duration::from_millis(500);

/// The suites `rdma-half-round-trip` and `rdma-rate`, between these two hosts.
pub(crate) fn all(hosts: &[Host; 2]) -> Vec<Suite> {
    vec![half_round_trip(hosts), rate(hosts)]
}

fn suite(name: &str, about: &str) -> Suite {
    let mut suite = Suite::new(name, about, Placement::Free);
    suite.time = TIME;
    suite
}

fn half_round_trip(hosts: &[Host; 2]) -> Suite {
    let about =
        "8 bytes, 1 outstanding, pinned 0,1; a sample is the median of half its round trips";
    let mut suite = suite("rdma-half-round-trip", about);
    for test in [Test::WriteLatency, Test::SendLatency] {
        let hosts = hosts.clone();
        suite.push(Case::new(test.text(), Unit::Microseconds, move |room| {
            Ok(Reading::of(perftest::figure(room, &hosts, test)?))
        }));
    }
    let peers = [Test::WriteLatency, Test::SendLatency].map(|test| Peer::case(test.text()));
    for (name, inline) in [("gossamer/apply", true), ("gossamer/apply, nothing inline", false)] {
        let hosts = hosts.clone();
        let case = Case::new(name, Unit::Microseconds, move |room| {
            let plan = Plan { sender: Sender::Alone, inline, time: room.time };
            Ok(Reading::of(rack::figure(room, &hosts, plan)?))
        });
        let [write, send] = peers.clone();
        let case = match inline {
            true => case.bar(write, Bar::ratio(AtMost(1.3))),
            false => case.beside(write),
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
    suite.push(Case::new(peer, Unit::Mops, move |room| {
        Ok(Reading::of(perftest::figure(room, &of_peer, Test::WriteRate)?))
    }));
    let windows = [1, 4, 16, 64].map(Sender::Window);
    for sender in windows.into_iter().chain([Sender::Fibers(FIBERS)]) {
        let hosts = hosts.clone();
        let case = Case::new(format!("gossamer/{}", sender.text()), Unit::Mops, move |room| {
            let plan = Plan { sender, inline: true, time: room.time };
            Ok(Reading::of(rack::figure(room, &hosts, plan)? / 1e6))
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
