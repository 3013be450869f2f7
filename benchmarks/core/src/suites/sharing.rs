//! Two threads that share one object, or two.

use std::rc::Rc;
use std::time::Duration;

use bench_kit::harness::Limit::{AtLeast, AtMost};
use bench_kit::harness::{Bar, Case, Peer, Placement, Suite, Unit};
use bench_kit::product::share::{self, Choice, Delegated};
use bench_kit::product::single_thread;
use bench_kit::work::{Counter, Lines, Section};

use super::prototype::{self, Prototype};
use super::{channels, locks};

/// Think times of the `think-*` suites, in nanoseconds.
const THINK_NS: [u32; 3] = [50, 100, 300];

/// The suites `counter`, `think-*`, `locality`, `symmetric` and `uncontended`.
pub(crate) fn suites(prototype: Option<&Rc<Prototype>>) -> Vec<Suite> {
    let mut suites = vec![counter(prototype)];
    suites.extend(THINK_NS.map(think));
    suites.push(locality());
    suites.push(symmetric(prototype));
    suites.push(uncontended());
    suites
}

fn counter(prototype: Option<&Rc<Prototype>>) -> Suite {
    let about = "two threads and one counter; an operation is a fetch-and-add";
    let mut suite = Suite::new("counter", about, Placement::Pair);
    ordinary::<Counter>(&mut suite, 0);
    suite.push(locks::fetch_add(0));
    // Of the bars beside the best lock and beside the prototype, one must hold.
    let of_prototype = |case: Case, name: &str| match prototype {
        Some(_) => case.bar_near(Peer::case(name), Bar::ratio(AtLeast(0.85))),
        None => case,
    };
    let case = share::window::<Counter>(0).bar_near(best_lock(), Bar::ratio(AtLeast(2.0)));
    suite.push(of_prototype(case, "prototype/async, 64 outstanding"));
    let case = share::waiting::<Counter>(single_thread::FIBERS, 0)
        .bar_near(Peer::case("lock/mcs"), Bar::ratio(AtLeast(5.0)))
        .bar_near(Peer::case("lock/ticket"), Bar::ratio(AtLeast(2.0)))
        .bar_near(Peer::case("lock/std Mutex"), Bar::ratio(AtLeast(1.5)));
    suite.push(of_prototype(case, "prototype/64 fibers"));
    let case = share::waiting::<Counter>(1, 0);
    suite.push(match prototype {
        Some(_) => case.beside(Peer::case("prototype/1 fiber")),
        None => case,
    });
    prototype.into_iter().flat_map(prototype::counter).for_each(|case| suite.push(case));
    suite
}

fn best_lock() -> Peer {
    Peer::best("lock/")
}

fn think(ns: u32) -> Suite {
    let about = format!(
        "as `counter`, with {ns} ns of private work between two operations (of a client: a trustee \
         that only serves does none)"
    );
    let mut suite = Suite::new(format!("think-{ns}"), about, Placement::Pair);
    ordinary::<Counter>(&mut suite, ns);
    suite.push(locks::fetch_add(ns));
    suite.push(locks::nothing_shared(ns));
    delegated::<Counter>(&mut suite, ns);
    suite
}

fn locality() -> Suite {
    let about = "two threads; an operation changes 8 random cache lines of a shared 64 KiB";
    let mut suite = Suite::new("locality", about, Placement::Pair);
    ordinary::<Lines>(&mut suite, 0);
    delegated::<Lines>(&mut suite, 0);
    suite
}

fn symmetric(prototype: Option<&Rc<Prototype>>) -> Suite {
    let about = "two threads that are client and trustee at once; an operation is a fetch-and-add";
    let mut suite = Suite::new("symmetric", about, Placement::Pair);
    // Without the prototype's figure only the value can tell.
    let bar = Bar::ratio(AtLeast(0.9)).or_value(AtLeast(150.0));
    let peer = || Peer::case("prototype/two counters, half own");
    suite.push(share::two_counters(Choice::PrototypeSeeds).bar_near(peer(), bar));
    // A harder load than the prototype's: nothing predicts these choices.
    suite.push(share::two_counters(Choice::Random).bar_near(peer(), bar));
    let peer = Peer::case("prototype/two counters, all remote");
    suite.push(share::two_counters(Choice::Remote).beside(peer));
    let peer = Peer::case("prototype/one counter, owner inline");
    suite.push(share::owner_works_too::<Counter>(0).beside(peer));
    prototype.into_iter().flat_map(prototype::symmetric).for_each(|case| suite.push(case));
    suite
}

fn uncontended() -> Suite {
    let about = "one thread, one counter that is uncontended; an operation is an addition";
    let mut suite = Suite::new("uncontended", about, Placement::SingleThread);
    suite.time = Duration::from_millis(50);
    suite.push(locks::uncontended::<std::sync::Mutex<Counter>>());
    suite.push(locks::uncontended::<parking_lot::Mutex<Counter>>());
    suite.push(Case::new("atomic/fetch_add", Unit::Nanoseconds, locks::uncontended_fetch_add));
    let case = single_thread::own_counter();
    suite.push(case.bar(Peer::case("lock/parking_lot"), Bar::ratio(AtMost(2.0))));
    suite
}

/// Every lock and channel server around one `S`.
fn ordinary<S: Section>(suite: &mut Suite, think_ns: u32) {
    locks::contended::<S>(think_ns).into_iter().for_each(|case| suite.push(case));
    suite.push(channels::server::<channels::Crossbeam<u64>, S>(think_ns));
    suite.push(channels::server::<channels::Flume<u64>, S>(think_ns));
}

/// Every way to delegate one `S`, beside the best of the locks.
fn delegated<S: Delegated>(suite: &mut Suite, think_ns: u32) {
    suite.push(share::window::<S>(think_ns).beside(best_lock()));
    suite.push(share::waiting::<S>(single_thread::FIBERS, think_ns).beside(best_lock()));
    suite.push(share::waiting::<S>(1, think_ns).beside(best_lock()));
    suite.push(share::owner_works_too::<S>(think_ns).beside(best_lock()));
}
