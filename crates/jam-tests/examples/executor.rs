//! Prints what a call in an executor costs, one at a time, and what starting one does:
//! `cargo run --release -p gossamer-jam-tests --example executor`.

use std::time::Instant;

use gossamer::jam::{Executor, ExecutorError, LoadedJam, Package};
use gossamer_jam_tests::HOSTILE;

/// How often each is measured, and how much is done in each round.
pub(crate) struct Counts {
    pub(crate) rounds: usize,
    pub(crate) calls: usize,
    pub(crate) starts: usize,
}

/// Microseconds of each round, with the name of what was done.
pub(crate) type Times = [(&'static str, Vec<f64>); 3];

/// Measures calls with small and large payloads, and starts.
pub(crate) fn measure(counts: &Counts) -> Result<Times, ExecutorError> {
    let package = Package::parse(HOSTILE).expect("the tests' package");
    let sum = LoadedJam::<(), u64, u32, u64>::from_blob(package.blob("sum").expect("a jam"));
    let sum = sum.expect("a jam of these types");
    let mut executor = Executor::builder().scratch(1 << 20).start()?;
    let (mut small, mut large, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    let words = vec![1; 8 << 10];
    for _ in 0..counts.rounds {
        for (times, payload) in [(&mut small, &words[..1]), (&mut large, &words[..])] {
            let start = Instant::now();
            for _ in 0..counts.calls {
                assert_eq!(executor.run(&sum, 1, payload)?, payload.len() as u64);
            }
            times.push(start.elapsed().as_secs_f64() * 1e6 / counts.calls as f64);
        }
        let start = Instant::now();
        for _ in 0..counts.starts {
            drop(Executor::builder().start()?);
        }
        starts.push(start.elapsed().as_secs_f64() * 1e6 / counts.starts as f64);
    }
    Ok([("a call, 4 bytes", small), ("a call, 32 KiB", large), ("a start and an end", starts)])
}

fn median(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[0])
}

fn main() -> Result<(), ExecutorError> {
    for (name, times) in measure(&Counts { rounds: 31, calls: 2000, starts: 20 })? {
        let (median, least) = median(times);
        println!("{median:8.1} us (least {least:8.1})  {name}");
    }
    Ok(())
}
