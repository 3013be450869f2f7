//! Segments over RDMA beyond their suite: changes of access, the work requests and the cost of
//! operations, and records that a device writes in parts.

mod access;
mod cost;
mod records;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gossamer_segment::{Attached, Segments};
use transport_api::Transport;
use transport_rdma::RdmaTransport;

use super::common::rdma::joined;

/// How long anything here may take before it counts as hung.
const DEADLINE: Duration = Duration::from_secs(120);

/// Two hosts with a thread each. `owner` runs on a thread of the first, and `user` on one of the
/// second.
fn pair(
    owner: impl FnOnce(&Segments, &Attached) + Send,
    user: impl FnOnce(&[Arc<RdmaTransport>], &Segments),
) {
    let hosts = joined(2, 1);
    let place = |host: usize| Segments::new(hosts[host].clone() as Arc<dyn Transport>);
    thread::scope(|scope| {
        scope.spawn(|| {
            let segments = place(0);
            owner(&segments, &segments.attach(0).expect("a thread of the rack"));
        });
        let segments = place(1);
        let _attached = segments.attach(0).expect("a thread of the rack");
        user(&hosts, &segments);
    });
}
