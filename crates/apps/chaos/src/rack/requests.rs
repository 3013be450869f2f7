//! Work by delegation: every thread sends every kind of request to all properties and keeps a ledger,
//! which must match the properties at the end.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use fastrand::Rng;
use gossamer::{JoinError, Latch, Trust, Trustee, local_trustee, spawn, spawn_on_with, yield_now};
use serde::{Deserialize, Serialize};

use super::ledger::Ledger;
use crate::Plan;

/// Fibers per thread.
const FIBERS: usize = 4;
/// Size of a payload that exceeds a slot.
const BULK_BYTES: usize = 40_000;

/// A property that all threads use.
struct Account {
    /// The sum that each thread has paid in.
    paid: Vec<u64>,
    /// A trust to a property of another thread, dropped when it is replaced.
    held: Option<Trust<u64>>,
}

impl Account {
    fn new(threads: usize) -> Self {
        Account { paid: vec![0; threads], held: None }
    }
}

/// The properties of one thread.
#[derive(Clone, Serialize, Deserialize)]
struct Bank {
    trustee: Trustee,
    account: Trust<Account>,
    vault: Trust<Latch<Account>>,
}

/// On host 0: runs the work on all threads and compares their ledgers with the properties.
pub(super) fn lead(seed: u64, ends: bool, trustees: &[Trustee]) -> Ledger {
    let threads = trustees.len();
    let banks: Vec<_> = trustees
        .iter()
        .map(|trustee| Bank {
            trustee: *trustee,
            account: trustee.entrust_with(Account::new, threads),
            vault: trustee.entrust_with(|threads| Latch::new(Account::new(threads)), threads),
        })
        .collect();
    println!("running");
    let workers: Vec<_> = trustees
        .iter()
        .map(|trustee| {
            let arguments = (seed, trustee.number() as usize, banks.clone());
            spawn_on_with(*trustee, |(seed, me, banks)| run_thread(seed, me, banks), arguments)
        })
        .collect();
    let mut ledger = Ledger::new(threads);
    let mut reports = Vec::new();
    for (trustee, worker) in trustees.iter().zip(workers) {
        match worker.join() {
            Ok(report) => reports.push((trustee.number() as usize, report)),
            Err(_) => drop(ledger.lost.insert(trustee.thread().host.0)),
        }
    }
    // If a rack ends because of a loss, some requests may stay unconfirmed.
    if !ends || ledger.lost.is_empty() {
        for bank in &banks {
            compare(bank, &reports, &mut ledger);
        }
    }
    drop(banks);
    for (_, report) in reports {
        ledger.add(report);
    }
    ledger
}

/// Compares the sums in a bank with the ledgers of the threads.
fn compare(bank: &Bank, reports: &[(usize, Ledger)], ledger: &mut Ledger) {
    let host = bank.trustee.thread().host.0;
    let at = bank.trustee.number() as usize;
    let account = ledger.ended(host, bank.account.try_apply(|account| account.paid.clone()));
    let vault = bank.vault.try_launch_with(|vault, ()| vault.paid.clone(), ());
    let vault = ledger.ended(host, vault);
    let (Some(account), Some(vault)) = (account, vault) else { return };
    for (thread, report) in reports {
        let (actual, expected) = (account[*thread], report.account[at]);
        ledger.expect(actual == expected, || {
            format!("thread {thread} paid {expected} into account {at}, which has {actual}")
        });
        let (actual, expected) = (vault[*thread], report.vault[at]);
        ledger.expect(actual == expected, || {
            format!("thread {thread} paid {expected} into vault {at}, which has {actual}")
        });
    }
}

/// The work of one thread; returns the sum of its fibers' ledgers.
fn run_thread(seed: u64, me: usize, banks: Vec<Bank>) -> Ledger {
    let mut sum = Ledger::new(banks.len());
    let fibers: Vec<_> = (0..FIBERS)
        .map(|fiber| {
            let banks = banks.clone();
            let seed = seed.wrapping_mul(1000) + (me * FIBERS + fiber) as u64;
            spawn(move || run_fiber(Rng::with_seed(seed), me, banks))
        })
        .collect();
    for fiber in fibers {
        match fiber.join() {
            Ok(ledger) => sum.add(ledger),
            // The rack ended while the fiber ran.
            Err(JoinError::Cancelled) => {}
            Err(error) => sum.violations.push(format!("a fiber of thread {me} failed: {error}")),
        }
    }
    sum
}

/// The work of one fiber: sends requests to random threads until the time is over.
fn run_fiber(mut rng: Rng, me: usize, banks: Vec<Bank>) -> Ledger {
    let ledger = Rc::new(RefCell::new(Ledger::new(banks.len())));
    // Counts requests in flight that the fiber does not wait for.
    let in_flight = Rc::new(());
    let end = Instant::now() + Plan::WORK;
    while Instant::now() < end {
        let bank = &banks[rng.usize(..banks.len())];
        let other = &banks[rng.usize(..banks.len())];
        send_request(&mut rng, me, bank, other, &ledger, &in_flight);
        yield_now();
    }
    while Rc::strong_count(&in_flight) > 1 {
        yield_now();
    }
    // Detects hosts that were killed in the meantime.
    for bank in &banks {
        let host = bank.trustee.thread().host.0;
        let threads = bank.account.try_apply(|account| account.paid.len());
        ledger.borrow_mut().ended(host, threads);
    }
    let mut ledger = ledger.borrow_mut();
    std::mem::take(&mut *ledger)
}

/// Sends a request of a random kind to `bank`.
fn send_request(
    rng: &mut Rng,
    me: usize,
    bank: &Bank,
    other: &Bank,
    ledger: &Rc<RefCell<Ledger>>,
    in_flight: &Rc<()>,
) {
    let host = bank.trustee.thread().host.0;
    let at = bank.trustee.number() as usize;
    let amount = rng.u64(1..100);
    match rng.u32(..8) {
        0 | 1 => {
            let pay =
                |account: &mut Account, (me, amount): (usize, u64)| account.paid[me] += amount;
            let paid = bank.account.try_apply_with(pay, (me, amount));
            let mut ledger = ledger.borrow_mut();
            if ledger.ended(host, paid).is_some() {
                ledger.account[at] += amount;
            }
        }
        2 => {
            let (ledger, in_flight) = (ledger.clone(), in_flight.clone());
            bank.account.try_apply_with_then(
                |account, (me, amount): (usize, u64)| account.paid[me] += amount,
                (me, amount),
                move |paid| {
                    let mut ledger = ledger.borrow_mut();
                    if ledger.ended(host, paid).is_some() {
                        ledger.account[at] += amount;
                    }
                    drop(in_flight);
                },
            );
        }
        3 => {
            // The closure waits for a third thread, which may be the lost one.
            let arguments = (me, amount, other.account.clone());
            let paid = bank.vault.try_launch_with(
                |vault, (me, amount, other): (usize, u64, Trust<Account>)| {
                    let before = vault.paid[me];
                    let _ = other.try_apply(|account| account.paid.len());
                    vault.paid[me] += amount;
                    before + amount == vault.paid[me]
                },
                arguments,
            );
            let mut ledger = ledger.borrow_mut();
            if let Some(unchanged) = ledger.ended(host, paid) {
                ledger.vault[at] += amount;
                ledger.expect(unchanged, || format!("vault {at} changed while its latch was held"));
            }
        }
        4 => {
            let clone = bank.account.clone();
            drop(clone.clone());
            let drop_it = |_: &mut Account, trust: Trust<Account>| drop(trust);
            let dropped = other.account.try_apply_with(drop_it, clone);
            let host = other.trustee.thread().host.0;
            ledger.borrow_mut().ended(host, dropped);
        }
        5 => {
            let mine = local_trustee().entrust(amount);
            let keep = |account: &mut Account, mine| drop(account.held.replace(mine));
            let kept = bank.account.try_apply_with(keep, mine);
            ledger.borrow_mut().ended(host, kept);
        }
        6 => {
            let sent = vec![amount as u8; BULK_BYTES];
            let arguments = (me, sent.clone());
            let echo = bank.account.try_apply_with(
                |account, (me, bytes): (usize, Vec<u8>)| {
                    account.paid[me] += u64::from(bytes[0]);
                    bytes
                },
                arguments,
            );
            let mut ledger = ledger.borrow_mut();
            if let Some(echo) = ledger.ended(host, echo) {
                ledger.account[at] += amount;
                ledger.expect(echo == sent, || format!("host {host} returned other bytes"));
            }
        }
        _ => {
            let clone = bank.account.clone();
            let threads = clone.try_apply(|account| account.paid.len());
            ledger.borrow_mut().ended(host, threads);
        }
    }
}
