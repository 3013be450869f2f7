//! A table that jams work on, what it exports to them, and a package of such jams.

use std::collections::HashMap;
use std::fmt;

/// The package of this program.
#[allow(missing_docs)]
pub mod jams {
    jam::package!("jams");
}

/// The rieds of this program, and jams that call them.
#[allow(missing_docs)]
pub mod rieds {
    jam::package!("rieds");
}

/// A package that processes of this program do not know: they only have it as bytes, to send it.
pub const UNSEEN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/unseen.jampkg"));

/// The package of the examples, whose programs only have it as bytes.
pub const INTERFACES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/interfaces.jampkg"));

/// A package of jams that break rules, as bytes.
pub const HOSTILE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hostile.jampkg"));

/// Bytes in front of those of a [`Table`] and after them, and what they are.
const GUARD: usize = 64;
const CANARY: u8 = 0xca;

/// Slots by key, and the bytes that they say where to put.
#[derive(Debug)]
pub struct Table {
    slots: HashMap<u64, u64>,
    /// Its bytes, between two guards that no function writes.
    room: Vec<u8>,
    /// The last results that were stored, and how many there have been.
    results: [i64; 64],
    stored: u64,
    /// How often a function of the table has panicked.
    pub panics: u32,
    /// What a jam calls that is [held](table_hold).
    pub hold: Hold,
}

/// What a function of a [`Table`] calls.
#[derive(Default)]
pub struct Hold(pub Option<Box<dyn FnMut() + Send>>);

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hold").field(&self.0.is_some()).finish()
    }
}

jam::open! {
    Table = "jam-tests.Table@1";
}

/// Another type of property.
#[derive(Debug, Default)]
pub struct Other;

jam::open! {
    Other = "jam-tests.Other@1";
}

/// What jams have sent on.
#[derive(Debug, Default)]
pub struct Notes(pub Vec<Vec<u8>>);

jam::open! {
    Notes = "jam-tests.Notes@1";
}

impl Table {
    /// A table of this many bytes.
    pub fn new(bytes: usize) -> Self {
        let mut room = vec![CANARY; GUARD + bytes + GUARD];
        room[GUARD..][..bytes].fill(0);
        let (slots, results, hold) = (HashMap::new(), [0; 64], Hold::default());
        Self { slots, room, results, stored: 0, panics: 0, hold }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.room[GUARD..self.room.len() - GUARD]
    }

    /// Whether the memory around its bytes is as it was.
    pub fn is_intact(&self) -> bool {
        let guards = [&self.room[..GUARD], &self.room[self.room.len() - GUARD..]];
        guards.concat().iter().all(|byte| *byte == CANARY)
    }
}

jam::export! {
    /// Keeps bytes.
    pub fn note(notes: &mut Notes, bytes: &[u8]) {
        notes.0.push(bytes.to_vec());
    }

    /// Keeps nothing.
    pub fn note_panic(_notes: &mut Notes, bytes: &[u8]) {
        panic!("not {bytes:?}");
    }

    /// The place of a key: a new one after those of all others if it has none.
    pub fn table_slot(table: &mut Table, key: u64) -> u64 {
        let new = table.slots.len() as u64 * 64;
        *table.slots.entry(key).or_insert(new)
    }

    /// Copies bytes to a place; false if it is outside of the table.
    pub fn table_write(table: &mut Table, at: u64, bytes: &[u8]) -> bool {
        let end = table.room.len() - GUARD;
        let room = table.room[GUARD..end].get_mut(at as usize..);
        let room = room.and_then(|rest| rest.get_mut(..bytes.len()));
        room.map(|room| room.copy_from_slice(bytes)).is_some()
    }

    /// Stores a result; how many there have been before.
    pub fn table_push(table: &mut Table, sum: i64) -> u64 {
        let stored = table.stored;
        table.results[stored as usize % table.results.len()] = sum;
        table.stored += 1;
        stored
    }

    /// Has the jam wait as long as the test does.
    pub fn table_hold(table: &mut Table) {
        if let Some(hold) = &mut table.hold.0 {
            hold();
        }
    }

    /// How many characters the text has.
    pub fn table_label(_table: &mut Table, text: &str) -> u64 {
        text.chars().count() as u64
    }

    /// Panics.
    pub fn table_panic(table: &mut Table, code: u64) -> u64 {
        table.panics += 1;
        panic!("table panic {code}")
    }

    /// Waits, which a function that jams call must not.
    pub fn table_wait(table: &mut Table) -> u64 {
        gossamer::yield_now();
        table.panics.into()
    }
}
