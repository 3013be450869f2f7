//! The rack of a round, which does the work that the plan says and checks itself: `requests`
//! (delegation) or `segments` (named remote memory). `ledger` has what both record.
//!
//! It reports to its parent on standard output, one line each:
//!
//! ```text
//!   host 1 pid 4711          the process id of a host
//!   running                  the work begins
//!   lost 1                   a process has detected the loss of host 1
//!   violation: ..            a violated expectation
//!   checked lost=1 operations=5432
//!   ended                    `Rack::run` has returned
//! ```

mod ledger;
mod requests;
mod segments;

use std::process::ExitCode;

use gossamer::{OnPeerLoss, Rack, Trustee, spawn_on};

use crate::{Plan, Workload, procfs};

/// Runs one process of the rack of a round.
pub fn run_rack(plan: &Plan) -> ExitCode {
    let inherited = procfs::surplus_descriptors();
    if !inherited.is_empty() {
        println!("violation: the process inherited descriptors {inherited:?}");
    }
    let rack = Rack::new().hosts(Plan::HOSTS).threads(Plan::THREADS);
    let (seed, workload) = (plan.seed, plan.workload);
    let ends = plan.on_peer_loss == OnPeerLoss::EndRack;
    match rack.on_peer_loss(plan.on_peer_loss).run(move || lead(seed, ends, workload)) {
        Ok(()) => {
            let leaked = procfs::own_memory_files();
            if !leaked.is_empty() {
                println!("violation: memory files are still open after the rack ended: {leaked:?}");
            }
            println!("ended");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("chaos: {error:?}");
            ExitCode::FAILURE
        }
    }
}

/// The main function of the rack, on host 0: runs the work and reports what all threads found.
fn lead(seed: u64, ends: bool, workload: Workload) {
    let trustees: Vec<_> = gossamer::threads().collect();
    for first in first_threads(&trustees) {
        match spawn_on(first, std::process::id).join() {
            Ok(pid) => println!("host {} pid {pid}", first.thread().host.0),
            Err(error) => eprintln!("chaos: {error}"),
        }
    }
    let ledger = match workload {
        Workload::Requests => requests::lead(seed, ends, &trustees),
        Workload::Segments { .. } => segments::lead(seed, ends, &trustees),
    };
    for violation in &ledger.violations {
        println!("violation: {violation}");
    }
    let lost: Vec<_> = ledger.lost.iter().map(u32::to_string).collect();
    println!("checked lost={} operations={}", lost.join(","), ledger.operations);
}

/// The first thread of each host.
fn first_threads(trustees: &[Trustee]) -> impl Iterator<Item = Trustee> {
    trustees.iter().copied().filter(|trustee| trustee.thread().thread == 0)
}
