//! Which threads are woken when, on devices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use transport_api::{Event, HostId, Lane, Parker, ThreadId, Transport};

use crate::{RdmaTransport, common};

/// Within this, everything must happen.
const SOON: Duration = Duration::from_secs(20);

const SLEEPER: ThreadId = ThreadId { host: HostId(1), thread: 0 };

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < SOON, "{what}");
    }
}

/// Two hosts, a lane of the first to the other, and the parker of the other's thread.
type Pair = (Vec<Arc<RdmaTransport>>, Box<dyn Lane>, Box<dyn Parker>);

fn pair() -> Pair {
    let hosts = common::hosts(2, 1);
    let (lane, parker) = (hosts[0].lane(0, SLEEPER.host), hosts[1].parker(0));
    (hosts, lane.expect("a lane"), parker.expect("a parker"))
}

fn unwoken(host: &RdmaTransport) -> Vec<ThreadId> {
    host.host().thread_state(0).connections().unwoken.clone()
}

/// Has the thread sleep, and does `meanwhile` until it has woken.
fn asleep(parker: &mut dyn Parker, mut meanwhile: impl FnMut()) {
    let has_woken = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            parker.park(10 * SOON, &mut || false);
            has_woken.store(true, Ordering::Release);
        });
        until("it sleeps on", || {
            meanwhile();
            has_woken.load(Ordering::Acquire)
        });
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn an_awake_thread_is_woken_as_soon_as_it_sleeps() {
    let (hosts, mut lane, mut parker) = pair();
    lane.wake(0);
    lane.wake(0);
    lane.flush().expect("a flush");
    lane.poll(&mut |_| ());
    assert_eq!(unwoken(&hosts[0]), [SLEEPER], "it was awake");
    asleep(&mut *parker, || {
        lane.poll(&mut |_| ());
    });
    assert_eq!(unwoken(&hosts[0]), []);
    // It is also woken for a writer that does not poll.
    let host = hosts[0].host();
    until("its flag is not cleared", || !host.sleep_flags.is_asleep(SLEEPER));
    lane.wake(0);
    assert_eq!(unwoken(&hosts[0]), [SLEEPER]);
    asleep(&mut *parker, || thread::sleep(Duration::from_millis(1)));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn a_sleeping_thread_is_woken_at_once_and_clears_its_flag() {
    let (hosts, mut lane, mut parker) = pair();
    let host = hosts[0].host();
    let mut is_woken = false;
    asleep(&mut *parker, || {
        if !is_woken && host.sleep_flags.is_asleep(SLEEPER) {
            is_woken = true;
            lane.wake(0);
            assert_eq!(unwoken(&hosts[0]), []);
        }
    });
    until("its flag is not cleared", || !host.sleep_flags.is_asleep(SLEEPER));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn a_poll_of_any_lane_checks_sleep_flags() {
    let hosts = common::hosts(3, 1);
    let mut lane = hosts[0].lane(0, SLEEPER.host).expect("a lane");
    let mut other = hosts[0].lane(0, HostId(2)).expect("a lane");
    let mut parker = hosts[1].parker(0).expect("a parker");
    lane.wake(0);
    assert_eq!(unwoken(&hosts[0]), [SLEEPER]);
    hosts[2].sever();
    let mut is_over = false;
    until("the loss is not reported", || {
        other.poll(&mut |event| is_over |= matches!(event, Event::Peer(_)));
        is_over
    });
    asleep(&mut *parker, || {
        other.poll(&mut |_| ());
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn a_thread_that_goes_to_sleep_has_woken_all() {
    let (hosts, mut lane, _) = pair();
    let mut own = hosts[0].parker(0).expect("a parker");
    lane.wake(0);
    assert_eq!(unwoken(&hosts[0]), [SLEEPER]);
    own.park(Duration::ZERO, &mut || false);
    assert_eq!(unwoken(&hosts[0]), []);
    let target = hosts[1].host();
    until("the other is not woken", || {
        target.progress(SLEEPER.thread);
        target.thread_state(SLEEPER.thread).connections().was_concerned()
    });
}
