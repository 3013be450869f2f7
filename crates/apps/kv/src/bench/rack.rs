//! The delegated store under test.
//!
//! Every thread of the rack is the trustee of one shard and a client of all shards. It runs many
//! fibers, each waiting for its own responses, so that requests to the same trustee share batches.

use std::rc::Rc;

use gossamer::{Sharded, Trust};

use crate::bench::assignment::{Assignment, Phase};
use crate::bench::backend::Backend;
use crate::bench::comparison::{Candidate, Outcome};
use crate::bench::group::Group;
use crate::bench::progress::Progress;
use crate::bench::report::Report;
use crate::bench::table::{ByteRange, Hashed, ScanRequest, Table, scan_shards};
use crate::fibers::request_all;
use crate::store::Key;
use crate::ycsb::Workload;

/// The records of a rack.
#[derive(Clone)]
pub struct RackTable {
    shards: Sharded<[u8], Table>,
}

impl RackTable {
    /// An empty shard on each thread of this rack, with an ordered index for scans if `ordered`.
    ///
    /// # Panics
    /// Outside a rack.
    pub fn new(ordered: bool) -> Self {
        Self { shards: Sharded::new_with(Table::new, ordered) }
    }

    /// The shard of a key. Not by [`Sharded::shard`], whose hash is another one.
    fn shard<'a>(&self, key: &'a [u8]) -> (&Trust<Table>, Hashed<'a>) {
        let shards = self.shards.shards();
        let (key, shard) = Hashed::with_table(key, shards.len());
        (&shards[shard], key)
    }
}

impl Backend for RackTable {
    fn read(&self, key: &[u8], part: ByteRange, take: impl FnOnce(&[u8])) -> bool {
        let (shard, Hashed { key, hash }) = self.shard(key);
        shard.lend((hash, key, part.offset, part.length)).apply_ref_with_prefetch(
            |table, &(hash, ..), step| table.prefetch(hash, step),
            |table, (hash, key, offset, length)| {
                table.read(Hashed { key, hash }, ByteRange { offset, length })
            },
            |found| found.map(take).is_some(),
        )
    }

    fn update(&self, key: &[u8], offset: u32, value: &[u8]) -> bool {
        let (shard, Hashed { key, hash }) = self.shard(key);
        shard.lend((hash, key, offset, value)).apply_with_prefetch(
            |table, &(hash, ..), step| table.prefetch(hash, step),
            |table, (hash, key, offset, value)| table.update(Hashed { key, hash }, offset, value),
        )
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> bool {
        let insert = |table: &mut Table, (key, value): (&[u8], &[u8])| table.insert(key, value);
        self.shard(key).0.lend((key, value)).apply(insert)
    }

    fn scan(&self, start: &[u8], count: usize, part: ByteRange) -> usize {
        let shards = self.shards.shards();
        let fetch = |requests: &[ScanRequest]| {
            request_all(requests.len(), |index, reply| {
                let ScanRequest { table, start, count } = &requests[index];
                shards[*table].try_apply_with_then(
                    |table, (start, count, part): (Key, usize, ByteRange)| {
                        table.scan(&start, count, part)
                    },
                    (Key::new(start), *count, part),
                    move |response| reply.take(response),
                );
            })
        };
        scan_shards(shards.len(), start, count, fetch).len()
    }
}

/// The rack as a candidate; use it inside a fiber of the rack.
#[derive(Debug)]
pub struct RackCandidate {
    name: String,
    hosts: u64,
    /// Threads over all hosts.
    threads: u64,
    /// Fibers per thread.
    fibers: u64,
}

fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

impl RackCandidate {
    /// This rack, with `fibers` clients on each of its threads.
    ///
    /// # Panics
    /// Outside a rack.
    pub fn new(fibers: u64) -> Self {
        let threads = gossamer::threads().count() as u64;
        let host = |thread: gossamer::Trustee| u64::from(thread.thread().host.0);
        let hosts = 1 + gossamer::threads().map(host).max().unwrap_or(0);
        let each = threads / hosts;
        let counts = [counted(hosts, "host"), counted(each, "thread"), counted(fibers, "fiber")];
        let name = format!("gossamer, {}", counts.join(" x "));
        Self { name, hosts, threads, fibers }
    }

    fn run_phase(
        &self,
        table: &RackTable,
        workload: &Workload,
        phase: Phase,
        round: u64,
    ) -> Result<Report, String> {
        let assignment = |group| {
            let (workload, groups, clients) = (workload.clone(), self.threads, self.fibers);
            Assignment { workload, phase, group, groups, clients, round }
        };
        // The bar counts the operations of this process.
        let mine = assignment(0).operations() * self.threads / self.hosts;
        let _bar = Progress::start(&self.name, mine, assignment(0).time_limit());
        let groups: Vec<_> = (0..)
            .zip(gossamer::threads())
            .map(|(group, thread)| {
                let arguments = (table.shards.clone(), assignment(group));
                gossamer::spawn_on_with(
                    thread,
                    |(shards, assignment)| run_clients(RackTable { shards }, assignment),
                    arguments,
                )
            })
            .collect();
        let mut total = Report::default();
        for group in groups {
            total.add(
                &group
                    .join()
                    .map_err(|error| format!("the clients of a thread failed: {error}"))?,
            );
        }
        Ok(total)
    }
}

impl Candidate for RackCandidate {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&mut self, workload: &Workload, round: u64) -> Result<Outcome, String> {
        let table = RackTable::new(workload.scans());
        Ok(Outcome {
            load: self.run_phase(&table, workload, Phase::Load, round)?,
            run: self.run_phase(&table, workload, Phase::Run, round)?,
        })
    }
}

/// Runs the clients of this thread, a fiber each.
fn run_clients(table: RackTable, assignment: Assignment) -> Report {
    let clients = assignment.clients;
    let group = Rc::new(Group::new(table, assignment));
    let fibers: Vec<_> = (0..clients)
        .map(|number| {
            let group = Rc::clone(&group);
            fiber::spawn_local(move || group.client(number))
        })
        .collect();
    for fiber in fibers {
        if let Err(error) = fiber.join() {
            panic!("a client fiber failed: {error}");
        }
    }
    // All clients have returned, so this is the last reference.
    Rc::into_inner(group).map(Group::into_report).unwrap_or_default()
}
