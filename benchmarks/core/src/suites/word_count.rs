//! Threads that count the words of one text: in a map sharded over the threads of a rack, in concurrent
//! maps, and in maps of their own.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bench_kit::harness::Limit::AtLeast;
use bench_kit::harness::{Bar, Case, Peer, Placement, Suite, Unit};
use bench_kit::measure::sampling::StartBarrier;
use bench_kit::measure::watch::WaitMode;
use bench_kit::product::words::{self, TEXT, Way, count_words};
use dashmap::DashMap;

/// Maps behind locks: as many as dashmap makes on two processors.
const LOCKED_MAPS: usize = 8;

/// The suite `word-count`.
pub(crate) fn suite() -> Suite {
    let about = "a text of 1,000,000 words, 20,000 different ones, zipfian; an operation is a word; all \
                 maps have std's hasher";
    let mut suite = Suite::new("word-count", about, Placement::Pair);
    let two = words::counted(2, Way::Scatter)
        .bar(Peer::case("gossamer/scatter, 1 thread"), Bar::ratio(AtLeast(1.5)))
        .bar(Peer::case("dashmap/2 threads"), Bar::ratio(AtLeast(1.0 / 1.1)));
    suite.push(words::counted(1, Way::Scatter).beside(Peer::case("dashmap/1 thread")));
    suite.push(two);
    for threads in [1, 2] {
        suite.push(words::counted(threads, Way::Each));
    }
    for threads in [1, 2] {
        suite.push(shared::<DashMap<String, u64>>(threads));
        suite.push(shared::<Locked>(threads));
    }
    let own = "none/a map of its own for each of 2 threads";
    suite.push(counting(own, 2, || (), |()| HashMap::new(), count_in));
    suite
}

/// A map that several threads count in.
trait Concurrent: Default + Send + Sync + 'static {
    const NAME: &'static str;
    fn count(&self, word: &str);
}

impl Concurrent for DashMap<String, u64> {
    const NAME: &'static str = "dashmap";

    #[inline]
    fn count(&self, word: &str) {
        match self.get_mut(word) {
            Some(mut count) => *count += 1,
            None => *self.entry(word.to_owned()).or_default() += 1,
        }
    }
}

/// Maps behind locks of std, on cache lines of their own.
struct Locked {
    maps: [Apart; LOCKED_MAPS],
    hasher: RandomState,
}

#[derive(Default)]
#[repr(align(128))]
struct Apart(Mutex<HashMap<String, u64>>);

impl Default for Locked {
    fn default() -> Self {
        Locked { maps: Default::default(), hasher: RandomState::new() }
    }
}

impl Concurrent for Locked {
    const NAME: &'static str = "lock/sharded std Mutex";

    #[inline]
    fn count(&self, word: &str) {
        let map = &self.maps[self.hasher.hash_one(word) as usize % LOCKED_MAPS].0;
        count_in(&mut map.lock().unwrap_or_else(PoisonError::into_inner), word);
    }
}

#[inline]
fn count_in(map: &mut HashMap<String, u64>, word: &str) {
    match map.get_mut(word) {
        Some(count) => *count += 1,
        None => _ = map.insert(word.to_owned(), 1),
    }
}

fn shared<M: Concurrent>(threads: usize) -> Case {
    let plural = if threads == 1 { "" } else { "s" };
    let name = format!("{}/{threads} thread{plural}", M::NAME);
    counting(name, threads, Arc::<M>::default, Arc::clone, |map, word| map.count(word))
}

/// One or two threads count in what `begin` makes for each of them of what they share.
fn counting<S: Sync, M>(
    name: impl Into<String>,
    threads: usize,
    shared: impl Fn() -> S + 'static,
    begin: impl Fn(&S) -> M + Sync + 'static,
    count: impl Fn(&mut M, &str) + Sync + 'static,
) -> Case {
    Case::new(name, Unit::Mops, move |sampler| {
        LazyLock::force(&TEXT);
        let shared = shared();
        let work = |index| {
            let (shared, begin, count) = (&shared, &begin, &count);
            move |barrier: StartBarrier<'_>| {
                let mut map = begin(shared);
                let stop = barrier.wait();
                if index >= threads {
                    return 0;
                }
                let of = (index, threads);
                let words = count_words(of, || stop.is_set(), |word| count(&mut map, word));
                black_box(&mut map);
                words
            }
        };
        sampler.pair(WaitMode::Blocks, work(0), work(1))
    })
}
