//! Measures the placement policies with three small programs that name no trustee. Compare
//!
//! ```sh
//! cargo build --release -p gossamer-rack --example placement
//! target/release/examples/placement --hosts 2 --threads 1 --placement own-host
//! target/release/examples/placement --hosts 2 --threads 1 --placement rack
//! ```
//!
//! - `counter`: all fibers add to one value.
//! - `bank`: fibers move money between many accounts, each a value of its own.
//! - `words`: fibers count words in texts of their own, and add the counts to a table in parts.

use std::collections::HashMap;
use std::time::Instant;

use gossamer::{Rack, RackError, Trust, entrust_with, spawn_with};

const FIBERS: u64 = 64;
const ADDS: u64 = 20_000;
const ACCOUNTS: u64 = 1024;
const TRANSFERS: u64 = 10_000;
const WORDS: u64 = 100_000;
const PARTS: u64 = 16;

type Counts = HashMap<String, u64>;

fn main() -> Result<(), RackError> {
    Rack::from_args()?.run(|| {
        println!("{} threads of {} hosts", gossamer::threads().count(), hosts());
        for (name, program, work) in [
            ("counter", counter as fn(), FIBERS * ADDS),
            ("bank", bank, FIBERS * TRANSFERS),
            ("words", words, FIBERS * WORDS),
        ] {
            program(); // warm
            let mut times: Vec<_> = (0..5)
                .map(|_| {
                    let start = Instant::now();
                    program();
                    start.elapsed().as_secs_f64()
                })
                .collect();
            times.sort_by(f64::total_cmp);
            let rate = work as f64 / times[2] / 1e6;
            println!("{name}: {rate:.2} million a second (median of 5)");
        }
    })
}

fn hosts() -> usize {
    let hosts = gossamer::threads().map(|trustee| trustee.thread().host);
    hosts.collect::<std::collections::HashSet<_>>().len()
}

fn counter() {
    let counter = entrust_with(|()| 0u64, ());
    let add = |counter: Trust<u64>| (0..ADDS).for_each(|_| counter.apply(|n| *n += 1));
    let fibers: Vec<_> = (0..FIBERS).map(|_| spawn_with(add, counter.clone())).collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!(counter.apply(|n| *n), FIBERS * ADDS);
}

fn bank() {
    let accounts: Vec<Trust<i64>> = (0..ACCOUNTS).map(|_| entrust_with(|()| 100i64, ())).collect();
    let transfer = |(accounts, seed): (Vec<Trust<i64>>, u64)| {
        let mut random = Random(seed);
        for _ in 0..TRANSFERS {
            let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
            accounts[from as usize].apply_with(|money, sum| *money -= sum, 1);
            accounts[to as usize].apply_with(|money, sum| *money += sum, 1);
        }
    };
    let fibers: Vec<_> =
        (0..FIBERS).map(|seed| spawn_with(transfer, (accounts.clone(), seed + 1))).collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    let sum: i64 = accounts.iter().map(|account| account.apply(|money| *money)).sum();
    assert_eq!(sum, 100 * ACCOUNTS as i64);
}

fn words() {
    let parts: Vec<Trust<Counts>> =
        (0..PARTS).map(|_| entrust_with(|()| Counts::new(), ())).collect();
    let count = |(parts, seed): (Vec<Trust<Counts>>, u64)| {
        let mut random = Random(seed);
        let mut counts = vec![Counts::new(); PARTS as usize];
        for _ in 0..WORDS {
            let word = random.below(5000);
            *counts[(word % PARTS) as usize].entry(format!("word{word}")).or_default() += 1;
        }
        for (part, counts) in parts.iter().zip(counts) {
            let add = |total: &mut Counts, counts: Counts| {
                counts.into_iter().for_each(|(word, n)| *total.entry(word).or_default() += n);
            };
            part.apply_with(add, counts);
        }
    };
    let fibers: Vec<_> =
        (0..FIBERS).map(|seed| spawn_with(count, (parts.clone(), seed + 1))).collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    let total: u64 =
        parts.iter().map(|part| part.apply(|counts| counts.values().sum::<u64>())).sum();
    assert_eq!(total, FIBERS * WORDS);
}

/// Xorshift: fast, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
