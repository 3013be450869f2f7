//! Threads that wait, and more threads than cores.

use std::rc::Rc;

use crate::harness::{Case, Placement, Suite};
use crate::load::reference::{Sleepers, Yielders};
use crate::load::{Setting, Subject, idle_share, lone_request, storm};

/// Threads of the oversubscribed settings, on two cores.
const MANY: [usize; 2] = [4, 8];

/// The suites `idle`, `lone-request` and `storm`.
pub fn suites() -> Vec<Suite> {
    let subjects: [Rc<dyn Subject>; 2] = [Rc::new(Sleepers), Rc::new(Yielders)];
    let mut idle = Suite::new("idle", "CPU of this process, nothing to do for 2 s", FREE);
    let about = "median latency of a request to threads that have come to rest";
    let mut lone = Suite::new("lone-request", about, FREE);
    let about = "answered requests, all threads busy, more threads than cores";
    let mut storms = Suite::new("storm", about, FREE);
    for subject in &subjects {
        idle.push(idle_share(subject.clone(), MANY[0]));
        every(subject, lone_request).for_each(|case| lone.push(case));
        every(subject, storm).for_each(|case| storms.push(case));
    }
    vec![idle, lone, storms]
}

const FREE: Placement = Placement::Free;

/// `make` for each setting with more threads than cores, and beside a hog.
fn every(
    subject: &Rc<dyn Subject>,
    make: fn(Rc<dyn Subject>, Setting) -> Case,
) -> impl Iterator<Item = Case> {
    let settings = MANY.map(Setting::free).into_iter().chain([Setting::beside_hog()]);
    let subject = subject.clone();
    settings.map(move |setting| make(subject.clone(), setting))
}
