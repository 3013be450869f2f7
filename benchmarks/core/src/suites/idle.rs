//! Threads that wait, and more threads than cores.

use std::rc::Rc;
use std::time::Duration;

use bench_kit::harness::Limit::{AtLeast, AtMost};
use bench_kit::harness::{Bar, Case, Peer, Placement, Suite};
use bench_kit::load::reference::{BlockingThreads, YieldingThreads};
use bench_kit::load::{Setting, Subject, idle_share, lone_request, storm};
use bench_kit::product::idle::{Adaptive, YieldOnly};

/// Threads of the oversubscribed settings, on two cores.
const MANY: [usize; 2] = [4, 8];

/// The suites `idle`, `lone-request` and `storm`.
pub(crate) fn suites() -> Vec<Suite> {
    let mut idle = Suite::new("idle", "CPU of this process, nothing to do for 2 s", FREE);
    let about = "median latency of a request to threads that have come to rest";
    let mut lone = Suite::new("lone-request", about, FREE);
    let about = "answered requests, all threads busy, more threads than cores";
    let mut storms = Suite::new("storm", about, FREE);
    // Long enough for every thread to have its turns.
    storms.time = Duration::from_millis(500);
    let peers: [Rc<dyn Subject>; 3] =
        [Rc::new(BlockingThreads), Rc::new(YieldingThreads), Rc::new(YieldOnly)];
    for peer in &peers {
        idle.push(idle_share(peer.clone(), MANY[0]));
        for setting in settings() {
            lone.push(lone_request(peer.clone(), setting));
            storms.push(storm(peer.clone(), setting));
        }
    }
    let ours: Rc<dyn Subject> = Rc::new(Adaptive);
    idle.push(idle_share(ours.clone(), MANY[0]).bar_value(Bar::value(AtMost(1.0))));
    for setting in settings() {
        let case = lone_request(ours.clone(), setting);
        lone.push(case.bar_value(Bar::value(AtMost(50.0))));
        let yielding: Case = storm(Rc::new(YieldOnly), setting);
        let peer = Peer::case(yielding.name());
        storms.push(storm(ours.clone(), setting).bar(peer, Bar::ratio(AtLeast(0.5))));
    }
    vec![idle, lone, storms]
}

const FREE: Placement = Placement::Unpinned;

/// More threads than cores, and one beside a hog.
fn settings() -> impl Iterator<Item = Setting> {
    MANY.map(Setting::free).into_iter().chain([Setting::beside_hog()])
}
