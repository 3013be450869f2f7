//! The suites: every candidate that is measured, and with whom it shares its rounds.
//!
//! - [`sharing`]: two threads and one object or two, with [`locks`] and [`channels`], the classical
//!   ways to share it.
//! - [`word_count`]: two threads that count words in one map.
//! - [`request`]: one request on one thread, by the clock and counted exactly; polls of idle
//!   clients.
//! - [`fibers`] with [`raw_fibers`]: stack switches of other crates.
//! - [`processes`] with [`iceoryx`]: requests between two processes.
//! - [`segment`]: segments of another process.
//! - [`jam`]: code that travels to another process.
//! - [`idle`]: threads that wait, and more threads than cores.
//! - [`kv`]: the key-value store beside stores with locks; [`get`]: values of another process.
//! - [`memcached`]: `kv serve` beside memcached.
//! - [`prototype`]: an earlier program for the same task, built from a folder and run beside.

use std::path::PathBuf;
use std::rc::Rc;

use bench_kit::count::Workload;
use bench_kit::harness::{Placement, Suite};
use bench_kit::product::{get, lone_call, single_thread, two_process};
use bench_kit::roles::Role;

mod channels;
// `may` marks its spawning as unsafe.
#[allow(unsafe_code)]
mod fibers;
mod iceoryx;
mod idle;
mod jam;
mod kv;
pub(crate) mod locks;
mod memcached;
mod processes;
pub(crate) mod prototype;
// `context` is unsafe to use.
#[allow(unsafe_code)]
mod raw_fibers;
mod request;
mod segment;
mod sharing;
mod word_count;

use prototype::Prototype;

/// The roles that suites start this program in.
pub(crate) const ROLES: [Role; 7] = [
    iceoryx::SERVER,
    crate::fadd::delegated::ROLE,
    bench_kit::load::HOG,
    bench_kit::load::STRESS,
    two_process::PAIR,
    bench_kit::product::segment::shm::HOST,
    bench_kit::eventfd::SLEEPER,
];

/// What suites have this program step through.
pub(crate) const WORKLOADS: [Workload; 2] = [single_thread::ONE_REQUEST, lone_call::LONE_CALL];

/// Programs that some cases need and that are not built with this one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    /// An earlier program for the same task.
    pub prototype: Option<Rc<Prototype>>,
    /// The key-value store's program.
    pub kv: Option<PathBuf>,
}

/// All suites, in the order of the report.
pub(crate) fn all(programs: &Programs) -> Vec<Suite> {
    let prototype = programs.prototype.as_ref();
    let mut suites = sharing::suites(prototype);
    suites.push(word_count::suite());
    suites.extend(request::suites(prototype));
    suites.extend(fibers::suites());
    suites.extend(processes::suites());
    suites.extend(segment::suites());
    suites.extend(jam::suites());
    suites.extend(idle::suites());
    suites.push(kv::suite(programs.kv.clone()));
    suites.push(memcached::suite(programs.kv.clone()));
    let kv = (programs.kv.clone(), true);
    suites.push(get::suite("get-shm", Placement::Pair, kv, two_process::gets_per_second));
    suites
}
