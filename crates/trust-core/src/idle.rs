//! How an idle thread waits: a few pauses, then yields for a while, then sleep.
//!
//! Spinning alone starves everybody else when there are more threads than cores; yielding alone
//! loses milliseconds next to a thread that never yields; sleeping alone costs a system call and
//! some ten microseconds for every request. So: a few pauses (a reply is often a hundred
//! nanoseconds away), then yields, then sleep until somebody rings. A yield that took milliseconds
//! means that somebody else wants this core: yields are then skipped for a while, because a sleeper
//! that is woken gets the core at once and a yielder must wait for its turn.
//!
//! A pure policy: time is handed in.

use std::time::{Duration, Instant};

/// Pauses before anything else.
const PAUSES: u32 = 20;
/// How long to go on yielding.
const YIELD_FOR: Duration = Duration::from_micros(75);
/// A yield that took longer met a thread that hogs the core.
const HOGGED: Duration = Duration::from_micros(1500);
/// How long to skip yields after that.
const SKIP_FOR: Duration = Duration::from_millis(100);

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Execute one pause instruction.
    Pause,
    /// Give the core away once, and report how long it took ([`Idle::yielded`]).
    Yield,
    /// Sleep until woken.
    Sleep,
}

/// The state of one idle thread.
#[derive(Debug, Default)]
pub struct Idle {
    rounds: u32,
    since: Option<Instant>,
    skip_until: Option<Instant>,
}

impl Idle {
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
        let since = *self.since.get_or_insert(now);
        let skip = self.skip_until.is_some_and(|until| now < until);
        if skip || now.duration_since(since) >= YIELD_FOR { Step::Sleep } else { Step::Yield }
    }

    /// A yield has taken this long, and ended at `now`.
    pub fn yielded(&mut self, took: Duration, now: Instant) {
        if took > HOGGED {
            self.skip_until = Some(now + SKIP_FOR);
        }
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
        assert_eq!(idle.next(|| start + YIELD_FOR), Step::Sleep);
        idle.reset();
        assert_eq!(idle.next(|| start), Step::Pause);
    }

    #[test]
    fn a_yield_that_met_a_hog_is_not_repeated_for_a_while() {
        let mut idle = Idle::default();
        let start = Instant::now();
        for _ in 0..PAUSES {
            idle.next(|| start);
        }
        idle.yielded(HOGGED * 2, start);
        assert_eq!(idle.next(|| start), Step::Sleep);
        idle.reset();
        for _ in 0..PAUSES {
            idle.next(|| start);
        }
        assert_eq!(idle.next(|| start + SKIP_FOR), Step::Yield);
    }
}
