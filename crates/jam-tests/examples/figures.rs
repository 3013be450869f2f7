//! Prints what a cached jam costs beside a delegated closure that does the same, with 64 calls
//! outstanding and with one, and Server-Side Sum and Indirect Put with payloads in each mode: `cargo run --release -p gossamer-jam-tests --example figures` between
//! two threads; `-- --hosts 2 --threads 1` between two processes. `FIGURES=TEXT` in the environment
//! measures only what has the text in its name,
//! `ROUNDS=NUMBER` so often.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use gossamer::jam::{Inject, Mode, Sendable};
use gossamer::{Rack, RackError, Trust};
use gossamer_jam_tests::Table;
use gossamer_jam_tests::jams::indirect_put::{INDIRECT_PUT, PutArgs};
use gossamer_jam_tests::jams::server_side_sum::SERVER_SIDE_SUM;
use gossamer_jam_tests::jams::slot::SLOT;

/// Bytes of payloads.
const PAYLOADS: [usize; 5] = [4, 64, 512, 4 << 10, 32 << 10];
const CALLS: u64 = 20_000;
const OUTSTANDING: u64 = 64;

/// Nanoseconds for each of `CALLS` calls, of which so many are outstanding.
fn outstanding(call: impl Fn(u64, Rc<Cell<u64>>)) -> f64 {
    let done = Rc::new(Cell::new(0));
    let start = Instant::now();
    for number in 0..CALLS {
        while number - done.get() >= OUTSTANDING {
            gossamer::yield_now();
        }
        call(number, done.clone());
    }
    while done.get() < CALLS {
        gossamer::yield_now();
    }
    start.elapsed().as_nanos() as f64 / CALLS as f64
}

fn one_by_one(call: impl Fn(u64)) -> f64 {
    let start = Instant::now();
    (0..CALLS / 4).for_each(call);
    start.elapsed().as_nanos() as f64 / (CALLS / 4) as f64
}

fn many(table: &Trust<Table>, mode: Mode) -> f64 {
    let jam = SLOT.in_mode(mode);
    outstanding(|number, done| {
        table.inject_then(&jam, number & 63, &[], move |slot| {
            assert!(slot.is_ok());
            done.set(done.get() + 1);
        });
    })
}

fn main() -> Result<(), RackError> {
    let rack = Rack::from_args()?;
    let is_plain = !std::env::args().any(|word| word == "--hosts");
    let rack = if is_plain { rack.threads(2) } else { rack };
    rack.run(|| {
        let last = gossamer::trustees().last().expect("a thread");
        let table = last.entrust_with(|()| Table::new(1 << 16), ());
        (0..64).for_each(|key| assert!(table.inject(&SLOT, key, &[]).is_ok()));
        let mut arms: Vec<(String, Box<dyn Fn() -> f64 + '_>)> = Vec::new();
        let words: [(&str, &dyn Fn() -> f64); 7] = [
            ("apply, 64 outstanding", &|| {
                outstanding(|number, done| {
                    table.apply_with_then(
                        gossamer_jam_tests::table_slot,
                        number & 63,
                        move |_: u64| done.set(done.get() + 1),
                    );
                })
            }),
            ("cached, 64 outstanding", &|| many(&table, Mode::Automatic)),
            ("local, 64 outstanding", &|| many(&table, Mode::Local)),
            ("injected, 64 outstanding", &|| many(&table, Mode::Injected)),
            ("apply, one", &|| {
                one_by_one(|number| {
                    table.apply_with(gossamer_jam_tests::table_slot, number & 63);
                })
            }),
            ("cached, one", &|| {
                one_by_one(|number| assert!(table.inject(&SLOT, number & 63, &[]).is_ok()))
            }),
            ("local, one", &|| {
                let jam = SLOT.in_mode(Mode::Local);
                one_by_one(|number| assert!(table.inject(&jam, number & 63, &[]).is_ok()))
            }),
        ];
        arms.extend(words.map(|(name, arm)| (name.to_owned(), Box::new(arm) as _)));
        for bytes in PAYLOADS {
            for mode in [Mode::Local, Mode::Automatic, Mode::Injected] {
                let (numbers, payload) = (vec![1; bytes / 4], vec![7; bytes]);
                let name = |jam| format!("{jam}, {mode:?}, {bytes} bytes, one");
                let sums = table.clone();
                arms.push((
                    name("sum"),
                    Box::new(move || {
                        let jam = SERVER_SIDE_SUM.in_mode(mode);
                        one_by_one(|_| assert!(sums.inject(&jam, (), &numbers).is_ok()))
                    }),
                ));
                let puts = table.clone();
                arms.push((
                    name("put"),
                    Box::new(move || {
                        let jam = INDIRECT_PUT.in_mode(mode);
                        one_by_one(|number| {
                            let args = PutArgs { key: number & 7, offset: 0 };
                            assert!(puts.inject(&jam, args, &payload).is_ok());
                        })
                    }),
                ));
            }
        }
        let only = std::env::var("FIGURES").unwrap_or_default();
        let arms: Vec<_> = arms.into_iter().filter(|(name, _)| name.contains(&only)).collect();
        let mut times = vec![Vec::new(); arms.len()];
        let rounds = std::env::var("ROUNDS").map_or(31, |rounds| rounds.parse().expect("a number"));
        for _ in 0..rounds {
            for (arm, times) in arms.iter().zip(&mut times) {
                times.push(arm.1());
            }
        }
        for ((name, _), times) in arms.iter().zip(&mut times) {
            times.sort_by(f64::total_cmp);
            println!("{:8.1} ns (least {:8.1})  {name}", times[rounds / 2], times[0]);
        }
    })
}
