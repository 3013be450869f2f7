//! Core cycles without a cycle counter.
//!
//! Virtual machines often hide the cycle counter, and the time stamp counter ticks at a fixed rate
//! that has nothing to do with the core's. But a chain of additions, each of which needs the result
//! of the one before, runs at exactly one per cycle on every x86-64 core of the last decades;
//! timing it tells the frequency of this moment.

use std::arch::asm;
use std::time::Instant;

const CHAIN: u32 = 100;
const LOOPS: u32 = 1_000;
const BURSTS: usize = 7;

/// Core cycles per nanosecond (GHz) of the calling thread's core right now: the fastest of a few
/// bursts of about 30 microseconds, since an interruption can only make one slower.
pub fn per_ns() -> f64 {
    (0..BURSTS).map(|_| burst()).fold(0.0, f64::max)
}

fn burst() -> f64 {
    let start = Instant::now();
    let (mut left, mut sum, one) = (LOOPS, 0u64, std::hint::black_box(1u64));
    // SAFETY: works on the three registers it names and on the flags, which asm! gives up by
    // default; touches no memory and no stack.
    unsafe {
        asm!(
            "2:",
            ".rept {chain}",
            "add {sum}, {one}",
            ".endr",
            "dec {left:e}",
            "jnz 2b",
            chain = const CHAIN,
            left = inout(reg) left,
            sum = inout(reg) sum,
            one = in(reg) one,
            options(nomem, nostack),
        );
    }
    std::hint::black_box((left, sum));
    f64::from(CHAIN * LOOPS) / start.elapsed().as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frequency_is_that_of_a_computer() {
        let ghz = per_ns();
        assert!((0.2..20.0).contains(&ghz), "{ghz} GHz");
    }
}
