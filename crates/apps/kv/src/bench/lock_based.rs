//! Lock-based stores, for comparison with the delegated one.
//!
//! All but one keep their records in the same [`Table`] as the delegated store, one per shard, and
//! differ only in the lock. `dashmap` has a table of its own.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{Arc, PoisonError};
use std::thread;

use dashmap::DashMap;

use crate::bench::assignment::{Assignment, Phase};
use crate::bench::backend::{Backend, copy_to};
use crate::bench::comparison::{Candidate, Outcome};
use crate::bench::group::Group;
use crate::bench::progress::Progress;
use crate::bench::report::Report;
use crate::bench::table::{ByteRange, Hashed, Table};
use crate::ycsb::Workload;

/// Shards of each lock-based store: many more than threads, so that threads rarely contend for a
/// lock unless they access the same record.
const SHARDS: usize = 64;

/// A lock around a table.
pub trait Lock: Send + Sync + 'static {
    /// The name in results.
    const NAME: &'static str;

    /// A lock around `table`.
    fn new(table: Table) -> Self;

    /// Runs `f` with shared access.
    fn read<R>(&self, f: impl FnOnce(&Table) -> R) -> R;

    /// Runs `f` with exclusive access.
    fn write<R>(&self, f: impl FnOnce(&mut Table) -> R) -> R;
}

macro_rules! lock {
    ($lock:ty, $name:literal, $read:ident, $write:ident $(, $unpoison:expr)?) => {
        impl Lock for $lock {
            const NAME: &'static str = $name;

            fn new(table: Table) -> Self {
                <$lock>::new(table)
            }

            fn read<R>(&self, f: impl FnOnce(&Table) -> R) -> R {
                f(&self.$read()$(.unwrap_or_else($unpoison))?)
            }

            fn write<R>(&self, f: impl FnOnce(&mut Table) -> R) -> R {
                f(&mut self.$write()$(.unwrap_or_else($unpoison))?)
            }
        }
    };
}

// A panic ends the bench, so poisoning can be ignored.
lock!(std::sync::Mutex<Table>, "std Mutex", lock, lock, PoisonError::into_inner);
lock!(std::sync::RwLock<Table>, "std RwLock", read, write, PoisonError::into_inner);
lock!(parking_lot::Mutex<Table>, "parking_lot Mutex", lock, lock);
lock!(parking_lot::RwLock<Table>, "parking_lot RwLock", read, write);

/// Tables behind locks.
pub struct Locked<L> {
    shards: Arc<[L]>,
}

impl<L> Clone for Locked<L> {
    fn clone(&self) -> Self {
        Self { shards: Arc::clone(&self.shards) }
    }
}

impl<L: Lock> Locked<L> {
    fn shard<'a>(&self, key: &'a [u8]) -> (&L, Hashed<'a>) {
        let (key, shard) = Hashed::with_table(key, SHARDS);
        (&self.shards[shard], key)
    }
}

impl<L: Lock> Backend for Locked<L> {
    fn read(&self, key: &[u8], part: ByteRange, take: impl FnOnce(&[u8])) -> bool {
        let (shard, key) = self.shard(key);
        shard.read(|table| table.read(key, part).map(take).is_some())
    }

    fn update(&self, key: &[u8], offset: u32, value: &[u8]) -> bool {
        let (shard, key) = self.shard(key);
        shard.write(|table| table.update(key, offset, value))
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> bool {
        self.shard(key).0.write(|table| table.insert(key, value))
    }

    fn scan(&self, start: &[u8], count: usize, part: ByteRange) -> usize {
        // First the keys, since any shard may hold all of the result or none; then the values of
        // the first `count` keys.
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for shard in &*self.shards {
            shard.read(|table| keys.extend(table.keys_from(start, count).map(<[u8]>::to_vec)));
        }
        keys.sort_unstable();
        keys.truncate(count);
        let mut value = Vec::new();
        keys.iter().filter(|key| self.read(key, part, copy_to(&mut value))).count()
    }
}

type Bytes = Box<[u8]>;

/// `dashmap`, with an ordered index of keys for workloads that scan.
#[derive(Clone)]
pub struct Dash {
    records: Arc<DashMap<Bytes, Bytes, foldhash::fast::RandomState>>,
    order: Option<Arc<parking_lot::RwLock<BTreeSet<Bytes>>>>,
}

impl Backend for Dash {
    fn read(&self, key: &[u8], part: ByteRange, take: impl FnOnce(&[u8])) -> bool {
        let record = self.records.get(key);
        record.as_deref().map(|record| take(part.of(record))).is_some()
    }

    fn update(&self, key: &[u8], offset: u32, value: &[u8]) -> bool {
        let Some(mut record) = self.records.get_mut(key) else { return false };
        let start = offset as usize;
        let Some(target) = record.get_mut(start..start + value.len()) else { return false };
        target.copy_from_slice(value);
        true
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> bool {
        self.records.insert(key.into(), value.into());
        if let Some(order) = &self.order {
            order.write().insert(key.into());
        }
        true
    }

    fn scan(&self, start: &[u8], count: usize, part: ByteRange) -> usize {
        let Some(order) = &self.order else { return 0 };
        let bounds = (Bound::Included(start), Bound::Unbounded);
        let keys: Vec<_> = order.read().range::<[u8], _>(bounds).take(count).cloned().collect();
        let mut value = Vec::new();
        keys.iter().filter(|key| self.read(key, part, copy_to(&mut value))).count()
    }
}

/// A lock-based store with as many threads as a rack has.
struct Threads<B> {
    name: String,
    threads: u64,
    /// Makes the store, with an ordered index if the argument is true.
    make: fn(bool) -> B,
}

impl<B: Backend + Send + Sync> Candidate for Threads<B> {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&mut self, workload: &Workload, round: u64) -> Result<Outcome, String> {
        let backend = (self.make)(workload.scans());
        let phase = |phase| run_phase(&backend, workload, phase, self.threads, round, &self.name);
        Ok(Outcome { load: phase(Phase::Load)?, run: phase(Phase::Run)? })
    }
}

fn run_phase<B: Backend + Send + Sync>(
    backend: &B,
    workload: &Workload,
    phase: Phase,
    threads: u64,
    round: u64,
    name: &str,
) -> Result<Report, String> {
    let assignment = |group| {
        let workload = workload.clone();
        Assignment { workload, phase, group, groups: threads, clients: 1, round }
    };
    let total_work = Assignment { groups: 1, ..assignment(0) };
    let _bar = Progress::start(name, total_work.operations(), total_work.time_limit());
    thread::scope(|scope| {
        let clients: Vec<_> = (0..threads)
            .map(|group| {
                let (backend, assignment) = (backend.clone(), assignment(group));
                scope.spawn(move || {
                    let group = Group::new(backend, assignment);
                    group.client(0);
                    group.into_report()
                })
            })
            .collect();
        let mut total = Report::default();
        for client in clients {
            total.add(&client.join().map_err(|_| "a client panicked".to_owned())?);
        }
        Ok(total)
    })
}

/// A candidate that can run on any thread.
type Store = Box<dyn Candidate + Send>;

fn locked<L: Lock>(threads: u64) -> Store {
    let make =
        |ordered| Locked { shards: (0..SHARDS).map(|_| L::new(Table::new(ordered))).collect() };
    Box::new(Threads::<Locked<L>> { name: format!("{SHARDS} x {}", L::NAME), threads, make })
}

/// All lock-based stores, each run by `threads` threads.
pub fn candidates(threads: u64) -> Vec<Store> {
    let dash = |ordered: bool| Dash { records: Arc::default(), order: ordered.then(Arc::default) };
    vec![
        locked::<std::sync::Mutex<Table>>(threads),
        locked::<std::sync::RwLock<Table>>(threads),
        locked::<parking_lot::Mutex<Table>>(threads),
        locked::<parking_lot::RwLock<Table>>(threads),
        Box::new(Threads { name: "dashmap".to_owned(), threads, make: dash }),
    ]
}
