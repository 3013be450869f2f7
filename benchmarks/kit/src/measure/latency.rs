//! How far apart two cores are right now.
//!
//! On shared machines the one-way latency of a cache line flips between two values within minutes,
//! and every figure about two threads flips with it. So it is measured right before and right after
//! each sample, and samples of different classes never share a median.

use std::hint::spin_loop;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};
use std::{io, thread};

use serde::Serialize;

use super::cores::{Cores, pin};

/// Below this many nanoseconds one way the cores are near.
pub const NEAR_BELOW_NS: f64 = 70.0;
/// Below this many nanoseconds one way they are far; above it the machine was disturbed.
pub const FAR_BELOW_NS: f64 = 400.0;

/// Distance class of two cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// One way takes under 70 ns: the cores share a cache.
    Near,
    /// One way takes 70 to 400 ns: the line crosses between caches.
    Far,
}

impl Class {
    /// The class of a one-way latency, or `None` when it is that of a disturbed machine.
    ///
    /// ```
    /// use bench_kit::measure::latency::Class;
    /// assert_eq!(Class::of(32.0), Some(Class::Near));
    /// assert_eq!(Class::of(165.0), Some(Class::Far));
    /// assert_eq!(Class::of(4_000.0), None);
    /// ```
    pub fn of(one_way_ns: f64) -> Option<Class> {
        match one_way_ns {
            ns if ns < NEAR_BELOW_NS => Some(Class::Near),
            ns if ns < FAR_BELOW_NS => Some(Class::Far),
            _ => None,
        }
    }

    /// "near" or "far".
    pub fn name(self) -> &'static str {
        match self {
            Class::Near => "near",
            Class::Far => "far",
        }
    }
}

const VOLLEYS: u64 = 9;
const STROKES: u64 = 1_000;
const TIMEOUT: Duration = Duration::from_secs(5);

#[repr(align(128))]
struct Line(AtomicU64);

/// One-way latency of a cache line between `cores`, in nanoseconds: the median of several volleys,
/// so that one interruption does not decide it. Takes about a millisecond.
///
/// # Errors
/// When a thread cannot be pinned, or the two never met within five seconds.
pub fn one_way_ns(cores: Cores) -> io::Result<f64> {
    let ball = Line(AtomicU64::new(0));
    let quit = AtomicBool::new(false);
    let met = |wanted: u64, start: Instant| -> bool {
        let mut spins = 0u32;
        while ball.0.load(Acquire) != wanted {
            spin_loop();
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(4096) && (quit.load(Relaxed) || start.elapsed() > TIMEOUT) {
                quit.store(true, Relaxed);
                return false;
            }
        }
        true
    };
    let last = VOLLEYS * STROKES;
    let serve = || -> io::Result<Vec<f64>> {
        pin(cores.first)?;
        let start = Instant::now();
        let mut volleys = Vec::new();
        for volley in 0..VOLLEYS {
            let began = Instant::now();
            for stroke in volley * STROKES..(volley + 1) * STROKES {
                ball.0.store(2 * stroke + 1, Release);
                if !met(2 * stroke + 2, start) {
                    return Err(io::Error::other("two pinned threads did not meet in 5 s"));
                }
            }
            volleys.push(began.elapsed().as_nanos() as f64 / STROKES as f64 / 2.0);
        }
        Ok(volleys)
    };
    let mut volleys = thread::scope(|scope| {
        let back = scope.spawn(|| -> io::Result<()> {
            pin(cores.second).inspect_err(|_| quit.store(true, Relaxed))?;
            let start = Instant::now();
            for stroke in 0..last {
                if !met(2 * stroke + 1, start) {
                    break;
                }
                ball.0.store(2 * stroke + 2, Release);
            }
            Ok(())
        });
        let served = scope.spawn(|| serve().inspect_err(|_| quit.store(true, Relaxed)));
        let volleys = served.join().expect("the ping-pong does not panic");
        back.join().expect("the ping-pong does not panic").and(volleys)
    })?;
    volleys.sort_by(f64::total_cmp);
    Ok(volleys[volleys.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cores_answer_each_other() {
        let ns = one_way_ns(Cores::of_this_process().expect("two cores")).expect("ping-pong");
        assert!(ns > 1.0, "{ns} ns is less than light needs through a chip");
    }

    #[test]
    fn a_core_that_does_not_exist_ends_the_game() {
        let cores = Cores { first: 0, second: rustix::thread::CpuSet::MAX_CPU - 1 };
        one_way_ns(cores).expect_err("no such core");
    }
}
