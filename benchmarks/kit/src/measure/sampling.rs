//! [`Sampler`]: takes one sample of a case, on one core or two.
//!
//! [`Sampler::pair`] runs two pinned threads for the sample's time and yields millions of
//! operations a second; [`Sampler::single_thread`] runs one pinned thread and yields nanoseconds
//! per operation.

use std::cell::Cell;
use std::hint::spin_loop;
use std::panic::resume_unwind;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::cores::{Cores, on_core, pin};
use super::cycles;
use super::latency::Class;
use super::watch::{MAX_LOST, WaitMode, Watch};

/// Why a case has no sample.
#[derive(Debug, Error)]
pub enum CaseError {
    /// The sample was disturbed; the harness counts this and retries.
    #[error("disturbed: {0}")]
    Disturbed(String),
    /// The case has no sample in this round, and another try would not bring one.
    #[error("{0}")]
    Empty(String),
    /// A program that the case needs is not on this machine; reported, but not a failure.
    #[error("{0}")]
    Absent(String),
    /// The case cannot be measured; the harness reports this and skips it.
    #[error("{0}")]
    Failed(String),
}

impl From<std::io::Error> for CaseError {
    fn from(e: std::io::Error) -> CaseError {
        CaseError::Failed(e.to_string())
    }
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// In the unit of the case, except that a case in cycles reads nanoseconds.
    pub value: f64,
    /// Core cycles per nanosecond around the sample, where one core took it.
    pub cycles_per_ns: Option<f64>,
    /// How far apart the cores were, where a foreign program took the sample and says so itself.
    pub class: Option<Class>,
}

impl Reading {
    /// A reading of which only the value is known.
    pub fn of(value: f64) -> Reading {
        Reading { value, cycles_per_ns: None, class: None }
    }
}

/// The cores and the duration of one sample.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    /// The cores to measure on.
    pub cores: Cores,
    /// The duration of a sample.
    pub time: Duration,
}

/// The barrier at which each thread of [`Sampler::pair`] waits for the other once it is set up.
#[derive(Debug)]
pub struct StartBarrier<'a> {
    shared: &'a Shared,
    watch: &'a Cell<Option<Watch>>,
    wait_mode: WaitMode,
    arrived: bool,
}

/// Tells a thread of [`Sampler::pair`] to stop.
#[derive(Clone, Copy, Debug)]
pub struct Stop<'a>(&'a AtomicBool);

#[derive(Debug)]
#[repr(align(128))]
struct Shared {
    over: AtomicBool,
    ready: Ready,
}

#[derive(Debug)]
#[repr(align(128))]
struct Ready(AtomicUsize);

impl<'a> StartBarrier<'a> {
    /// Waits until both threads are here; the sample starts when this returns.
    pub fn wait(mut self) -> Stop<'a> {
        self.arrive();
        while self.shared.ready.0.load(Acquire) < 2 {
            spin_loop();
        }
        self.watch.set(Some(Watch::start(self.wait_mode)));
        Stop(&self.shared.over)
    }

    fn arrive(&mut self) {
        if !std::mem::replace(&mut self.arrived, true) {
            self.shared.ready.0.fetch_add(1, SeqCst);
        }
    }
}

impl Drop for StartBarrier<'_> {
    // A thread that fails before it is ready must not block the other one.
    fn drop(&mut self) {
        self.arrive();
    }
}

impl Stop<'_> {
    /// True once the sample is over.
    #[inline(always)]
    pub fn is_set(self) -> bool {
        self.0.load(Relaxed)
    }
}

impl Sampler {
    /// Runs `first` and `second` at the same time, each on its core, and adds up the operations
    /// they return. Each waits at the barrier once it is set up and works until its stop flag is
    /// set; a server returns 0 and ends when its client has ended.
    ///
    /// # Errors
    /// [`CaseError::Disturbed`] when a thread lost more than 3 % of its time,
    /// [`CaseError::Failed`] when a thread cannot be pinned.
    ///
    /// # Panics
    /// With the panic of either closure.
    pub fn pair(
        &self,
        wait_mode: WaitMode,
        first: impl FnOnce(StartBarrier<'_>) -> u64 + Send,
        second: impl FnOnce(StartBarrier<'_>) -> u64 + Send,
    ) -> Result<Reading, CaseError> {
        let shared = Shared { over: AtomicBool::new(false), ready: Ready(AtomicUsize::new(0)) };
        let (ends, spent) = thread::scope(|scope| {
            let nodes = [
                scope.spawn(|| worker(self.cores.first, &shared, wait_mode, first)),
                scope.spawn(|| worker(self.cores.second, &shared, wait_mode, second)),
            ];
            while shared.ready.0.load(Acquire) < 2 {
                thread::sleep(Duration::from_micros(100));
            }
            let start = Instant::now();
            thread::sleep(self.time);
            shared.over.store(true, SeqCst);
            let spent = start.elapsed();
            (nodes.map(|s| s.join().unwrap_or_else(|panic| resume_unwind(panic))), spent)
        });
        let mut total = 0;
        for end in ends {
            let (operations, lost) = end?;
            undisturbed(lost)?;
            total += operations;
        }
        Ok(Reading::of(total as f64 / spent.as_secs_f64() / 1e6))
    }

    /// Runs `body` on the first core; it sets up and then calls [`SingleThread::measure`] once.
    ///
    /// # Errors
    /// [`CaseError::Disturbed`] when the thread lost more than 3 % of its time or its clock changed
    /// by more than 5 % during the sample, [`CaseError::Failed`] when it cannot be pinned.
    ///
    /// # Panics
    /// With the panic of `body`, and when `body` measures nothing.
    pub fn single_thread(
        &self,
        body: impl FnOnce(&mut SingleThread) + Send,
    ) -> Result<Reading, CaseError> {
        self.try_single_thread(|thread| {
            body(thread);
            Ok(())
        })
    }

    /// As [`Sampler::single_thread`], for a body that may fail to set up.
    ///
    /// # Errors
    /// As [`Sampler::single_thread`], and the error of `body`.
    ///
    /// # Panics
    /// As [`Sampler::single_thread`].
    pub fn try_single_thread(
        &self,
        body: impl FnOnce(&mut SingleThread) -> Result<(), CaseError> + Send,
    ) -> Result<Reading, CaseError> {
        let mut alone = SingleThread { time: self.time, seen: None };
        on_core(self.cores.first, || body(&mut alone))??;
        let seen = alone.seen.expect("a single-threaded case must call `measure`");
        undisturbed(seen.lost)?;
        let [before, after] = seen.cycles_per_ns;
        if (before - after).abs() > 0.05 * before {
            return Err(CaseError::Disturbed(format!(
                "the clock went from {before:.2} to {after:.2} GHz"
            )));
        }
        Ok(Reading { cycles_per_ns: Some((before + after) / 2.0), ..Reading::of(seen.ns) })
    }
}

/// The one thread of [`Sampler::single_thread`].
#[derive(Debug)]
pub struct SingleThread {
    time: Duration,
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    ns: f64,
    lost: f64,
    cycles_per_ns: [f64; 2],
}

impl SingleThread {
    /// Times `work(n)`, which performs n operations, with an n that fills the sample's time; a
    /// first part of it, not counted, finds n and warms up. May be called on another thread than
    /// the case's, which must be pinned to the same core.
    pub fn measure(&mut self, mut work: impl FnMut(u64)) {
        self.measure_timed(|n| {
            let start = Instant::now();
            work(n);
            start.elapsed()
        });
    }

    /// As [`SingleThread::measure`], but only the time that `work` itself returns counts: for
    /// operations that cannot be repeated without something else in between.
    pub fn measure_timed(&mut self, mut work: impl FnMut(u64) -> Duration) {
        let mut n = 64u64;
        let rate = loop {
            let start = Instant::now();
            work(n);
            let spent = start.elapsed();
            if spent * 10 > self.time || n > u64::MAX / 8 {
                break n as f64 / spent.as_secs_f64();
            }
            n *= 4;
        };
        let n = ((rate * self.time.as_secs_f64()) as u64).max(1);
        let before = cycles::per_ns();
        let watch = Watch::start(WaitMode::Polls);
        let counts = work(n);
        let share = watch.stop();
        let after = cycles::per_ns();
        self.seen = Some(Seen {
            ns: counts.as_secs_f64() * 1e9 / n as f64,
            lost: share.lost,
            cycles_per_ns: [before, after],
        });
    }
}

fn worker(
    core: usize,
    shared: &Shared,
    wait_mode: WaitMode,
    work: impl FnOnce(StartBarrier<'_>) -> u64,
) -> std::io::Result<(u64, f64)> {
    let watch = Cell::new(None);
    let barrier = StartBarrier { shared, watch: &watch, wait_mode, arrived: false };
    pin(core)?;
    let operations = work(barrier);
    Ok((operations, watch.take().map_or(0.0, |watch| watch.stop().lost)))
}

/// Fits a case that watches its threads by itself.
///
/// # Errors
/// [`CaseError::Disturbed`] when `lost`, a share of 0 to 1, is more than 3 %.
pub fn undisturbed(lost: f64) -> Result<(), CaseError> {
    if lost > MAX_LOST {
        return Err(CaseError::Disturbed(format!(
            "a thread lost {:.1} % of its time",
            lost * 100.0
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler() -> Sampler {
        let cores = Cores::of_this_process().expect("two cores");
        Sampler { cores, time: Duration::from_millis(5) }
    }

    #[test]
    fn both_threads_run_until_the_stop_and_their_operations_add_up() {
        let work = |barrier: StartBarrier<'_>| {
            let stop = barrier.wait();
            while !stop.is_set() {
                thread::sleep(Duration::from_micros(50));
            }
            1_000_000
        };
        let reading = sampler().pair(WaitMode::Blocks, work, work);
        match reading {
            Ok(reading) => assert!(reading.value > 0.0 && reading.value < 400.0, "{reading:?}"),
            Err(error) => assert!(matches!(error, CaseError::Disturbed(_)), "{error}"),
        }
    }

    #[test]
    fn a_pair_that_should_poll_and_sleeps_is_disturbed() {
        let sleeps = |barrier: StartBarrier<'_>| {
            barrier.wait();
            thread::sleep(Duration::from_millis(20));
            1
        };
        let error = sampler().pair(WaitMode::Polls, sleeps, sleeps).expect_err("slept");
        assert!(matches!(error, CaseError::Disturbed(_)), "{error}");
    }

    #[test]
    fn a_thread_that_never_waits_at_the_barrier_does_not_block_the_other() {
        let _ = sampler().pair(
            WaitMode::Blocks,
            |_| 0,
            |barrier| {
                barrier.wait();
                0
            },
        );
    }

    #[test]
    fn a_single_thread_case_measures_all_its_operations() {
        let mut calls = Vec::new();
        let _ = sampler().single_thread(|thread| thread.measure(|n| calls.push(n)));
        assert!(calls.len() > 2 && calls.iter().all(|&n| n > 0), "{calls:?}");
    }
}
