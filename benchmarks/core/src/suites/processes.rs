//! Requests of 8 bytes between two processes.

use bench_kit::harness::Limit::{AtLeast, AtMost};
use bench_kit::harness::{Bar, Peer, Placement, Suite};
use bench_kit::product::two_process::{self, Sender};
use bench_kit::ucx;

use super::iceoryx;

/// The suites `process-latency` and `process-rate`.
pub(crate) fn suites() -> Vec<Suite> {
    let about = "two processes; an operation is half a round trip of an 8-byte request";
    let mut latency = Suite::new("process-latency", about, Placement::Pair);
    let case = ucx::latency();
    let ucx = Peer::case(case.name());
    latency.push(case);
    latency.push(iceoryx::latency());
    latency.push(two_process::latency().bar(ucx, Bar::ratio(AtMost(0.4))));
    let about = "two processes; an operation is an 8-byte message, with many under way (each of \
                 ours and of iceoryx2 is answered)";
    let mut rate = Suite::new("process-rate", about, Placement::Pair);
    let case = ucx::rate();
    let ucx = Peer::case(case.name());
    rate.push(case);
    rate.push(iceoryx::rate());
    for sender in [Sender::Window, Sender::WhateverFits] {
        rate.push(two_process::rate(sender).bar(ucx.clone(), Bar::ratio(AtLeast(5.0))));
    }
    rate.push(two_process::rate(Sender::ManyFibers).beside(ucx));
    vec![latency, rate]
}
