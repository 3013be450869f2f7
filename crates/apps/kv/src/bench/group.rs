//! The clients of one thread.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::bench::assignment::{Assignment, Phase};
use crate::bench::backend::{Backend, copy_to};
use crate::bench::progress::{self, STEP};
use crate::bench::report::{Operation, Report};
use crate::bench::table::ByteRange;
use crate::ycsb::{AcknowledgedCounter, KeyChooser, RecordMaker, ScanLength};

/// The clients of one thread: their shared state and measurements. They run as fibers of the
/// thread, or a single client runs as the thread itself.
pub struct Group<B> {
    backend: B,
    assignment: Assignment,
    /// Operations that no client has started yet.
    left: Cell<u64>,
    /// Numbers this group's inserts, from 0.
    inserts: AcknowledgedCounter,
    keys: RefCell<KeyChooser>,
    scans: ScanLength,
    maker: RecordMaker,
    /// The last value read. The clients of a thread share one buffer, as a program of many fibers would.
    value: RefCell<Vec<u8>>,
    started: Instant,
    deadline: Option<Instant>,
    report: RefCell<Report>,
}

impl<B: Backend> Group<B> {
    /// A group that starts now.
    pub fn new(backend: B, assignment: Assignment) -> Self {
        let keys = RefCell::new(KeyChooser::new(&assignment.workload));
        let scans = ScanLength::new(&assignment.workload);
        let maker = RecordMaker::new(&assignment.workload);
        let started = Instant::now();
        Self {
            backend,
            left: Cell::new(assignment.operations()),
            inserts: AcknowledgedCounter::new(0),
            keys,
            scans,
            maker,
            value: RefCell::new(Vec::with_capacity(assignment.workload.record_bytes())),
            started,
            // A limit beyond the range of the clock is no limit.
            deadline: assignment.time_limit().and_then(|limit| started.checked_add(limit)),
            report: RefCell::default(),
            assignment,
        }
    }

    /// Runs one client to the end of the phase.
    pub fn client(&self, number: u64) {
        let rng = Rng::with_seed(self.assignment.seed(number));
        let mut client = Client { group: self, rng, key: Vec::with_capacity(32) };
        while let Some(batch) = self.take_batch() {
            for _ in 0..batch {
                match self.assignment.phase {
                    Phase::Load => client.insert(0),
                    Phase::Run => client.operate(),
                }
            }
            progress::count(batch);
        }
        let mut report = self.report.borrow_mut();
        report.elapsed = report.elapsed.max(self.started.elapsed());
    }

    /// The measurements; call it after all clients have returned.
    pub fn into_report(self) -> Report {
        self.report.into_inner()
    }

    /// The size of the next batch of operations for a client, or `None` at the end of the phase.
    fn take_batch(&self) -> Option<u64> {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return None;
        }
        let batch = self.left.get().min(STEP);
        self.left.set(self.left.get() - batch);
        (batch > 0).then_some(batch)
    }

    fn record(&self, operation: Operation, latency: Duration, succeeded: bool) {
        self.report.borrow_mut().latencies_mut(operation).record(latency, succeeded);
    }

    /// Reads a range of a record into this thread's buffer; `false` if the record does not exist.
    fn read(&self, key: &[u8], part: ByteRange) -> bool {
        self.backend.read(key, part, |found| copy_to(&mut self.value.borrow_mut())(found))
    }

    /// The byte range of a field in a record.
    fn field(&self, field: u32) -> ByteRange {
        let length = self.assignment.workload.field_length;
        ByteRange { offset: field * length, length }
    }
}

struct Client<'a, B> {
    group: &'a Group<B>,
    rng: Rng,
    key: Vec<u8>,
}

impl<B: Backend> Client<'_, B> {
    /// One operation of the mix.
    fn operate(&mut self) {
        let mix = self.group.assignment.workload.mix;
        let mut draw = self.rng.f64() * mix.total();
        let mut is = |share: f64| {
            let hit = draw < share;
            draw -= share;
            hit
        };
        if is(mix.read) {
            self.read();
        } else if is(mix.update) {
            self.update();
        } else if is(mix.insert) {
            self.insert(self.group.assignment.workload.record_count);
        } else if is(mix.scan) {
            self.scan();
        } else {
            self.read_modify_write();
        }
    }

    /// Chooses an existing record and writes its key to `self.key`.
    fn choose(&mut self) {
        let group = self.group;
        let loaded = group.assignment.workload.record_count;
        let limit = loaded + group.inserts.limit();
        let number = group.keys.borrow_mut().next(&mut self.rng, limit);
        // Beyond the loaded records, a group reads only records that it inserted itself.
        let number = match number.checked_sub(loaded) {
            None => number,
            Some(index) => group.assignment.record(loaded, index),
        };
        group.maker.key(number, &mut self.key);
    }

    /// The range that a read returns: the record or one field of it.
    fn part(&mut self) -> ByteRange {
        let workload = &self.group.assignment.workload;
        if workload.read_all_fields {
            ByteRange::ALL
        } else {
            self.group.field(self.rng.u32(..workload.field_count))
        }
    }

    fn read(&mut self) {
        self.choose();
        let part = self.part();
        let start = Instant::now();
        let found = self.group.read(&self.key, part);
        self.group.record(Operation::Read, start.elapsed(), found);
    }

    /// Overwrites one field, or all fields, of the chosen record.
    fn write(&mut self) -> bool {
        let Group { backend, maker, assignment, .. } = self.group;
        if assignment.workload.write_all_fields {
            backend.update(&self.key, 0, maker.record(&mut self.rng))
        } else {
            let field = self.rng.u32(..assignment.workload.field_count);
            backend.update(&self.key, self.group.field(field).offset, maker.field(&mut self.rng))
        }
    }

    fn update(&mut self) {
        self.choose();
        let start = Instant::now();
        let found = self.write();
        self.group.record(Operation::Update, start.elapsed(), found);
    }

    fn read_modify_write(&mut self) {
        self.choose();
        let part = self.part();
        let start = Instant::now();
        let found = self.group.read(&self.key, part) && self.write();
        self.group.record(Operation::ReadModifyWrite, start.elapsed(), found);
    }

    fn scan(&mut self) {
        self.choose();
        let part = self.part();
        let count = self.group.scans.next(&mut self.rng) as usize;
        let start = Instant::now();
        let found = self.group.backend.scan(&self.key, count, part);
        self.group.record(Operation::Scan, start.elapsed(), found > 0);
    }

    /// Inserts the next record of this group, counted from record `first`.
    fn insert(&mut self, first: u64) {
        let group = self.group;
        let index = group.inserts.take();
        group.maker.key(group.assignment.record(first, index), &mut self.key);
        let value = group.maker.record(&mut self.rng);
        let start = Instant::now();
        let stored = group.backend.insert(&self.key, value);
        group.record(Operation::Insert, start.elapsed(), stored);
        group.inserts.acknowledge(index);
    }
}
