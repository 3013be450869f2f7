//! Every interleaving of an owner that changes its table of names with a peer that looks one up in
//! mapped memory: a name that stays published is found, no entry is a mixture, and a published
//! segment exists. Run by `cargo xtask loom`.
#![cfg(loom)]

use gossamer_segment::testing::{ENTRY_BYTES, Lookup, Next, Probe, Table, home_slot};
use gossamer_segment::{Entry, Name, Published, Strategy};
use loom::sync::Arc;
use primitive::SharedBytes;
use primitive::sync::{AtomicU64, Ordering};

const SLOTS: usize = 2;

/// The names `a`, `b`, ... that are found from the first slot on.
fn names<const COUNT: usize>() -> [Name; COUNT] {
    let mut names = ('a'..='z')
        .map(|letter| Name::new(&letter.to_string()).expect("a name"))
        .filter(|name| home_slot(name, SLOTS) == 0);
    [(); COUNT].map(|()| names.next().expect("enough letters"))
}

/// An entry with few words that are not zero, so that loom has few words to mix.
fn entry(name: Name, generation: u32) -> Entry {
    let id = u64::from(generation);
    Entry { name, generation, what: Published::Trust { thread: 0, id } }
}

fn table(entries: &[Entry]) -> Table {
    let mut table = Table::new(SharedBytes::heap(SLOTS * ENTRY_BYTES));
    entries.iter().for_each(|entry| table.insert(*entry).expect("a slot"));
    table
}

fn lookup(memory: &SharedBytes, name: Name) -> Lookup {
    let mut probe = Probe::in_slots(name, Strategy::Probe, SLOTS);
    loop {
        match probe.next() {
            Next::Read(bytes) => {
                let mut slot = [0; ENTRY_BYTES];
                memory.read_words(bytes.start, &mut slot);
                probe.take(&slot);
            }
            Next::Done(lookup) => return lookup,
        }
    }
}

/// The owner changes its table, which starts with entries `before`, while a peer reads it.
fn model(before: fn() -> Vec<Entry>, owner: fn(&mut Table), reader: fn(&SharedBytes)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let mut table = table(&before());
        let memory = table.memory().clone();
        let peer = loom::thread::spawn(move || reader(&memory));
        owner(&mut table);
        peer.join().unwrap();
    });
}

fn is_torn(lookup: &Lookup) -> bool {
    matches!(lookup, Lookup::Torn { .. })
}

#[test]
fn a_name_is_found_while_one_in_front_of_it_is_removed() {
    model(
        || names::<2>().map(|name| entry(name, 0)).to_vec(),
        |table| {
            table.remove(&names::<2>()[0]).expect("it is there");
        },
        |memory| {
            let [_, name] = names();
            let seen = lookup(memory, name);
            assert!(seen == Lookup::Found(entry(name, 0)) || is_torn(&seen), "{seen:?}");
        },
    );
}

#[test]
fn a_name_is_found_while_another_one_takes_the_place_in_front_of_it() {
    model(
        || names::<2>().map(|name| entry(name, 0)).to_vec(),
        |table| {
            let [first, _, third] = names();
            table.remove(&first).expect("it is there");
            table.insert(entry(third, 0)).expect("a tombstone's slot");
        },
        |memory| {
            let [_, name] = names();
            let seen = lookup(memory, name);
            assert!(seen == Lookup::Found(entry(name, 0)) || is_torn(&seen), "{seen:?}");
        },
    );
}

#[test]
fn a_name_whose_tombstone_in_front_is_cleared_is_not_found_again() {
    model(
        || names::<2>().map(|name| entry(name, 0)).to_vec(),
        |table| {
            let [first, second] = names();
            table.remove(&first).expect("it is there");
            table.remove(&second).expect("it is there");
        },
        |memory| {
            let [_, name] = names();
            let (first, second) = (lookup(memory, name), lookup(memory, name));
            let found = Lookup::Found(entry(name, 0));
            for seen in [&first, &second] {
                assert!(*seen == found || *seen == Lookup::NotFound || is_torn(seen), "{seen:?}");
            }
            assert!(first != Lookup::NotFound || second != found, "it was removed before");
        },
    );
}

/// What a name stands for is written before the name is published.
#[test]
fn who_finds_a_name_sees_what_it_stands_for() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let mut table = table(&[]);
        let memory = table.memory().clone();
        let value = Arc::new(AtomicU64::new(0));
        let peer = {
            let value = value.clone();
            loom::thread::spawn(move || {
                let [name] = names();
                let seen = lookup(&memory, name);
                if seen == Lookup::Found(entry(name, 0)) {
                    assert_eq!(value.load(Ordering::Relaxed), 7, "older than its name");
                } else {
                    assert!(seen == Lookup::NotFound || is_torn(&seen), "{seen:?}");
                }
            })
        };
        value.store(7, Ordering::Relaxed);
        table.insert(entry(names::<1>()[0], 0)).expect("a slot");
        peer.join().unwrap();
    });
}
