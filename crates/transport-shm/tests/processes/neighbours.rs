//! Hosts of one machine that join without a leader.

use std::thread;

use gossamer_transport_shm::{Neighbours, ShmTransport};
use transport_api::{Event, HostId, LossReason, PeerEvent};

use crate::{BUILD, Children, lane_to, this, until};

/// Host 1 or 3, which share a machine, in a rack of five; all by the secret of the
/// process that runs the tests, which is `tester`, or the parent of this one.
pub(crate) fn neighbours(host: u32, tester: u32) -> Neighbours {
    let parent = || rustix::process::getppid().expect("a parent").as_raw_nonzero().get() as u32;
    let tester = if tester == 0 { parent() } else { tester };
    let mut secret = [0x77; 32];
    secret[..4].copy_from_slice(&tester.to_ne_bytes());
    let (host, members) = (HostId(host), vec![HostId(1), HostId(3)]);
    Neighbours { host, members, hosts: 5, threads: 2, secret, build: BUILD }
}

pub(crate) fn neighbours_join_and_report_a_loss() {
    let mut children = Children(vec![this("neighbour").spawn().expect("a child")]);
    let joined = ShmTransport::join_neighbours(&neighbours(1, std::process::id()));
    let (rack, _alarms) = joined.unwrap_or_else(|error| panic!("{error}"));
    let mut lane = lane_to(&rack, 3);
    // One poll may bring the payload and the end behind it.
    let mut payloads = 0;
    let end = until(&mut *lane, |event| {
        payloads += usize::from(matches!(event, Event::Bulk { .. }));
        match event {
            Event::Peer(end) => Some(end),
            _ => None,
        }
    });
    assert_eq!(payloads, 1);
    let (pid, how) = (children.0[0].id(), "exit status 7".into());
    assert_eq!(end, PeerEvent::Lost(HostId(3), LossReason::ProcessEnded { pid, how }));
    assert_eq!(children.exits(), [Some(7)]);
}

pub(crate) fn a_neighbour_of_another_user_is_refused() {
    if !crate::may_play_another_user() {
        return;
    }
    let tester = std::process::id();
    let leading = thread::spawn(move || {
        ShmTransport::join_neighbours(&neighbours(1, tester)).map(|joined| joined.0)
    });
    let stranger = this("neighbour of another user").spawn().expect("a child");
    assert_eq!(Children(vec![stranger]).exits(), [Some(0)]);
    let mut children = Children(vec![this("neighbour").spawn().expect("a child")]);
    let rack = leading.join().expect("no panic").unwrap_or_else(|error| panic!("{error}"));
    until(&mut *lane_to(&rack, 3), |event| matches!(event, Event::Bulk { .. }).then_some(()));
    assert_eq!(children.exits(), [Some(7)]);
}
