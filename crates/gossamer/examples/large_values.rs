//! What it costs to send 100 MB to another host and back, beside copies of as many bytes in this process:
//!
//! ```sh
//! cargo run --release --example large_values -- --hosts 2 --threads 1
//! ```
//!
//! Bytes and numbers travel as blocks, so `Vec<u8>` and `Vec<u64>` cost the same. A call waits until the
//! whole value has arrived; to use a part while the rest is on its way, send pieces through a channel.

use std::hint::black_box;
use std::time::Instant;

use gossamer::{Rack, RackError, Trust};

const BYTES: usize = 100_000_000;
const ROUNDS: usize = 9;

/// A case: what it is, and what it does once.
type Case<'a> = (&'static str, Box<dyn FnMut() -> usize + 'a>);

fn main() -> Result<(), RackError> {
    Rack::from_args()?.run(|| {
        let last = gossamer::threads().last().expect("a rack has threads");
        let there: Trust<()> = last.entrust_with(|()| (), ());
        let bytes: Vec<u8> = (0..BYTES).map(|byte| byte as u8).collect();
        let words: Vec<u64> = (0..BYTES as u64 / 8).collect();
        let mut used = vec![0u8; BYTES];
        // Calls take what they send, so each pays a clone: one copy into new memory.
        let mut cases: Vec<Case> = vec![
            ("a copy into new memory", Box::new(|| black_box(black_box(&bytes).clone()).len())),
            (
                "a copy into used memory",
                Box::new(|| {
                    black_box(&mut used).copy_from_slice(black_box(&bytes));
                    used.len()
                }),
            ),
            (
                "Vec<u8>, there",
                Box::new(|| there.apply_with(|(), all: Vec<u8>| all.len(), bytes.clone())),
            ),
            (
                "Vec<u8>, there and back",
                Box::new(|| there.apply_with(|(), all: Vec<u8>| all, bytes.clone()).len()),
            ),
            (
                "Vec<u64>, there and back",
                Box::new(|| there.apply_with(|(), all: Vec<u64>| all, words.clone()).len() * 8),
            ),
        ];
        let mut times = vec![Vec::new(); cases.len()];
        // Interleaved, so that what else the machine does hits all of them; the first round makes room.
        for round in 0..=ROUNDS {
            for ((_, run), times) in cases.iter_mut().zip(&mut times) {
                let start = Instant::now();
                assert_eq!(run(), BYTES);
                if round > 0 {
                    times.push(start.elapsed().as_secs_f64() * 1e3);
                }
            }
        }
        println!("{BYTES} bytes, {ROUNDS} rounds: median (least to most), ms");
        for ((name, _), mut times) in cases.into_iter().zip(times) {
            times.sort_by(f64::total_cmp);
            let (least, most) = (times[0], times[ROUNDS - 1]);
            println!("{name:<26} {:>8.1} ({least:.1} to {most:.1})", times[ROUNDS / 2]);
        }
    })
}
