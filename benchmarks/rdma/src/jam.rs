//! Jams over RDMA: few sizes, and few forms of calls of a trustee, as a sample takes long in a guest.

use std::time::Duration;

use bench_kit::harness::{Placement, Suite};
use bench_kit::measure::sampling::Sampler;
use bench_kit::product::jam::suites::Transport;

use crate::Host;
use crate::rack::{self, Plan, Sender};
use crate::segment;

/// Bytes of payloads.
const PAYLOADS: [usize; 2] = [64, 4 << 10];
/// How long a sample takes: some hundred round trips of an emulated machine.
const TIME: Duration = Duration::from_millis(200);

/// The suites `jam-rdma-*`.
pub(crate) fn suites(hosts: &[Host; 2]) -> Vec<Suite> {
    let transport = Transport {
        over: "rdma",
        candidate: segment::candidate(hosts),
        ucx: None,
        placement: Placement::Unpinned,
        payloads: PAYLOADS.to_vec(),
        time: TIME,
        is_mapped: false,
    };
    let hosts = hosts.clone();
    let mut suites = transport.suites();
    suites.extend(transport.calls(move |sampler: &Sampler, plan| {
        let sender = Sender::Jam(plan);
        let plan = Plan { sender, inline: true, sleeps: false, time: sampler.time };
        rack::figure(sampler, &hosts, plan)
    }));
    suites
}
