//! [`Ledger`]: what fibers, threads and the whole rack have done, and what they found wrong.

use std::collections::BTreeSet;

use gossamer::DelegateError;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The completed operations of a fiber, a thread or the whole rack.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Ledger {
    /// The confirmed payments into each account.
    pub(super) account: Vec<u64>,
    /// The confirmed payments into each vault.
    pub(super) vault: Vec<u64>,
    /// Hosts reported as lost by failed operations.
    pub(super) lost: BTreeSet<u32>,
    pub(super) operations: u64,
    pub(super) violations: Vec<String>,
}

impl Ledger {
    /// The ledger of a rack with so many properties of each kind.
    pub(super) fn new(properties: usize) -> Self {
        Ledger { account: vec![0; properties], vault: vec![0; properties], ..Ledger::default() }
    }

    pub(super) fn add(&mut self, other: Ledger) {
        self.account.iter_mut().zip(other.account).for_each(|(sum, more)| *sum += more);
        self.vault.iter_mut().zip(other.vault).for_each(|(sum, more)| *sum += more);
        self.lost.extend(other.lost);
        self.operations += other.operations;
        self.violations.extend(other.violations);
    }

    /// Records the outcome of a request to a thread of `host` and returns its result, if any.
    pub(super) fn ended<U>(&mut self, host: u32, result: Result<U, DelegateError>) -> Option<U> {
        match result {
            Ok(value) => {
                self.operations += 1;
                return Some(value);
            }
            Err(DelegateError::PeerLost { host: lost, .. }) if lost.0 == host => self.lose(host),
            // The rack ended while the fiber ran.
            Err(DelegateError::NoRack(_)) => {}
            Err(error) => {
                self.violations.push(format!("a request to host {host} failed: {error:?}"))
            }
        }
        None
    }

    /// An operation has failed because `host` is lost.
    pub(super) fn lose(&mut self, host: u32) {
        report_lost(host);
        self.lost.insert(host);
    }

    pub(super) fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(what());
        }
    }
}

/// Prints that a host is lost, once per process.
fn report_lost(host: u32) {
    static REPORTED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
    if REPORTED.lock().insert(host) {
        println!("lost {host}");
    }
}
