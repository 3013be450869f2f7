//! Revocations where a peer that is gone may still run, as where regions are mapped.

use std::time::{Duration, Instant};

use transport_api::{HostId, LossReason, RegionKey};

use crate::config::{Config, CutOff, Goodbye, Reach, STOP_GRACE};
use crate::control::Control;
use crate::control::tests::{A, B, C};
use crate::message::Message;
use crate::output::Output;
use crate::testing::{SimExport, SimMedium};

const KEY: RegionKey = RegionKey(7);

/// Hosts that an ended revocation has named as busy, one list for each.
type Ends = Vec<Vec<HostId>>;

/// Host A, which exports a region that B, C and it itself have imported.
struct Owner {
    control: Control<SimMedium>,
    now: Instant,
    /// Inhibitions of threads of this host that have not quiesced.
    inhibited: Vec<u64>,
    /// Numbers of the revocations that were sent to peers.
    asked: Vec<(HostId, u64)>,
}

impl Owner {
    fn new() -> Owner {
        Owner::with_timeout(None)
    }

    fn with_timeout(revocation_timeout: Option<Duration>) -> Owner {
        let now = Instant::now();
        let config = Config {
            local: A,
            hosts: 3,
            loss_bound: None,
            reach: Reach::Direct,
            cut_off: CutOff::AtStop,
            goodbye: Goodbye::Message,
            revocation_timeout,
        };
        let mut control = Control::new(now, config);
        [B, C].into_iter().for_each(|peer| control.connected(peer, now));
        Owner { control, now, inhibited: Vec::new(), asked: Vec::new() }
    }

    fn export(&mut self, importers: &[HostId]) {
        self.control.export(KEY, |_| SimExport { only: None }).expect("an export");
        for (number, importer) in (1..).zip(importers) {
            if *importer == A {
                self.control.import_own(KEY).expect("a region");
            } else {
                let import = Message::Import { number, key: KEY, timeout: 0 };
                self.control.handle(self.now, *importer, import, None);
            }
        }
        assert_eq!(self.ends(), Ends::new());
    }

    fn revoke(&mut self) {
        self.control.revoke(self.now, KEY, None, None).expect("a region");
    }

    /// The revocations that have ended since the last call.
    fn ends(&mut self) -> Ends {
        let mut ends = Ends::new();
        while let Some(output) = self.control.poll(self.now) {
            match output {
                Output::Revoked { busy, .. } => ends.push(busy),
                Output::Inhibit { epoch, .. } => self.inhibited.push(epoch),
                Output::Send { to, message: Message::Revoke { number, .. }, .. } => {
                    self.asked.push((to, number));
                }
                _ => {}
            }
        }
        ends
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn lose(&mut self, peer: HostId) {
        self.control.lose(peer, LossReason::Connection("it closed its connection".into()));
    }

    /// Those of the peers that were asked answer.
    fn answer(&mut self, peer: HostId) {
        let (_, number) = *self.asked.iter().find(|(to, _)| *to == peer).expect("a request");
        self.control.handle(self.now, peer, Message::Quiesced { number }, None);
    }
}

#[test]
fn a_peer_that_is_lost_and_may_run_is_busy_after_a_grace() {
    let mut owner = Owner::new();
    owner.export(&[B, C]);
    owner.revoke();
    assert_eq!(owner.ends(), Ends::new());
    owner.answer(C);
    owner.lose(B);
    assert_eq!(owner.ends(), Ends::new(), "its threads may be in an operation");
    owner.pass(STOP_GRACE - Duration::from_millis(1));
    assert_eq!(owner.ends(), Ends::new(), "it may still stop");
    owner.pass(Duration::from_millis(1));
    assert_eq!(owner.ends(), [[B]]);
    owner.control.stopped(B);
    assert_eq!(owner.ends(), Ends::new(), "a revocation ends once");
    assert_eq!(owner.control.next_timeout(), None);
}

#[test]
fn the_grace_of_a_peer_that_has_stopped_does_not_hurry_others() {
    let mut owner = Owner::new();
    owner.export(&[B, C]);
    owner.revoke();
    assert_eq!(owner.ends(), Ends::new());
    owner.lose(B);
    assert_eq!(owner.ends(), Ends::new());
    owner.control.stopped(B);
    owner.pass(2 * STOP_GRACE);
    assert_eq!(owner.ends(), Ends::new(), "C is connected and answers late");
    owner.answer(C);
    assert_eq!(owner.ends(), [[]]);
    assert_eq!(owner.control.next_timeout(), None, "no timer is left");
}

#[test]
fn a_peer_that_lives_and_does_not_answer_is_busy_at_the_deadline() {
    let mut owner = Owner::with_timeout(Some(10 * STOP_GRACE));
    owner.export(&[B, C]);
    owner.revoke();
    assert_eq!(owner.ends(), Ends::new());
    owner.answer(C);
    owner.pass(10 * STOP_GRACE - Duration::from_millis(1));
    assert_eq!(owner.ends(), Ends::new(), "it may still answer");
    owner.pass(Duration::from_millis(1));
    assert_eq!(owner.ends(), [[B]]);
    owner.answer(B);
    assert_eq!(owner.ends(), Ends::new(), "a revocation ends once");
    assert_eq!(owner.control.next_timeout(), None);
}

#[test]
fn a_deadline_changes_no_grace() {
    let mut owner = Owner::with_timeout(Some(10 * STOP_GRACE));
    owner.export(&[B, C]);
    owner.revoke();
    assert_eq!(owner.ends(), Ends::new());
    owner.lose(B);
    assert_eq!(owner.ends(), Ends::new());
    owner.control.stopped(B);
    owner.pass(STOP_GRACE);
    assert_eq!(owner.ends(), Ends::new(), "B has stopped, and C has its whole time");
    owner.pass(8 * STOP_GRACE);
    assert_eq!(owner.ends(), Ends::new());
    owner.pass(STOP_GRACE);
    assert_eq!(owner.ends(), [[C]]);
    assert_eq!(owner.control.next_timeout(), None, "no timer is left");

    let mut owner = Owner::with_timeout(Some(10 * STOP_GRACE));
    owner.export(&[B]);
    owner.revoke();
    owner.lose(B);
    assert_eq!(owner.ends(), Ends::new());
    owner.pass(STOP_GRACE);
    assert_eq!(owner.ends(), [[B]], "a lost peer's grace is shorter");
    assert_eq!(owner.control.next_timeout(), None, "no timer is left");
}

#[test]
fn a_peer_that_is_lost_later_has_a_grace_of_its_own() {
    let mut owner = Owner::new();
    owner.export(&[B, C]);
    owner.revoke();
    assert_eq!(owner.ends(), Ends::new());
    owner.lose(B);
    assert_eq!(owner.ends(), Ends::new());
    owner.control.stopped(B);
    owner.pass(STOP_GRACE);
    assert_eq!(owner.ends(), Ends::new());
    owner.lose(C);
    assert_eq!(owner.ends(), Ends::new());
    owner.pass(STOP_GRACE);
    assert_eq!(owner.ends(), [[C]]);
}

#[test]
fn a_peer_that_has_stopped_is_quiet() {
    let mut owner = Owner::new();
    owner.export(&[B]);
    owner.revoke();
    owner.lose(B);
    assert_eq!(owner.ends(), Ends::new());
    owner.control.stopped(B);
    assert_eq!(owner.ends(), [[]]);
    assert_eq!(owner.control.next_timeout(), None, "no timer is left");
}

#[test]
fn a_region_that_a_lost_peer_imported_is_busy_also_if_it_is_revoked_later() {
    for has_stopped in [false, true] {
        let mut owner = Owner::new();
        owner.export(&[B]);
        owner.lose(B);
        if has_stopped {
            owner.control.stopped(B);
        }
        owner.pass(10 * STOP_GRACE);
        assert_eq!(owner.ends(), Ends::new());
        owner.revoke();
        let at_once = owner.ends();
        owner.pass(STOP_GRACE);
        let later = owner.ends();
        let expected = if has_stopped { (vec![vec![]], vec![]) } else { (vec![], vec![vec![B]]) };
        assert_eq!((at_once, later), expected, "stopped: {has_stopped}");
        assert_eq!(owner.asked, [], "it answers nothing");
    }
}

#[test]
fn a_peer_that_has_left_answers_or_stops() {
    for answers in [true, false] {
        let mut owner = Owner::new();
        owner.export(&[B]);
        owner.control.handle(owner.now, B, Message::Leave, None);
        owner.revoke();
        owner.pass(10 * STOP_GRACE);
        assert_eq!(owner.ends(), Ends::new(), "its threads may be in an operation");
        if answers {
            owner.answer(B);
            assert_eq!(owner.ends(), [[]]);
        } else {
            let reason = LossReason::Connection("its connection has ended".into());
            owner.control.disconnected(B, reason);
            assert_eq!(owner.ends(), Ends::new(), "its process may run");
            owner.control.stopped(B);
            assert_eq!(owner.ends(), [[]]);
        }
    }
}

#[test]
fn a_peer_that_leaves_meanwhile_is_asked_all_the_same() {
    let mut owner = Owner::new();
    owner.export(&[B]);
    owner.control.set_writable(B, false);
    owner.revoke();
    owner.control.handle(owner.now, B, Message::Leave, None);
    assert_eq!(owner.ends(), Ends::new());
    owner.control.set_writable(B, true);
    assert_eq!(owner.ends(), Ends::new());
    owner.answer(B);
    assert_eq!(owner.ends(), [[]]);
}

/// When the service thread of a host has failed, nothing watches its peers any more.
#[test]
fn revocations_of_a_host_that_has_closed_end_at_once_or_wait_for_its_own_threads() {
    let mut owner = Owner::new();
    owner.export(&[B, C]);
    owner.revoke();
    owner.export(&[A]);
    owner.revoke();
    assert_eq!(owner.ends(), Ends::new());
    owner.answer(C);
    let reason = LossReason::Connection("this host cannot watch it".into());
    owner.control.close(&reason);
    assert_eq!(owner.ends(), [[B]], "it may run");
    let epoch = owner.inhibited.pop().expect("an inhibition");
    owner.control.quiesced(epoch);
    assert_eq!(owner.ends(), [[]], "its own threads have quiesced");
    owner.export(&[A]);
    owner.revoke();
    assert_eq!(owner.ends(), Ends::new(), "its own threads may be in an operation");
    let epoch = owner.inhibited.pop().expect("an inhibition");
    owner.control.quiesced(epoch);
    assert_eq!(owner.ends(), [[]]);
}

#[test]
fn a_region_that_peers_had_imported_is_busy_at_once_when_the_host_has_closed() {
    let mut owner = Owner::new();
    owner.export(&[B]);
    owner.control.close(&LossReason::Connection("this host cannot watch it".into()));
    owner.revoke();
    assert_eq!(owner.ends(), [[B]]);
}
