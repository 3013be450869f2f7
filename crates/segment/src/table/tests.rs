//! Tests of the table against a model, with lookups after every single store of its owner.

use std::collections::HashMap;
use std::sync::Arc;

use primitive::SharedBytes;
use primitive::sync::{AtomicBool, Mutex, Ordering};
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::{Strategy, *};
use crate::name::Name;

fn name(number: usize) -> Name {
    Name::new(&format!("name-{number}")).expect("a name")
}

/// An entry of which every word follows from name and generation.
fn entry(name: Name, generation: u32) -> Entry {
    let id = u64::from(generation).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Entry { name, generation, what: Published::Trust { thread: generation % 4, id } }
}

fn table_of(slots: usize) -> Table {
    Table::new(SharedBytes::heap(slots * ENTRY_BYTES))
}

fn bytes_at(memory: &SharedBytes, at: usize) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    memory.read_words(at, &mut bytes);
    bytes
}

/// One READ of a lookup; its end, if it has ended.
fn advance(probe: &mut Probe, memory: &SharedBytes) -> Option<Lookup> {
    if let Next::Read(bytes) = probe.next() {
        assert_eq!(bytes.len(), ENTRY_BYTES);
        probe.take(&bytes_at(memory, bytes.start));
    }
    match probe.next() {
        Next::Read(_) => None,
        Next::Done(lookup) => Some(lookup),
    }
}

fn finish(mut probe: Probe, memory: &SharedBytes) -> Lookup {
    loop {
        if let Some(lookup) = advance(&mut probe, memory) {
            return lookup;
        }
    }
}

fn lookup(memory: &SharedBytes, name: Name) -> Lookup {
    finish(Probe::in_slots(name, Strategy::Probe, memory.len() / ENTRY_BYTES), memory)
}

fn slots_of(memory: &SharedBytes) -> Vec<Slot> {
    let slot = |at| Slot::decode_bytes(&bytes_at(memory, at)).expect("no writer");
    (0..memory.len()).step_by(ENTRY_BYTES).map(slot).collect()
}

/// Names that are all found from slot `home` on.
fn names_at(home: usize, slots: usize) -> impl Iterator<Item = Name> {
    (0..).map(name).filter(move |name| home_slot(name, slots) == home)
}

/// A slot is empty unless it has an entry or lookups of entries pass it.
fn check_tombstones(memory: &SharedBytes) {
    let slots = slots_of(memory);
    let mut expected = vec![false; slots.len()];
    for (at, slot) in slots.iter().enumerate() {
        if let Slot::Entry(entry) = slot {
            let mut passed = home_slot(&entry.name, slots.len());
            while passed != at {
                expected[passed] = true;
                passed = (passed + 1) % slots.len();
            }
        }
    }
    for (slot, is_passed) in slots.iter().zip(expected) {
        match slot {
            Slot::Empty => assert!(!is_passed, "an entry is not found: {slots:?}"),
            Slot::Deleted => assert!(is_passed, "a tombstone that is not needed: {slots:?}"),
            Slot::Entry(_) => {}
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Insert(usize),
    Remove(usize),
}

impl Change {
    fn name(self) -> Name {
        let (Self::Insert(number) | Self::Remove(number)) = self;
        name(number)
    }
}

const NAMES: usize = 14;

fn changes(count: usize) -> impl proptest::strategy::Strategy<Value = Vec<Change>> {
    let change = (0..NAMES, 0..5).prop_map(|(number, which)| match which {
        0..=2 => Change::Insert(number),
        _ => Change::Remove(number),
    });
    proptest::collection::vec(change, 1..count)
}

type Model = HashMap<Name, Entry>;

/// What `change` makes of the entry of its name, in a table that has room.
fn changed(change: Change, model: &Model, room: bool, generation: u32) -> Option<Entry> {
    let (name, old) = (change.name(), model.get(&change.name()).copied());
    match change {
        Change::Insert(_) if old.is_none() && room => Some(entry(name, generation)),
        Change::Remove(_) => None,
        _ => old,
    }
}

/// Applies `change` to the table and checks what it returns.
fn apply(table: &mut Table, change: Change, model: &Model, room: bool, generation: u32) {
    let (name, slots) = (change.name(), table.memory().len() / ENTRY_BYTES);
    let old = model.get(&name).copied();
    let new = entry(name, generation);
    match change {
        Change::Insert(_) => {
            let expected = match old {
                Some(_) => Err(TableError::Taken(name)),
                None if room => Ok(()),
                None => Err(TableError::Full { name, slots }),
            };
            assert_eq!(table.insert(new), expected);
        }
        Change::Remove(_) => assert_eq!(table.remove(&name), old),
    }
}

/// Lookups that take one READ now and then while the owner stores, and the entries that their names
/// had since they began.
struct Lookups {
    memory: SharedBytes,
    pending: Vec<(Name, Probe, Vec<Option<Entry>>)>,
    /// What each name has before and after the change that is under way.
    now: HashMap<Name, [Option<Entry>; 2]>,
    random: u64,
    ended: usize,
}

impl Lookups {
    fn begin(&mut self, name: Name) {
        let slots = self.memory.len() / ENTRY_BYTES;
        let entries = self.now.get(&name).map_or(vec![None], |now| now.to_vec());
        self.pending.push((name, Probe::in_slots(name, Strategy::Probe, slots), entries));
    }

    fn change(&mut self, name: Name, before: Option<Entry>, after: Option<Entry>) {
        self.now.insert(name, [before, after]);
        for (wanted, _, entries) in &mut self.pending {
            if *wanted == name {
                entries.push(after);
            }
        }
    }

    fn changed(&mut self, name: Name, after: Option<Entry>) {
        self.now.insert(name, [after; 2]);
    }

    /// Some lookups go on, and whole ones run in between.
    fn step(&mut self) {
        for (name, mut probe, entries) in std::mem::take(&mut self.pending) {
            self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let end = (self.random >> 62 == 0).then(|| advance(&mut probe, &self.memory)).flatten();
            match end {
                None => self.pending.push((name, probe, entries)),
                Some(lookup) => {
                    check(&lookup, &entries);
                    assert!(!matches!(lookup, Lookup::Torn { .. }), "the owner went on storing");
                    self.ended += 1;
                    self.begin(name);
                }
            }
        }
        self.now.iter().for_each(|(name, entries)| check(&lookup(&self.memory, *name), entries));
    }
}

/// Asserts that a lookup may return this result if its name had these entries, or none, while it ran.
fn check(lookup: &Lookup, entries: &[Option<Entry>]) {
    let is_right = match lookup {
        Lookup::Found(entry) => entries.contains(&Some(*entry)),
        Lookup::NotFound => entries.contains(&None),
        Lookup::Torn { .. } => true,
        Lookup::Ask | Lookup::Malformed { .. } => false,
    };
    assert!(is_right, "{lookup:?} where the name had {entries:?}");
}

proptest! {
    #[test]
    fn it_is_a_map(slots in 1usize..20, changes in changes(300)) {
        let (mut table, mut model) = (table_of(slots), Model::new());
        for (generation, change) in (0..).zip(changes) {
            let (name, room) = (change.name(), model.len() < slots);
            let after = changed(change, &model, room, generation);
            apply(&mut table, change, &model, room, generation);
            match after {
                Some(entry) => model.insert(name, entry),
                None => model.remove(&name),
            };
            prop_assert_eq!(table.len(), model.len());
            for name in (0..NAMES).map(self::name) {
                let expected = model.get(&name);
                prop_assert_eq!(table.find(&name), expected);
                let expected = expected.map_or(Lookup::NotFound, |entry| Lookup::Found(*entry));
                prop_assert_eq!(lookup(table.memory(), name), expected);
            }
            check_tombstones(table.memory());
        }
        model.keys().for_each(|name| assert!(table.remove(name).is_some()));
        prop_assert!(slots_of(table.memory()).iter().all(|slot| *slot == Slot::Empty));
    }

    #[test]
    fn lookups_between_two_stores_are_right(slots in 1usize..20, changes in changes(60), random: u64) {
        let (mut table, mut model) = (table_of(slots), Model::new());
        let memory = table.memory().clone();
        let (pending, now) = (Vec::new(), HashMap::new());
        let lookups = Arc::new(Mutex::new(Lookups { memory, pending, now, random, ended: 0 }));
        (0..NAMES).for_each(|number| lookups.lock().unwrap().begin(name(number)));
        let hook = lookups.clone();
        table.after_store(move || hook.lock().unwrap().step());
        for (generation, change) in (0..).zip(changes) {
            let (name, room) = (change.name(), model.len() < slots);
            let (before, after) =
                (model.get(&name).copied(), changed(change, &model, room, generation));
            lookups.lock().unwrap().change(name, before, after);
            apply(&mut table, change, &model, room, generation);
            lookups.lock().unwrap().changed(name, after);
            match after {
                Some(entry) => model.insert(name, entry),
                None => model.remove(&name),
            };
            lookups.lock().unwrap().step();
        }
    }
}

#[test]
fn a_full_table_refuses_and_its_lookups_end() {
    let mut table = table_of(SLOTS);
    for number in 0..SLOTS {
        table.insert(entry(name(number), 1)).expect("a slot is left");
    }
    let (another, slots) = (name(SLOTS), SLOTS);
    let full = TableError::Full { name: another, slots };
    assert_eq!(table.insert(entry(another, 1)), Err(full.clone()));
    assert_eq!(
        full.to_string(),
        "cannot publish name-4096: this host has published 4096 names, the most it can; delete one \
         first"
    );
    for number in [0, 1, SLOTS / 2, SLOTS - 1] {
        let expected = Lookup::Found(entry(name(number), 1));
        assert_eq!(lookup(table.memory(), name(number)), expected);
    }
    assert_eq!(lookup(table.memory(), another), Lookup::NotFound);
    table.remove(&name(7)).expect("it is there");
    table.insert(entry(another, 2)).expect("a slot is left");
    assert_eq!(lookup(table.memory(), another), Lookup::Found(entry(another, 2)));
}

/// A program that gives 64 segments new names all the time.
#[test]
fn renaming_does_not_fill_the_table() {
    let mut table = table_of(SLOTS);
    let live = 64;
    (0..live).for_each(|number| table.insert(entry(name(number), 0)).expect("a slot"));
    for number in live..50_000 {
        table.insert(entry(name(number), 0)).expect("a slot");
        table.remove(&name(number - live)).expect("it is there");
        if number % 1000 == 0 {
            let used = slots_of(table.memory()).iter().filter(|s| **s != Slot::Empty).count();
            assert!(used < 2 * live, "{used} slots are used by {live} names");
        }
    }
    check_tombstones(table.memory());
}

#[test]
fn strategies_differ_in_when_they_ask() {
    let mut table = table_of(8);
    let names: Vec<Name> = names_at(6, 8).take(4).collect();
    names[..3].iter().for_each(|name| table.insert(entry(*name, 0)).expect("a slot"));
    let probe = |name: Name, strategy| finish(Probe::in_slots(name, strategy, 8), table.memory());
    let third = Lookup::Found(entry(names[2], 0));
    assert_eq!(probe(names[2], Strategy::Probe), third);
    assert_eq!(probe(names[2], Strategy::Ask), Lookup::Ask);
    assert_eq!(probe(names[2], Strategy::ProbeThenAsk(0)), Lookup::Ask);
    assert_eq!(probe(names[2], Strategy::ProbeThenAsk(2)), Lookup::Ask);
    assert_eq!(probe(names[2], Strategy::ProbeThenAsk(3)), third);
    assert_eq!(probe(names[3], Strategy::ProbeThenAsk(3)), Lookup::Ask);
    assert_eq!(probe(names[3], Strategy::ProbeThenAsk(4)), Lookup::NotFound);
    assert_eq!(probe(names[3], Strategy::ProbeThenAsk(u32::MAX)), Lookup::NotFound);
    let mut probe = Probe::in_slots(names[2], Strategy::Probe, 8);
    let mut reads = Vec::new();
    while let Next::Read(bytes) = probe.next() {
        reads.push(bytes.start / ENTRY_BYTES);
        probe.take(&bytes_at(table.memory(), bytes.start));
    }
    assert_eq!(reads, [6, 7, 0], "around the end of the table");
}

#[test]
fn a_slot_that_stays_torn_or_is_malformed_ends_the_lookup() {
    let memory = SharedBytes::heap(ENTRY_BYTES);
    memory.store(0, 1, Ordering::Relaxed);
    let mut probe = Probe::in_slots(name(0), Strategy::Probe, 1);
    for _ in 1..TORN_READS {
        assert_eq!(advance(&mut probe, &memory), None);
    }
    assert_eq!(advance(&mut probe, &memory), Some(Lookup::Torn { slot: 0 }));
    let mut words = [0; ENTRY_WORDS];
    words[0] = 9;
    for (at, word) in sealed(words).into_iter().enumerate() {
        memory.words().store(at, word, Ordering::Relaxed);
    }
    let reason = Malformed::Kind(9);
    assert_eq!(lookup(&memory, name(0)), Lookup::Malformed { slot: 0, reason });
}

/// One thread changes a table of few slots as fast as it can, another one looks up.
#[test]
fn a_reader_beside_a_writer_sees_no_mixture() {
    const STABLE: usize = 4;
    const PASSING: usize = 7;
    const LOOKUPS: usize = 100_000;
    /// Ends the writer, also if the reader panics.
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let mut table = table_of(12);
    let memory = table.memory().clone();
    (0..STABLE).for_each(|number| table.insert(entry(name(number), 0)).expect("a slot"));
    let is_done = AtomicBool::new(false);
    let (mut missed, mut newer) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for generation in 1.. {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                let passing = name(STABLE + generation as usize % PASSING);
                if table.remove(&passing).is_none() {
                    table.insert(entry(passing, generation)).expect("a slot");
                }
            }
        });
        let _done = Done(&is_done);
        let mut last = [0; PASSING];
        for (count, number) in (0..STABLE + PASSING).cycle().enumerate() {
            // The writer may start late.
            if count >= LOOKUPS && missed > 0 && newer > 100 {
                break;
            }
            match lookup(&memory, name(number)) {
                Lookup::Found(seen) => {
                    assert_eq!(seen, entry(name(number), seen.generation), "a mixture");
                    if let Some(last) = number.checked_sub(STABLE).map(|at| &mut last[at]) {
                        assert!(*last <= seen.generation, "an entry that was removed before");
                        newer += usize::from(*last < seen.generation);
                        *last = seen.generation;
                    }
                }
                Lookup::NotFound if number >= STABLE => missed += 1,
                // The writer was interrupted.
                Lookup::Torn { .. } => {}
                other => panic!("{other:?} for name {number}"),
            }
        }
    });
}
