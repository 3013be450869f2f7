//! The operations of a data structure are replaced in a running server, under load, without losing a
//! request: the first use of rieds in the paper.
//!
//! A server has an index that it was built to search from end to end. Clients on every thread of the
//! rack find keys by a jam, which calls the server's function `index_find`. Meanwhile a ried is loaded
//! that has a function of this name, and from then on every search halves the index. Nothing is
//! restarted, and the jam is the same.
//!
//! `cargo run --release -p gossamer-jam-tests --example replace_operations` runs two hosts on this
//! machine.

use std::time::Instant;

use gossamer::jam::{self, Inject, LoadedJam, Package, Policy, load_ried};
use gossamer::{Rack, RackError, Trust, spawn_on_with, threads};
use gossamer_jam_tests::INTERFACES;

/// Searches of each client before the change, at least, and as many after it.
const SEARCHES: u64 = 2000;
/// Keys of the index: every third number. Fewer in a build that is not optimised, where a search from end
/// to end takes ten times as long.
const KEYS: u64 = if cfg!(debug_assertions) { 4_000 } else { 20_000 };

/// What the server has.
struct Index {
    keys: Vec<u64>,
    searches: u64,
    /// How often a key was looked at.
    looks: u64,
}

jam::open! {
    Index = "examples.Index@1";
}

jam::property! {
    /// The index, as a jam's types name it.
    struct IndexOfJams = "examples.Index@1";
}

jam::export! {
    /// How many keys there are. Every search asks.
    fn index_len(index: &mut Index) -> u64 {
        index.searches += 1;
        index.keys.len() as u64
    }

    /// One of the keys, which are sorted.
    fn index_key(index: &mut Index, at: u64) -> u64 {
        index.looks += 1;
        index.keys[at as usize]
    }

    /// Where a key is; -1 if it is nowhere.
    fn index_find(index: &mut Index, key: u64) -> i64 {
        let found = (0..index_len(index)).find(|at| index_key(index, *at) == key);
        found.map_or(-1, |at| at as i64)
    }
}

type Find = LoadedJam<&'static mut IndexOfJams, u64, (), i64>;

fn main() -> Result<(), RackError> {
    let arguments = std::env::args().any(|word| word == "--hosts");
    let rack = Rack::from_args()?;
    let rack = if arguments { rack } else { rack.hosts(2) };
    // What its hosts run comes from a host of this rack, and none of their packages has it.
    rack.jams(Policy::AnyPeer).run(replace)
}

/// On a rack whose hosts run its code: all of it.
pub(crate) fn replace() {
    let server = threads().last().expect("a thread");
    let keys = |()| Index { keys: (0..KEYS).map(|n| n * 3).collect(), searches: 0, looks: 0 };
    let index = server.entrust_with(keys, ());
    let stop = gossamer::entrust(false);
    let clients: Vec<_> = threads()
        .map(|thread| spawn_on_with(thread, search, (index.clone(), stop.clone())))
        .collect();
    let count = clients.len() as u64;

    let before = measure(&index, SEARCHES * count);
    let package = Package::parse(INTERFACES).expect("a package");
    let bisect = package.ried("bisect").expect("a ried for this machine");
    let loading = Instant::now();
    load_ried(server, &bisect).expect("a ried of mine");
    let took = loading.elapsed();
    let after = measure(&index, SEARCHES * count);
    stop.apply(|stop| *stop = true);

    let all: u64 = clients.into_iter().map(|client| client.join().expect("a client")).sum();
    assert_eq!(index.apply(|index| index.searches), all, "no request was lost");
    println!("a ried of {} bytes, loaded in {took:.1?}", bisect.bytes().len());
    println!("keys looked at in a search: {before:.1} before, {after:.1} after it");
    println!("{all} searches, none lost, none wrong");
    assert!(after < before / 10.0, "the operation was replaced");
}

/// Waits for this many searches; how many keys each of them has looked at, on average.
fn measure(index: &Trust<Index>, searches: u64) -> f64 {
    let counts = || index.apply(|index| (index.searches, index.looks));
    let (start, looks) = counts();
    loop {
        let (now, looked) = counts();
        if now - start >= searches {
            return (looked - looks) as f64 / (now - start) as f64;
        }
        gossamer::yield_now();
    }
}

/// A client: searches until it is told to stop; how often.
fn search((index, stop): (Trust<Index>, Trust<bool>)) -> u64 {
    let package = Package::parse(INTERFACES).expect("a package");
    let find = Find::from_blob(package.blob("find").expect("a jam")).expect("a jam of mine");
    let mut searches = 0;
    while !(searches % 64 == 0 && stop.apply(|stop| *stop)) {
        let number = searches * 7919 % KEYS;
        let (there, nowhere) = (number * 3, number * 3 + 1);
        let key = if searches % 4 == 3 { nowhere } else { there };
        let at = index.inject(&find, key, &[]).expect("an answer");
        assert_eq!(at, if key == there { number as i64 } else { -1 });
        searches += 1;
    }
    searches
}
