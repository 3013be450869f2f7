//! The suites: every candidate that is measured, and with whom it shares its rounds.
//!
//! - [`work`]: what a critical section does, and what a thread does between two of them.
//! - [`sharing`]: two threads and one object or two, with [`locks`] and [`channels`], the classical
//!   ways to share it.
//! - [`request`]: one request on one thread, by the clock and counted exactly; polls of idle
//!   clients.
//! - [`fibers`] with [`raw_fibers`]: stack switches of other crates.
//! - [`processes`] with [`ucx`] and [`iceoryx`]: requests between two processes.
//! - [`idle`]: threads that wait, and more threads than cores.
//! - [`kv`]: the key-value store beside stores with locks.
//! - [`prototype`]: an earlier program for the same task, built from a folder and run beside.

use std::path::PathBuf;
use std::rc::Rc;

use crate::count::Workload;
use crate::harness::Suite;
use crate::product::{alone, two};
use crate::roles::Role;

pub mod channels;
// `may` marks its spawning as unsafe.
#[allow(unsafe_code)]
pub mod fibers;
pub mod iceoryx;
pub mod idle;
pub mod kv;
pub mod locks;
pub mod processes;
pub mod prototype;
// `context` is unsafe to use.
#[allow(unsafe_code)]
pub mod raw_fibers;
pub mod request;
pub mod sharing;
pub mod ucx;
// An empty piece of assembly that hides a value from the compiler.
#[allow(unsafe_code)]
pub mod work;

use prototype::Prototype;

/// The roles that suites start this program in.
pub const ROLES: [Role; 3] = [iceoryx::SERVER, crate::load::HOG, two::PAIR];

/// What suites have this program step through.
pub const WORKLOADS: [Workload; 1] = [alone::ONE_REQUEST];

/// Programs that some cases need and that are not built with this one.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// An earlier program for the same task.
    pub prototype: Option<Rc<Prototype>>,
    /// The key-value store's program.
    pub kv: Option<PathBuf>,
}

/// All suites, in the order of the report.
pub fn all(programs: &Programs) -> Vec<Suite> {
    let prototype = programs.prototype.as_ref();
    let mut suites = sharing::suites(prototype);
    suites.extend(request::suites(prototype));
    suites.extend(fibers::suites());
    suites.extend(processes::suites());
    suites.extend(idle::suites());
    suites.push(kv::suite(programs.kv.clone()));
    suites
}
