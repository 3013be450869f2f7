//! One request, without a second thread: by the clock, counted exactly, alone in its batch, and the
//! polls that find none.

use std::rc::Rc;
use std::time::Duration;

use bench_kit::count::Phase;
use bench_kit::harness::Limit::AtMost;
use bench_kit::harness::{Bar, Case, Peer, Placement, Suite, Unit};
use bench_kit::product::lone_call::{self, COUNTED_CALLS, Call, LONE_CALL};
use bench_kit::product::poll;
use bench_kit::product::single_thread::{self, BATCH, COUNTED_BATCHES, Counts, Stage};

use super::prototype::{self, Prototype};

/// The suites `one-request`, `one-request-exact`, `lone-call`, `lone-call-exact` and `poll`.
pub(crate) fn suites(prototype: Option<&Rc<Prototype>>) -> Vec<Suite> {
    vec![by_the_clock(prototype), exactly(), lone_calls(), lone_calls_exactly(), polls()]
}

fn by_the_clock(prototype: Option<&Rc<Prototype>>) -> Suite {
    let about = "client and trustee in turn on one thread, full batches; an operation is one \
                 fetch-and-add by `apply_then`";
    let mut suite = Suite::new("one-request", about, Placement::SingleThread);
    suite.push(single_thread::timed("gossamer/enqueue (client)", Some(Stage::Enqueue)));
    let serve = single_thread::timed("gossamer/serve (trustee)", Some(Stage::Serve));
    suite.push(serve.bar_value(Bar::value(AtMost(4.0))));
    suite.push(single_thread::timed("gossamer/reap (client)", Some(Stage::Reap)));
    let all = single_thread::timed("gossamer/all", None);
    suite.push(all.bar_value(Bar::value(AtMost(60.0))));
    let fibers = single_thread::with_fibers();
    match prototype {
        Some(prototype) => {
            let peer = prototype::one_thread(prototype);
            suite.push(fibers.beside(Peer::case(peer.name())));
            suite.push(peer);
        }
        None => suite.push(fibers),
    }
    suite
}

/// Something that a phase counts.
type CountOf = fn(&Phase) -> u64;

fn exactly() -> Suite {
    let about =
        "as `one-request`, stepped through; per request, or per batch of 42 where it says so";
    let mut suite = Suite::new("one-request-exact", about, Placement::Unpinned);
    let counts = Counts::of(&single_thread::ONE_REQUEST);
    let requests = (COUNTED_BATCHES * BATCH) as f64;
    for (at, phase) in single_thread::ONE_REQUEST.phases.iter().enumerate() {
        suite.push(counts.case(format!("gossamer/{phase}"), Unit::Instructions, move |phases| {
            phases[at].instructions as f64 / requests
        }));
    }
    let all = |what: CountOf| move |phases: &[Phase]| phases.iter().map(what).sum::<u64>() as f64;
    let instructions = all(|phase| phase.instructions);
    suite.push(
        counts.case("gossamer/all", Unit::Instructions, move |phases| {
            instructions(phases) / requests
        }),
    );
    let none: [(&str, CountOf); 3] = [
        ("locked instructions", |phase| phase.locked),
        ("system calls", |phase| phase.syscalls),
        ("allocations and frees", |phase| phase.allocations + phase.frees),
    ];
    for (name, what) in none {
        let sum = all(what);
        let case = move |phases: &[Phase]| sum(phases) / requests;
        let case = counts.case(format!("gossamer/{name}"), Unit::Times, case);
        suite.push(case.bar_value(Bar::value(AtMost(0.0))));
    }
    let fences = all(|phase| phase.fences);
    suite.push(counts.case("gossamer/full fences a batch", Unit::Times, move |phases| {
        fences(phases) / COUNTED_BATCHES as f64
    }));
    suite
}

const APPLY: &str = "gossamer/apply";

/// A launch that need not wait, beside the call that may not.
fn lone_calls() -> Suite {
    let about = "client and trustee in turn on one thread; an operation is the call of a fiber that \
                 waits for it, alone in its batch";
    let mut suite = Suite::new("lone-call", about, Placement::SingleThread);
    suite.push(lone_call::timed(APPLY, Call::Apply));
    let launch = lone_call::timed("gossamer/launch", Call::Launch);
    suite.push(launch.bar(Peer::case(APPLY), Bar::ratio(AtMost(2.0))));
    suite
}

fn lone_calls_exactly() -> Suite {
    let about = "as `lone-call`, stepped through";
    let mut suite = Suite::new("lone-call-exact", about, Placement::Unpinned);
    let counts = Counts::of(&LONE_CALL);
    let case = |at: usize, name: &str| {
        counts.case(name, Unit::Instructions, move |phases| {
            phases[at].instructions as f64 / COUNTED_CALLS as f64
        })
    };
    suite.push(case(0, APPLY));
    suite.push(case(1, "gossamer/launch").bar(Peer::case(APPLY), Bar::ratio(AtMost(2.0))));
    suite
}

fn polls() -> Suite {
    let about = "a trustee none of whose clients asks anything; an operation is one poll";
    let mut suite = Suite::new("poll", about, Placement::SingleThread);
    suite.time = Duration::from_millis(50);
    let case = |hosts, threads, most| {
        let case: Case = poll::idle_clients(hosts, threads);
        case.bar_value(Bar::value(AtMost(most)))
    };
    suite.push(case(1, 64, 50.0));
    suite.push(case(4, 256, 150.0));
    suite
}
