//! What a case is handed to take one sample: the cores, the time, and the two ways to use them.
//!
//! [`Room::pair`] runs two pinned threads for the sample's time and yields millions of operations a
//! second; [`Room::alone`] runs one pinned thread and yields nanoseconds per operation.

use std::cell::Cell;
use std::hint::spin_loop;
use std::panic::resume_unwind;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::cores::{Cores, on_core, pin};
use super::cycles;
use super::latency::Class;
use super::watch::{MOST_LOST, Manner, Watch};

/// Why a case has no sample to give.
#[derive(Debug, Error)]
pub enum CaseError {
    /// Something foreign disturbed it; the harness counts this and tries again.
    #[error("disturbed: {0}")]
    Disturbed(String),
    /// A foreign program that it needs is not on this machine; reported, and no fault.
    #[error("{0}")]
    Absent(String),
    /// It cannot be measured here; the harness reports this and gives the case up.
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

/// Cores and time for one sample.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Where to measure.
    pub cores: Cores,
    /// For how long.
    pub time: Duration,
}

/// Where a thread of [`Room::pair`] waits, set up and ready, for the other one.
#[derive(Debug)]
pub struct Gate<'a> {
    shared: &'a Shared,
    watch: &'a Cell<Option<Watch>>,
    manner: Manner,
    through: bool,
}

/// Tells a thread of [`Room::pair`] when its time is up.
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

impl<'a> Gate<'a> {
    /// Waits until both threads stand here; the sample's time begins with the return.
    pub fn open(mut self) -> Stop<'a> {
        self.arrive();
        while self.shared.ready.0.load(Acquire) < 2 {
            spin_loop();
        }
        self.watch.set(Some(Watch::start(self.manner)));
        Stop(&self.shared.over)
    }

    fn arrive(&mut self) {
        if !std::mem::replace(&mut self.through, true) {
            self.shared.ready.0.fetch_add(1, SeqCst);
        }
    }
}

impl Drop for Gate<'_> {
    // A thread that gives up before it is ready must not keep the other one waiting.
    fn drop(&mut self) {
        self.arrive();
    }
}

impl Stop<'_> {
    /// True once the sample's time is over.
    #[inline(always)]
    pub fn now(self) -> bool {
        self.0.load(Relaxed)
    }
}

impl Room {
    /// Runs `first` and `second` at the same time, each on its core, and adds up the operations
    /// they return. Each opens the gate when it is set up and works until its stop says so; a
    /// server returns 0 and ends when its client is gone.
    ///
    /// # Errors
    /// [`CaseError::Disturbed`] when a thread lost more than 3 % of its time,
    /// [`CaseError::Failed`] when a thread cannot be pinned.
    ///
    /// # Panics
    /// With the panic of either closure.
    pub fn pair(
        &self,
        manner: Manner,
        first: impl FnOnce(Gate<'_>) -> u64 + Send,
        second: impl FnOnce(Gate<'_>) -> u64 + Send,
    ) -> Result<Reading, CaseError> {
        let shared = Shared { over: AtomicBool::new(false), ready: Ready(AtomicUsize::new(0)) };
        let (ends, spent) = thread::scope(|scope| {
            let seats = [
                scope.spawn(|| seat(self.cores.first, &shared, manner, first)),
                scope.spawn(|| seat(self.cores.second, &shared, manner, second)),
            ];
            while shared.ready.0.load(Acquire) < 2 {
                thread::sleep(Duration::from_micros(100));
            }
            let start = Instant::now();
            thread::sleep(self.time);
            shared.over.store(true, SeqCst);
            let spent = start.elapsed();
            (seats.map(|s| s.join().unwrap_or_else(|panic| resume_unwind(panic))), spent)
        });
        let mut total = 0;
        for end in ends {
            let (operations, lost) = end?;
            undisturbed(lost)?;
            total += operations;
        }
        Ok(Reading::of(total as f64 / spent.as_secs_f64() / 1e6))
    }

    /// Runs `body` on the first core; it sets up and then calls [`Alone::measure`] once.
    ///
    /// # Errors
    /// [`CaseError::Disturbed`] when the thread lost more than 3 % of its time or its clock changed
    /// by more than 5 % during the sample, [`CaseError::Failed`] when it cannot be pinned.
    ///
    /// # Panics
    /// With the panic of `body`, and when `body` measures nothing.
    pub fn alone(&self, body: impl FnOnce(&mut Alone) + Send) -> Result<Reading, CaseError> {
        self.try_alone(|alone| {
            body(alone);
            Ok(())
        })
    }

    /// As [`Room::alone`], for a body that may fail to set up.
    ///
    /// # Errors
    /// As [`Room::alone`], and the error of `body`.
    ///
    /// # Panics
    /// As [`Room::alone`].
    pub fn try_alone(
        &self,
        body: impl FnOnce(&mut Alone) -> Result<(), CaseError> + Send,
    ) -> Result<Reading, CaseError> {
        let mut alone = Alone { time: self.time, seen: None };
        on_core(self.cores.first, || body(&mut alone))??;
        let seen = alone.seen.expect("a case that runs alone must call `measure`");
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

/// The one thread of [`Room::alone`].
#[derive(Debug)]
pub struct Alone {
    time: Duration,
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    ns: f64,
    lost: f64,
    cycles_per_ns: [f64; 2],
}

impl Alone {
    /// Times `work(n)`, which performs n operations, with an n that fills the sample's time; a
    /// first part of it, not counted, finds n and warms up. May be called on another thread than
    /// the case's, which must be pinned to the same core.
    pub fn measure(&mut self, mut work: impl FnMut(u64)) {
        self.measure_part(|n| {
            let start = Instant::now();
            work(n);
            start.elapsed()
        });
    }

    /// As [`Alone::measure`], but only the time that `work` itself returns counts: for operations
    /// that cannot be repeated without something else in between.
    pub fn measure_part(&mut self, mut work: impl FnMut(u64) -> Duration) {
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
        let watch = Watch::start(Manner::Polls);
        let counts = work(n);
        let stint = watch.stop();
        let after = cycles::per_ns();
        self.seen = Some(Seen {
            ns: counts.as_secs_f64() * 1e9 / n as f64,
            lost: stint.lost,
            cycles_per_ns: [before, after],
        });
    }
}

fn seat(
    core: usize,
    shared: &Shared,
    manner: Manner,
    work: impl FnOnce(Gate<'_>) -> u64,
) -> std::io::Result<(u64, f64)> {
    let watch = Cell::new(None);
    let gate = Gate { shared, watch: &watch, manner, through: false };
    pin(core)?;
    let operations = work(gate);
    Ok((operations, watch.take().map_or(0.0, |watch| watch.stop().lost)))
}

/// Fits a case that watches its threads by itself.
///
/// # Errors
/// [`CaseError::Disturbed`] when `lost`, a share of 0 to 1, is more than 3 %.
pub fn undisturbed(lost: f64) -> Result<(), CaseError> {
    if lost > MOST_LOST {
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

    fn room() -> Room {
        let cores = Cores::of_this_process().expect("two cores");
        Room { cores, time: Duration::from_millis(5) }
    }

    #[test]
    fn both_threads_run_until_the_stop_and_their_operations_add_up() {
        let work = |gate: Gate<'_>| {
            let stop = gate.open();
            while !stop.now() {
                thread::sleep(Duration::from_micros(50));
            }
            1_000_000
        };
        let reading = room().pair(Manner::Blocks, work, work);
        match reading {
            Ok(reading) => assert!(reading.value > 0.0 && reading.value < 400.0, "{reading:?}"),
            Err(error) => assert!(matches!(error, CaseError::Disturbed(_)), "{error}"),
        }
    }

    #[test]
    fn a_pair_that_should_poll_and_sleeps_is_disturbed() {
        let sleeps = |gate: Gate<'_>| {
            gate.open();
            thread::sleep(Duration::from_millis(20));
            1
        };
        let error = room().pair(Manner::Polls, sleeps, sleeps).expect_err("slept");
        assert!(matches!(error, CaseError::Disturbed(_)), "{error}");
    }

    #[test]
    fn a_thread_that_never_opens_the_gate_does_not_block_the_other() {
        let _ = room().pair(
            Manner::Blocks,
            |_| 0,
            |gate| {
                gate.open();
                0
            },
        );
    }

    #[test]
    fn a_case_alone_measures_all_its_operations() {
        let mut calls = Vec::new();
        let _ = room().alone(|alone| alone.measure(|n| calls.push(n)));
        assert!(calls.len() > 2 && calls.iter().all(|&n| n > 0), "{calls:?}");
    }
}
