//! The suites: every candidate that is measured, and with whom it shares its rounds.
//!
//! - [`work`]: what a critical section does, and what a thread does between two of them.
//! - [`locks`], [`channels`]: the classical ways to share one object between two threads.
//! - [`fibers`] with [`raw_fibers`]: stack switches of other crates.
//! - [`processes`] with [`ucx`] and [`iceoryx`]: requests between two processes.
//! - [`prototype`]: an earlier program for the same task, built from a folder and run beside.
//! - [`idle`]: threads that wait, and more threads than cores.

use std::rc::Rc;
use std::time::Duration;

use crate::harness::{Case, Placement, Suite, Unit};
use crate::roles::Role;

pub mod channels;
// `may` marks its spawning as unsafe.
#[allow(unsafe_code)]
pub mod fibers;
pub mod iceoryx;
pub mod idle;
pub mod locks;
pub mod processes;
pub mod prototype;
// `context` is unsafe to use.
#[allow(unsafe_code)]
pub mod raw_fibers;
pub mod ucx;
// An empty piece of assembly that hides a value from the compiler.
#[allow(unsafe_code)]
pub mod work;

use prototype::Prototype;
use work::{Counter, Lines, Section};

/// The roles that suites start this program in.
pub const ROLES: [Role; 2] = [iceoryx::SERVER, crate::load::HOG];

/// Think times of the `think-*` suites, in nanoseconds.
const THINK_NS: [u32; 3] = [50, 100, 300];

/// All suites, in the order of the report.
pub fn all(prototype: Option<Rc<Prototype>>) -> Vec<Suite> {
    let prototype = prototype.as_ref();
    let mut suites = vec![counter(prototype)];
    suites.extend(THINK_NS.map(think));
    suites.push(locality());
    suites.extend(prototype.map(symmetric));
    suites.push(uncontended());
    suites.extend(fibers::suites());
    suites.extend(processes::suites());
    suites.extend(idle::suites());
    suites
}

fn counter(prototype: Option<&Rc<Prototype>>) -> Suite {
    let about = "two threads and one counter; an operation is a fetch-and-add";
    let mut suite = Suite::new("counter", about, Placement::Pair);
    sharing::<Counter>(&mut suite, 0);
    suite.push(locks::fetch_add(0));
    for case in prototype.into_iter().flat_map(prototype::counter) {
        suite.push(case);
    }
    suite
}

fn think(ns: u32) -> Suite {
    let about = format!("as `counter`, with {ns} ns of private work between two operations");
    let mut suite = Suite::new(format!("think-{ns}"), about, Placement::Pair);
    sharing::<Counter>(&mut suite, ns);
    suite.push(locks::fetch_add(ns));
    suite.push(locks::nothing_shared(ns));
    suite
}

fn locality() -> Suite {
    let about = "two threads; an operation changes 8 random cache lines of a shared 64 KiB";
    let mut suite = Suite::new("locality", about, Placement::Pair);
    sharing::<Lines>(&mut suite, 0);
    suite
}

fn symmetric(prototype: &Rc<Prototype>) -> Suite {
    let about = "two threads that are client and trustee at once; an operation is a fetch-and-add";
    let mut suite = Suite::new("symmetric", about, Placement::Pair);
    prototype::symmetric(prototype).into_iter().for_each(|case| suite.push(case));
    suite
}

fn uncontended() -> Suite {
    let about = "one thread, one counter that nobody else wants; an operation is an addition";
    let mut suite = Suite::new("uncontended", about, Placement::Alone);
    suite.time = Duration::from_millis(50);
    suite.push(locks::uncontended::<std::sync::Mutex<Counter>>());
    suite.push(locks::uncontended::<parking_lot::Mutex<Counter>>());
    suite.push(Case::new("atomic/fetch_add", Unit::Nanoseconds, locks::uncontended_fetch_add));
    suite
}

/// Every lock and channel server around one `S`.
fn sharing<S: Section>(suite: &mut Suite, think_ns: u32) {
    locks::contended::<S>(think_ns).into_iter().for_each(|case| suite.push(case));
    suite.push(channels::server::<channels::Crossbeam<u64>, S>(think_ns));
    suite.push(channels::server::<channels::Flume<u64>, S>(think_ns));
}
