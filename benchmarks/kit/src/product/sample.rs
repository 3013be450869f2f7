//! One sample of a rack: start it, let it warm up, see how fast its work goes on, stop it.
//!
//! Every sample has a rack of its own, so that none inherits the memory of another. The first fiber
//! measures: it sleeps while the others work, and asks every thread of the rack before and after
//! how much of its core it had.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use gossamer::{JoinHandle, Rack};

use crate::measure::sampling::{CaseError, Reading, undisturbed};
use crate::measure::watch::{WaitMode, Watch};

/// How long a rack works before it is measured.
const WARM_UP: Duration = Duration::from_millis(10);

thread_local! {
    static WATCH: Cell<Option<Watch>> = const { Cell::new(None) };
}

/// Tells fibers that their time is up.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// True once they should end.
    #[inline(always)]
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Ends them.
    pub fn set(&self) {
        self.0.store(true, Relaxed);
    }
}

/// Fibers at work.
pub struct Load {
    /// They end when it says so.
    pub stop: StopFlag,
    /// To be joined when they are over.
    pub fibers: Vec<JoinHandle<()>>,
    /// How many operations they have done so far.
    pub done: Box<dyn Fn() -> u64>,
    /// How the threads of other hosts wait: if they block, one that sleeps has lost nothing.
    pub others: WaitMode,
}

/// Operations per second of a load, and what the rack's threads lost of their cores meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Throughput {
    /// Operations per second.
    pub per_second: f64,
    /// The largest share, from 0 to 1, that a thread of the rack lost of its time.
    pub lost: f64,
}

impl Throughput {
    /// The pace as a sample in Mops.
    ///
    /// # Errors
    /// [`CaseError::Disturbed`] when a thread lost more than 3 % of its time.
    pub fn mops(self) -> Result<Reading, CaseError> {
        undisturbed(self.lost)?;
        Ok(Reading::of(self.per_second / 1e6))
    }
}

/// Two threads, each on a core of its own, of which the second only serves.
pub fn client_and_trustee() -> Rack {
    Rack::new().threads(2).dedicated_trustees(1).pin(true)
}

/// Two threads, each on a core of its own, which are clients and trustees at once.
pub fn two_symmetric() -> Rack {
    Rack::new().threads(2).pin(true)
}

/// Starts `rack` and in it the load that `start` makes, and measures that for `time`.
///
/// # Errors
/// [`CaseError::Failed`] when the rack does not start, does not end well, or its work panics.
pub fn measure_rack(
    rack: Rack,
    time: Duration,
    start: impl FnOnce() -> Load + Send + 'static,
) -> Result<Throughput, CaseError> {
    let run = move || rack.run(move || measure_load(start(), time));
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(pace)) => Ok(pace),
        Ok(Err(e)) => Err(CaseError::Failed(e.to_string())),
        Err(_) => Err(CaseError::Failed("the work in the rack panicked".to_owned())),
    }
}

/// Lets `load` warm up, and measures it for `time`. To be called by `main` of a rack.
///
/// # Panics
/// If a fiber of the load panics.
pub fn measure_load(load: Load, time: Duration) -> Throughput {
    gossamer::sleep(WARM_UP);
    // The first thread is of this host: here, `main` runs.
    let own = gossamer::threads().next().map(|thread| thread.thread().host);
    for thread in gossamer::threads() {
        let blocks = load.others == WaitMode::Blocks && Some(thread.thread().host) != own;
        let start = |blocks: bool| {
            let mode = if blocks { WaitMode::Blocks } else { WaitMode::Polls };
            WATCH.set(Some(Watch::start(mode)));
        };
        thread.visit_with(|blocks| start(blocks), blocks);
    }
    let (start, before) = (Instant::now(), (load.done)());
    gossamer::sleep(time);
    let (done, spent) = ((load.done)() - before, start.elapsed());
    let lost = |thread: gossamer::Trustee| {
        thread.visit(|| WATCH.take().map_or(0.0, |watch| watch.stop().lost))
    };
    let lost = gossamer::threads().map(lost).fold(0.0, f64::max);
    load.stop.set();
    for fiber in load.fibers {
        fiber.join().expect("a fiber of a load does not panic");
    }
    Throughput { per_second: done as f64 / spent.as_secs_f64(), lost }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_counted_from_its_middle_and_then_ended() {
        let throughput = measure_rack(Rack::new().threads(1), Duration::from_millis(5), || {
            let (stop, counter) = (StopFlag::default(), gossamer::local_trustee().entrust(0u64));
            let fiber = {
                let (stop, counter) = (stop.clone(), counter.clone());
                gossamer::spawn(move || {
                    while !stop.is_set() {
                        counter.apply(|count| *count += 1);
                        gossamer::yield_now();
                    }
                })
            };
            let done = Box::new(move || counter.apply(|count| *count));
            Load { stop, fibers: vec![fiber], done, others: WaitMode::Polls }
        });
        let throughput = throughput.expect("a pace");
        assert!(
            throughput.per_second > 0.0 && (0.0..=1.0).contains(&throughput.lost),
            "{throughput:?}"
        );
    }

    #[test]
    fn a_load_that_panics_is_a_failure() {
        let error = measure_rack(Rack::new().threads(1), Duration::ZERO, || panic!("on purpose"));
        assert!(matches!(error, Err(CaseError::Failed(_))), "{error:?}");
    }
}
