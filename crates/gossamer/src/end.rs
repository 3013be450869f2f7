//! How a rack ends: wait until nothing is under way, then stop every thread.
//!
//! When `main` has returned there may still be requests in flight, above all drops of trusts. The
//! fiber that ran `main` asks every thread how many of its requests have no reply yet. It continues
//! when no thread has one in two rounds in a row, and no thread sent a request in between,
//! because a thread may send one after the first round has asked it.
//!
//! A host may be lost at any time. A lost host has no requests in flight and gets no message.

use transport_api::HostId;
use trust_core::{Node, Trustee};

use crate::shared::Shared;
use crate::{RackError, worker};

/// Rounds after which the rack ends although requests are still being sent: fibers that were never
/// joined may go on for ever.
const ROUNDS: usize = 1000;

/// Ends the rack from the fiber that ran `main`.
pub(crate) fn end_rack(shared: &Shared, check_leaks: bool) {
    let lost = |trustee: &Trustee| shared.is_lost(trustee.thread().host);
    let me = trust_core::local_trustee().trustee();
    let all = || (0..).map_while(Trustee::from_number);
    if !shared.is_stopping() {
        settle(shared, me);
    }
    if check_leaks {
        let alive: Vec<String> = all()
            .filter(|trustee| !lost(trustee))
            .flat_map(|trustee| trustee.try_visit_node(|node, ()| owned(node.alive()), ()))
            .flatten()
            .collect();
        if !alive.is_empty() {
            // Only noted: the other hosts must still get the message that the rack ends.
            shared.note_failure(RackError::Leaked(alive));
        }
    }
    // The threads of other hosts first: this host's are needed to send to them.
    let mut hosts: Vec<_> = all().filter(|trustee| !lost(trustee)).collect();
    hosts.retain(|trustee| {
        let thread = trustee.thread();
        thread.thread == 0 && thread.host != me.thread().host
    });
    collect_unobserved(shared, me.thread().host);
    shared.begin_to_end();
    for host in hosts {
        let stop = |_: &Node, ()| worker::shared().map_or((), |shared| shared.stop());
        // A host that cannot be reached is lost.
        let _ = host.try_visit_node(stop, ());
    }
    shared.stop();
}

/// Collects the failures of fire-and-forget requests of the other hosts: host 0 reports them.
fn collect_unobserved(shared: &Shared, here: HostId) {
    // Every thread hands over its failures; the last of a host collects those of the whole host.
    let ask = |node: &Node, last: bool| {
        let shared = worker::shared()?;
        shared.handle(node.take_incidents());
        if !last {
            return None;
        }
        // No host leaves before all know this: each is told to stop after this round.
        shared.begin_to_end();
        shared.report_unobserved()
    };
    for trustee in (0..).map_while(Trustee::from_number) {
        let thread = trustee.thread();
        if thread.host == here || shared.is_lost(thread.host) {
            continue;
        }
        let last = thread.thread + 1 == shared.transport.threads();
        // A thread whose host was lost cannot answer.
        if let Ok(Some((count, first))) = trustee.try_visit_node(ask, last) {
            shared.unobserved_at(thread.host, count, first);
        }
    }
}

fn owned(names: Vec<&'static str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

/// Waits until no thread has a request in flight.
fn settle(shared: &Shared, me: Trustee) {
    let mut before = None;
    for _ in 0..ROUNDS {
        let mut in_flight = 0;
        let mut sent = 0;
        for trustee in (0..).map_while(Trustee::from_number).filter(|trustee| *trustee != me) {
            if shared.is_lost(trustee.thread().host) {
                continue;
            }
            // A thread whose host was lost has no requests in flight.
            if let Ok((mine, not_done)) =
                trustee.try_visit_node(|node: &Node, ()| node.outstanding(), ())
            {
                sent += mine;
                in_flight += not_done;
            }
        }
        // The requests of this thread are those of its other fibers.
        in_flight += local_outstanding();
        if in_flight == 0 && before == Some(sent) {
            return;
        }
        before = (in_flight == 0).then_some(sent);
        fiber::yield_now();
    }
}

fn local_outstanding() -> u64 {
    trust_core::local_trustee().trustee().visit_node(|node: &Node, ()| node.outstanding().1, ())
}
