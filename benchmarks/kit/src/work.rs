//! What a critical section does, and what a thread does between two of them.
//!
//! Locks, channel servers and delegation run the same sections on the same data, so that only the
//! way to share differs.

use std::arch::asm;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

/// A shared object and the operation on it.
pub trait Section: Send + 'static {
    /// The object before the first operation.
    fn fresh() -> Self;

    /// One operation; `seed` chooses what it touches.
    fn run(&mut self, seed: u64) -> u64;

    /// How many operations there have been.
    fn runs(&self) -> u64;
}

/// A counter; the operation is a fetch-and-add.
#[derive(Debug, Default)]
pub struct Counter(pub u64);

impl Section for Counter {
    fn fresh() -> Counter {
        Counter(0)
    }

    #[inline(always)]
    fn run(&mut self, _seed: u64) -> u64 {
        self.0 += 1;
        self.0
    }

    fn runs(&self) -> u64 {
        self.0
    }
}

/// A sum; the operation adds the seed, which the caller has to hand over.
#[derive(Debug, Default)]
pub struct Adder {
    sum: u64,
    runs: u64,
}

impl Section for Adder {
    fn fresh() -> Adder {
        Adder::default()
    }

    #[inline(always)]
    fn run(&mut self, seed: u64) -> u64 {
        self.sum = self.sum.wrapping_add(seed);
        self.runs += 1;
        self.sum
    }

    fn runs(&self) -> u64 {
        self.runs
    }
}

/// 64 KiB in cache lines; the operation changes eight of them, chosen by the seed. Whoever runs all
/// operations keeps the lines in its own cache.
#[derive(Debug)]
pub struct Lines(Box<[Line; LINES]>);

const LINES: usize = 1024;
const TOUCHED: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line(u64);

impl Section for Lines {
    fn fresh() -> Lines {
        Lines(Box::new([Line::default(); LINES]))
    }

    #[inline(always)]
    fn run(&mut self, seed: u64) -> u64 {
        let (mut at, mut sum) = (seed, 0);
        for _ in 0..TOUCHED {
            at = next(at);
            let line = &mut self.0[(at >> 33) as usize % LINES];
            line.0 += 1;
            sum += line.0;
        }
        sum
    }

    fn runs(&self) -> u64 {
        self.0.iter().map(|line| line.0).sum::<u64>() / TOUCHED as u64
    }
}

/// The next number of a linear congruential sequence; its upper bits are good enough to pick lines.
#[inline(always)]
pub fn next(number: u64) -> u64 {
    number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// Private work of a given length, which touches no memory.
#[derive(Clone, Copy, Debug)]
pub struct Think {
    steps: u32,
}

impl Think {
    /// Work of about `ns` nanoseconds; none at all for 0.
    pub fn of_ns(ns: u32) -> Think {
        if ns == 0 {
            return Think { steps: 0 };
        }
        static STEP_NS: OnceLock<f64> = OnceLock::new();
        let step = *STEP_NS.get_or_init(step_ns);
        Think { steps: (f64::from(ns) / step).round().max(1.0) as u32 }
    }

    /// Whether there is any work at all.
    pub fn is_some(self) -> bool {
        self.steps > 0
    }

    /// Does the work on `number`, and returns what became of it, which is also a fresh seed.
    #[inline(always)]
    pub fn work(self, mut number: u64) -> u64 {
        for _ in 0..self.steps {
            number = next(number);
            // SAFETY: an empty instruction that claims to change one register; it keeps the
            // compiler from folding several steps into one.
            unsafe {
                asm!("/* {0} */", inout(reg) number, options(nomem, nostack, preserves_flags));
            }
        }
        number
    }
}

/// How long one step takes: the shortest of a few bursts, as interruptions only prolong them.
fn step_ns() -> f64 {
    let burst = |_| {
        let work = Think { steps: 100_000 };
        let start = Instant::now();
        black_box(work.work(black_box(1)));
        start.elapsed().as_nanos() as f64 / f64::from(work.steps)
    };
    (0..9).map(burst).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lines_section_changes_eight_lines() {
        let mut lines = Lines::fresh();
        lines.run(3);
        assert_eq!(lines.0.iter().map(|line| line.0).sum::<u64>(), 8);
        lines.run(4);
        assert_eq!(lines.0.iter().map(|line| line.0).sum::<u64>(), 16);
        assert_eq!(lines.runs(), 2);
    }

    #[test]
    fn longer_thoughts_take_more_steps() {
        assert_eq!(Think::of_ns(0).steps, 0);
        let (short, long) = (Think::of_ns(50).steps, Think::of_ns(300).steps);
        assert!(short >= 1 && long > 5 * short && long < 7 * short.max(3), "{short} {long}");
    }
}
