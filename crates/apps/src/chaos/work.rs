//! The rack's side of a round: every thread works on everybody's properties with every kind of
//! request, and keeps books, which must agree with what the properties say in the end.
//!
//! What the judge needs to know is written to standard output, a line each:
//!
//! ```text
//!   host 1 pid 4711          who is who
//!   running                  the work begins
//!   lost 1                   a process has noticed that host 1 is lost
//!   wrong: ..                something that must not be
//!   checked lost=1 operations=5432
//!   ended                    the rack has ended, and `run` has returned
//! ```

use super::{Plan, procfs};
use fastrand::Rng;
use gossamer::{
    DelegateError, JoinError, Latch, OnPeerLoss, Rack, Trust, Trustee, local_trustee, spawn,
    spawn_on, spawn_on_with, yield_now,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{cell::RefCell, collections::BTreeSet, process::ExitCode, rc::Rc, time::Instant};

/// Fibers that each thread starts.
const FIBERS: usize = 4;
/// Bytes of a payload that does not fit into a slot.
const BULK_BYTES: usize = 40_000;

/// A property that everybody works on.
struct Account {
    /// What each thread of the rack has paid in.
    paid: Vec<u64>,
    /// Somebody else's property, to be dropped when the next one comes.
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

/// What a fiber, a thread, or the whole rack knows to have done.
#[derive(Default, Serialize, Deserialize)]
struct Books {
    /// Paid into each account, and confirmed.
    account: Vec<u64>,
    /// Paid into each vault, and confirmed.
    vault: Vec<u64>,
    /// Hosts that requests were lost to.
    lost: BTreeSet<u32>,
    operations: u64,
    wrong: Vec<String>,
}

impl Books {
    fn new(threads: usize) -> Self {
        Books { account: vec![0; threads], vault: vec![0; threads], ..Books::default() }
    }

    fn add(&mut self, other: Books) {
        self.account.iter_mut().zip(other.account).for_each(|(sum, more)| *sum += more);
        self.vault.iter_mut().zip(other.vault).for_each(|(sum, more)| *sum += more);
        self.lost.extend(other.lost);
        self.operations += other.operations;
        self.wrong.extend(other.wrong);
    }

    /// Notes how a request to a thread of `host` has ended; its result, if it has one.
    fn ended<U>(&mut self, host: u32, result: Result<U, DelegateError>) -> Option<U> {
        match result {
            Ok(value) => {
                self.operations += 1;
                return Some(value);
            }
            Err(DelegateError::PeerLost { host: lost, .. }) if lost.0 == host => {
                say_lost(host);
                self.lost.insert(host);
            }
            // The rack has ended under the fiber.
            Err(DelegateError::NoRack(_)) => {}
            Err(error) => self.wrong.push(format!("a request to host {host} failed: {error}")),
        }
        None
    }

    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(what());
        }
    }
}

/// Says that a host is lost, once for each process that notices.
fn say_lost(host: u32) {
    static SAID: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
    if SAID.lock().insert(host) {
        println!("lost {host}");
    }
}

/// One process of the rack of a round, from its start to its end.
pub fn run_rack(plan: &Plan) -> ExitCode {
    let inherited = procfs::surplus_descriptors();
    if !inherited.is_empty() {
        println!("wrong: a process inherits {inherited:?}");
    }
    let rack = Rack::new().hosts(Plan::HOSTS).threads(Plan::THREADS);
    let seed = plan.seed;
    let ends = plan.on_peer_loss == OnPeerLoss::EndRack;
    match rack.on_peer_loss(plan.on_peer_loss).run(move || lead(seed, ends)) {
        Ok(()) => {
            let leaked = procfs::own_memory_files();
            if !leaked.is_empty() {
                println!("wrong: memory is still open when the rack has ended: {leaked:?}");
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

/// What host 0 does: has everybody work, and compares the books.
fn lead(seed: u64, ends: bool) {
    let trustees: Vec<_> = gossamer::threads().collect();
    let threads = trustees.len();
    for first in trustees.iter().filter(|trustee| trustee.thread().thread == 0) {
        match spawn_on(*first, std::process::id).join() {
            Ok(pid) => println!("host {} pid {pid}", first.thread().host.0),
            Err(error) => eprintln!("chaos: {error}"),
        }
    }
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
            spawn_on_with(*trustee, |(seed, me, banks)| work(seed, me, banks), arguments)
        })
        .collect();
    let mut books = Books::new(threads);
    let mut reports = Vec::new();
    for (trustee, worker) in trustees.iter().zip(workers) {
        match worker.join() {
            Ok(report) => reports.push((trustee.number() as usize, report)),
            Err(_) => drop(books.lost.insert(trustee.thread().host.0)),
        }
    }
    // While a rack ends, what was done may not be confirmed any more.
    if !ends || books.lost.is_empty() {
        for bank in &banks {
            compare(bank, &reports, &mut books);
        }
    }
    drop(banks);
    for (_, report) in reports {
        books.add(report);
    }
    for wrong in &books.wrong {
        println!("wrong: {wrong}");
    }
    let lost: Vec<_> = books.lost.iter().map(u32::to_string).collect();
    println!("checked lost={} operations={}", lost.join(","), books.operations);
}

/// Compares what a bank says that each thread paid in with what the thread says.
fn compare(bank: &Bank, reports: &[(usize, Books)], books: &mut Books) {
    let host = bank.trustee.thread().host.0;
    let at = bank.trustee.number() as usize;
    let account = books.ended(host, bank.account.try_apply(|account| account.paid.clone()));
    let vault = bank.vault.try_launch_with(|vault, ()| vault.paid.clone(), ());
    let vault = books.ended(host, vault);
    let (Some(account), Some(vault)) = (account, vault) else { return };
    for (thread, report) in reports {
        let (there, here) = (account[*thread], report.account[at]);
        books.expect(there == here, || {
            format!("thread {thread} paid {here} into account {at}, which says {there}")
        });
        let (there, here) = (vault[*thread], report.vault[at]);
        books.expect(there == here, || {
            format!("thread {thread} paid {here} into vault {at}, which says {there}")
        });
    }
}

/// What one thread does: its fibers' books, summed.
fn work(seed: u64, me: usize, banks: Vec<Bank>) -> Books {
    let mut sum = Books::new(banks.len());
    let fibers: Vec<_> = (0..FIBERS)
        .map(|fiber| {
            let banks = banks.clone();
            let seed = seed.wrapping_mul(1000) + (me * FIBERS + fiber) as u64;
            spawn(move || deal(Rng::with_seed(seed), me, banks))
        })
        .collect();
    for fiber in fibers {
        match fiber.join() {
            Ok(books) => sum.add(books),
            // The rack has ended under the fiber.
            Err(JoinError::Cancelled) => {}
            Err(error) => sum.wrong.push(format!("a fiber of thread {me}: {error}")),
        }
    }
    sum
}

/// What one fiber does: one request after the other to whomever, until the time is over.
fn deal(mut rng: Rng, me: usize, banks: Vec<Bank>) -> Books {
    let books = Rc::new(RefCell::new(Books::new(banks.len())));
    // Requests that are not waited for, and have not ended.
    let under_way = Rc::new(());
    let end = Instant::now() + Plan::WORK;
    while Instant::now() < end {
        let bank = &banks[rng.usize(..banks.len())];
        let other = &banks[rng.usize(..banks.len())];
        one(&mut rng, me, bank, other, &books, &under_way);
        yield_now();
    }
    while Rc::strong_count(&under_way) > 1 {
        yield_now();
    }
    // A host that has been killed by now answers nobody.
    for bank in &banks {
        let host = bank.trustee.thread().host.0;
        let threads = bank.account.try_apply(|account| account.paid.len());
        books.borrow_mut().ended(host, threads);
    }
    let mut books = books.borrow_mut();
    std::mem::take(&mut *books)
}

/// One request of a kind that `rng` chooses, to `bank`.
fn one(
    rng: &mut Rng,
    me: usize,
    bank: &Bank,
    other: &Bank,
    books: &Rc<RefCell<Books>>,
    under_way: &Rc<()>,
) {
    let host = bank.trustee.thread().host.0;
    let at = bank.trustee.number() as usize;
    let amount = rng.u64(1..100);
    match rng.u32(..8) {
        0 | 1 => {
            let pay =
                |account: &mut Account, (me, amount): (usize, u64)| account.paid[me] += amount;
            let paid = bank.account.try_apply_with(pay, (me, amount));
            let mut books = books.borrow_mut();
            if books.ended(host, paid).is_some() {
                books.account[at] += amount;
            }
        }
        2 => {
            let (books, under_way) = (books.clone(), under_way.clone());
            bank.account.try_apply_with_then(
                |account, (me, amount): (usize, u64)| account.paid[me] += amount,
                (me, amount),
                move |paid| {
                    let mut books = books.borrow_mut();
                    if books.ended(host, paid).is_some() {
                        books.account[at] += amount;
                    }
                    drop(under_way);
                },
            );
        }
        3 => {
            // The closure may wait, here for a third thread, which may be the one that is lost.
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
            let mut books = books.borrow_mut();
            if let Some(alone) = books.ended(host, paid) {
                books.vault[at] += amount;
                books.expect(alone, || format!("vault {at} changed under the latch's holder"));
            }
        }
        4 => {
            let clone = bank.account.clone();
            drop(clone.clone());
            let drop_it = |_: &mut Account, trust: Trust<Account>| drop(trust);
            let dropped = other.account.try_apply_with(drop_it, clone);
            let host = other.trustee.thread().host.0;
            books.borrow_mut().ended(host, dropped);
        }
        5 => {
            let mine = local_trustee().entrust(amount);
            let keep = |account: &mut Account, mine| drop(account.held.replace(mine));
            let kept = bank.account.try_apply_with(keep, mine);
            books.borrow_mut().ended(host, kept);
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
            let mut books = books.borrow_mut();
            if let Some(echo) = books.ended(host, echo) {
                books.account[at] += amount;
                books.expect(echo == sent, || format!("bytes come back from host {host} changed"));
            }
        }
        _ => {
            let clone = bank.account.clone();
            let threads = clone.try_apply(|account| account.paid.len());
            books.borrow_mut().ended(host, threads);
        }
    }
}
