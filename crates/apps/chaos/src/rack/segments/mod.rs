//! Work on segments: every thread exports a segment, revokes it and exports it again, again and
//! again, while fibers and plain threads of all hosts open, read and write those of all others.
//!
//! | Expectation | Checked by |
//! |---|---|
//! | no word and no record is torn | `pattern`: each word shows whether it is whole; owners and importers look |
//! | nothing is written once a revocation has returned | `owner` watches the memory |
//! | what was written and fenced can be read; counters never go back | `importer` |
//! | generations rise; an opened segment is of the generation that it says | both |
//! | lookups and operations end in a value or an error that fits | both |
//! | no name is left | [`lead`], at the end |
//!
//! Violations are printed where they are found, since the leader may be the process that is killed.

mod importer;
mod owner;
mod pattern;

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use gossamer::{
    HostId, JoinError, JoinHandle, SegmentError, Segments, Trustee, local_trustee, spawn,
    spawn_on_with,
};
use parking_lot::Mutex;

use self::importer::Importer;
use super::first_threads;
use super::ledger::Ledger;
use crate::Plan;

/// Importing fibers per thread.
const IMPORTERS: u32 = 2;

/// A name that every host exports now and then.
const SHARED: &str = "chaos/shared";

/// The name that a thread exports.
fn name_of(thread: u32) -> String {
    format!("chaos/{thread}")
}

/// On host 0: runs the work on all threads, then checks that every name is gone.
pub(super) fn lead(seed: u64, ends: bool, trustees: &[Trustee]) -> Ledger {
    println!("running");
    let workers: Vec<_> = trustees
        .iter()
        .map(|trustee| {
            let arguments = (seed, trustee.number());
            spawn_on_with(*trustee, |(seed, me): (u64, u32)| run_thread(seed, me), arguments)
        })
        .collect();
    let mut ledger = collect(trustees.iter().copied().zip(workers));
    let checks: Vec<_> = first_threads(trustees)
        .map(|first| (first, spawn_on_with(first, |()| check_names(), ())))
        .collect();
    ledger.add(collect(checks));
    if ends {
        // A rack that ends because of a loss may do so under the operations of its fibers.
        ledger.violations.clear();
    }
    ledger
}

/// The sum of what threads report.
fn collect(workers: impl IntoIterator<Item = (Trustee, JoinHandle<Ledger>)>) -> Ledger {
    let mut sum = Ledger::default();
    for (trustee, worker) in workers {
        let host = trustee.thread().host.0;
        match worker.join() {
            Ok(ledger) => sum.add(ledger),
            // Its host is lost, which must be the one that was killed.
            Err(_) => drop(sum.lost.insert(host)),
        }
    }
    sum
}

/// The work of one thread, by fibers on any thread of its host; returns the sum of their ledgers.
fn run_thread(seed: u64, me: u32) -> Ledger {
    let end = Instant::now() + Plan::WORK;
    let segments = gossamer::segments();
    let rng = |fiber: u32| Rng::with_seed(seed.wrapping_mul(1000) + u64::from(me * 10 + fiber));
    let importer = |number: u32| {
        let is_plain = number == IMPORTERS;
        Importer::new(rng(number), segments.clone(), me * (IMPORTERS + 1) + number, is_plain)
    };
    let mut fibers = vec![spawn({
        let (rng, segments) = (rng(8), segments.clone());
        move || owner::run(rng, &segments, me, end)
    })];
    for number in 0..IMPORTERS {
        let importer = importer(number);
        fibers.push(spawn(move || importer.run(end)));
    }
    let is_first = local_trustee().trustee().thread().thread == 0;
    let plain = is_first.then(|| {
        let (rng, segments) = (rng(9), segments.clone());
        fibers.push(spawn(move || owner::run_shared(rng, &segments, end)));
        let importer = importer(IMPORTERS);
        thread::spawn(move || importer.run(end))
    });
    let mut sum = Ledger::default();
    for fiber in fibers {
        match fiber.join() {
            Ok(ledger) => sum.add(ledger),
            // The rack ended while the fiber ran.
            Err(JoinError::Cancelled) => {}
            Err(error) => violation(format!("a fiber of thread {me} failed: {error}")),
        }
    }
    if let Some(plain) = plain {
        while !plain.is_finished() {
            gossamer::sleep(Duration::from_millis(1));
        }
        match plain.join() {
            Ok(ledger) => sum.add(ledger),
            Err(_) => violation(format!("the plain thread beside thread {me} panicked")),
        }
    }
    sum
}

/// Once nothing is exported any more, no host finds a name.
fn check_names() -> Ledger {
    let (mut ledger, segments) = (Ledger::default(), gossamer::segments());
    let lookup = |segments: &Segments, host: HostId, name: &str| {
        segments.options().host(host).uncached().open(name)
    };
    for thread in 0..Plan::HOSTS * Plan::THREADS {
        let host = HostId(thread / Plan::THREADS);
        for name in [name_of(thread), SHARED.to_owned()] {
            match lookup(&segments, host, &name) {
                Err(SegmentError::NotFound { .. }) => ledger.operations += 1,
                Err(SegmentError::PeerLost(lost, _)) if lost == host => ledger.lose(host.0),
                Err(SegmentError::RackEnded | SegmentError::NotAttached) => {
                    ledger.violations.push(format!("cannot look up {name}: the rack has ended"));
                }
                other => violation(format!("{name} of {host} is not gone: {other:?}")),
            }
        }
    }
    ledger
}

/// Reports a violated expectation: the first of each process, and those that differ from it.
fn violation(what: String) {
    const MOST: usize = 8;
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut reported = REPORTED.lock();
    if reported.len() < MOST && reported.insert(what.clone()) {
        println!("violation: {what}");
    }
}

/// Reports a violated expectation unless `holds`.
fn expect(holds: bool, what: impl FnOnce() -> String) {
    if !holds {
        violation(what());
    }
}
