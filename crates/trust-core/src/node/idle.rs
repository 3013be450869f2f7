//! How an idle thread waits: a few pauses, then yields for a while, then sleep.
//!
//! Spinning alone starves other threads when there are more threads than cores; yielding alone
//! loses milliseconds next to a thread that never yields; sleeping alone costs a system call and
//! some ten microseconds for every request. So: a few pauses (a reply is often a hundred
//! nanoseconds away), then yields, then sleep until woken. A yield that took milliseconds
//! means that another thread wants this core: yields are then skipped for a while, because a
//! sleeper that is woken gets the core at once and a yielder must wait for its turn. A thread with
//! files skips yields sooner, and for a shorter time: its clients may be the threads that want the
//! core, and send nothing until they get it.
//!
//! A pure policy: time is handed in.

use std::time::{Duration, Instant};

/// Pauses before anything else.
const PAUSES: u32 = 20;
/// How long to go on yielding, if nothing else is configured.
pub const YIELD_FOR: Duration = Duration::from_micros(75);

/// When another thread hogs the core.
#[derive(Clone, Copy)]
struct Hog {
    /// A yield that took longer met one.
    over: Duration,
    /// How long to skip yields after that.
    skip: Duration,
}

const HOG: Hog = Hog { over: Duration::from_micros(1500), skip: Duration::from_millis(100) };

/// For a thread with files. *Measured*: the rate of the memcached server with as many threads as
/// processors beside 256 clients rises from 0.145 to 0.174 (20 %); `over` 30 us costs it 16 % with 16
/// clients.
const HOG_WITH_FILES: Hog =
    Hog { over: Duration::from_micros(150), skip: Duration::from_millis(1) };

/// What to do next. Steps that need the time carry it, so that the clock is read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Execute one pause instruction.
    Pause,
    /// Give the core away once, and say how late it is then ([`Idle::yielded`]).
    Yield,
    /// Sleep until woken, from this time on, and say how late it is then ([`Idle::slept`]).
    Sleep(Instant),
}

/// The state of one idle thread.
#[derive(Debug)]
pub struct Idle {
    yield_for: Duration,
    rounds: u32,
    since: Option<Instant>,
    /// The last look at the clock while idle.
    last: Option<Instant>,
    skip_until: Option<Instant>,
    spent: Duration,
}

impl Default for Idle {
    fn default() -> Self {
        Self::new(YIELD_FOR)
    }
}

impl Idle {
    /// A thread that goes on yielding for `yield_for` before it sleeps.
    pub fn new(yield_for: Duration) -> Self {
        Self {
            yield_for,
            rounds: 0,
            since: None,
            last: None,
            skip_until: None,
            spent: Duration::ZERO,
        }
    }

    /// There was work: start over.
    #[inline(always)]
    pub fn reset(&mut self) {
        self.rounds = 0;
        self.since = None;
    }

    /// There was no work; what to do? The clock is only read when pauses are used up.
    #[inline]
    pub fn next(&mut self, now: impl FnOnce() -> Instant) -> Step {
        if self.rounds < PAUSES {
            self.rounds += 1;
            return Step::Pause;
        }
        let now = now();
        if self.since.is_some() {
            self.spend(now);
        } else {
            self.last = Some(now);
        }
        let since = *self.since.get_or_insert(now);
        let skip = self.skip_until.is_some_and(|until| now < until);
        if skip || now.duration_since(since) >= self.yield_for {
            Step::Sleep(now)
        } else {
            Step::Yield
        }
    }

    /// A yield ended at `now`. `has_files`: whether fibers of the thread wait for files.
    pub fn yielded(&mut self, now: Instant, has_files: bool) {
        let hog = if has_files { HOG_WITH_FILES } else { HOG };
        if self.spend(now) > hog.over {
            self.skip_until = Some(now + hog.skip);
        }
    }

    /// A sleep has ended, `now`: start over.
    pub fn slept(&mut self, now: Instant) {
        self.spend(now);
        self.reset();
    }

    /// How long this thread has been idle since it began. Pauses are not counted: the clock is not
    /// read for them.
    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// Counts the time since the last look at the clock.
    fn spend(&mut self, now: Instant) -> Duration {
        let last = self.last.replace(now).unwrap_or(now);
        let more = now.saturating_duration_since(last);
        self.spent += more;
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_thread_pauses_then_yields_then_sleeps() {
        let mut idle = Idle::default();
        let start = Instant::now();
        for _ in 0..PAUSES {
            assert_eq!(idle.next(|| unreachable!("no clock while pausing")), Step::Pause);
        }
        assert_eq!(idle.next(|| start), Step::Yield);
        assert_eq!(idle.next(|| start + YIELD_FOR / 2), Step::Yield);
        assert_eq!(idle.next(|| start + YIELD_FOR), Step::Sleep(start + YIELD_FOR));
        idle.reset();
        assert_eq!(idle.next(|| start), Step::Pause);
    }

    #[test]
    fn a_yield_that_met_a_hog_is_not_repeated_for_a_while() {
        fn after_work(idle: &mut Idle, now: Instant) -> Step {
            idle.reset();
            for _ in 0..PAUSES {
                idle.next(|| now);
            }
            idle.next(|| now)
        }
        for (has_files, hog) in [(false, HOG), (true, HOG_WITH_FILES)] {
            let (mut idle, start) = (Idle::default(), Instant::now());
            assert_eq!(after_work(&mut idle, start), Step::Yield);
            let start = start + hog.over;
            idle.yielded(start, has_files);
            assert_eq!(after_work(&mut idle, start), Step::Yield, "it took no longer than it may");
            let start = start + hog.over * 2;
            idle.yielded(start, has_files);
            assert_eq!(after_work(&mut idle, start), Step::Sleep(start));
            assert_eq!(after_work(&mut idle, start + hog.skip), Step::Yield);
        }
    }

    #[test]
    fn idle_time_is_what_passes_between_the_first_look_at_the_clock_and_the_end() {
        let mut idle = Idle::default();
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let pause = |idle: &mut Idle| {
            for _ in 0..PAUSES {
                idle.next(|| start);
            }
        };
        pause(&mut idle);
        assert_eq!(idle.next(|| at(10)), Step::Yield);
        idle.yielded(at(12), false);
        assert_eq!(idle.next(|| at(13)), Step::Yield);
        idle.yielded(at(15), false);
        idle.reset();
        assert_eq!(idle.spent(), Duration::from_micros(5));
        pause(&mut idle);
        assert_eq!(idle.next(|| at(1000)), Step::Yield, "there was work for a while");
        idle.yielded(at(1001), false);
        assert_eq!(idle.next(|| at(1100)), Step::Sleep(at(1100)));
        idle.slept(at(9000));
        assert_eq!(idle.spent(), Duration::from_micros(5 + 8000));
    }
}
