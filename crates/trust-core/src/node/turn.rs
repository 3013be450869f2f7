//! When a fiber that calls properties of its own thread gives way.
//!
//! Such calls run at once, so a fiber that makes them in a loop would keep its thread: other fibers
//! would not run, and requests of other threads would not be served. So each call counts down,
//! which costs two instructions, and after a number of calls there is a *look*: if the thread has
//! not polled for [`TURN`], the fiber yields to the worker, which polls and then runs the others
//! first.
//!
//! A number of calls alone is not enough: a closure may take four nanoseconds or a millisecond. The
//! clock alone is not, either: to read it takes longer than a short call. So the calls between
//! two looks follow the time that they take:
//!
//! ```text
//!   calls of 4 ns:    64  256  1024  1024 ..  yield  64  256 ..      about 14 looks in 50 us
//!   calls of 100 us:  64  16  yield  16  yield  4  yield  1  yield  1 ..
//! ```
//!
//! Fourteen looks at the clock and one yield cost less than a microsecond, in 50. After a poll, the
//! first look only notes the time: a fiber that also waits for other things is not held up.
//!
//! A pure policy: the clock is handed in by the worker ([`EnteredNode::keep_time`]). Without one,
//! the fiber yields every [`MOST`] calls.
//!
//! [`EnteredNode::keep_time`]: crate::EnteredNode::keep_time

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long a fiber may call properties of its own thread while nothing else runs there. About as
/// long as an idle thread goes on yielding before it sleeps.
const TURN: Duration = Duration::from_micros(50);
/// Calls before the first look, unless they are known to take long.
const FIRST: u32 = 64;
/// Calls between two looks, at most: what bounds the wait when calls suddenly take longer.
const MOST: u32 = 1024;
/// What this number of calls is multiplied or divided by.
const STEP: u32 = 4;

/// A clock, handed in.
pub(super) type Clock = fn() -> Instant;

/// The turn of the fiber that runs on a node.
pub(super) struct Turn {
    /// Calls before the next look.
    left: Cell<u32>,
    /// What `left` was after the last look.
    stride: Cell<u32>,
    /// What it is at the beginning of a turn.
    first: Cell<u32>,
    /// When the turn began; `None` if no look has been made since the last poll.
    since: Cell<Option<Instant>>,
    /// Whether the next look is the first one that can tell how long calls take.
    is_first: Cell<bool>,
    clock: Cell<Option<Clock>>,
}

impl Turn {
    pub(super) fn new() -> Turn {
        Turn {
            left: Cell::new(FIRST),
            stride: Cell::new(FIRST),
            first: Cell::new(FIRST),
            since: Cell::new(None),
            is_first: Cell::new(true),
            clock: Cell::new(None),
        }
    }

    pub(super) fn keep_time(&self, clock: Clock) {
        self.clock.set(Some(clock));
    }

    /// Counts a call; true if it is time for a look.
    #[inline(always)]
    pub(super) fn count(&self) -> bool {
        let (left, is_over) = self.left.get().overflowing_sub(1);
        self.left.set(left);
        is_over
    }

    /// The node has polled: whatever fiber runs now has not kept it from that.
    #[inline(always)]
    pub(super) fn polled(&self) {
        if self.since.get().is_some() {
            self.since.set(None);
            self.look_after(self.first.get());
        }
    }

    /// Looks at the clock; true if the turn is over.
    pub(super) fn look(&self) -> bool {
        let Some(clock) = self.clock.get() else {
            self.look_after(MOST);
            return true;
        };
        let now = clock();
        let (first, is_first) = (self.first.get(), self.is_first.get());
        match self.since.get() {
            None => {
                self.begin_at(now);
                self.look_after((first / STEP).max(1));
                false
            }
            Some(since) if now.saturating_duration_since(since) < TURN => {
                if is_first {
                    self.first.set((first * STEP).min(FIRST));
                }
                self.is_first.set(false);
                self.look_after((self.stride.get() * STEP).min(MOST));
                false
            }
            Some(_) => {
                if is_first {
                    self.first.set((first / STEP).max(1));
                }
                true
            }
        }
    }

    /// The fiber goes on after it has given way.
    pub(super) fn begin(&self) {
        if let Some(clock) = self.clock.get() {
            self.begin_at(clock());
            self.look_after(self.first.get());
        }
    }

    fn begin_at(&self, now: Instant) {
        self.since.set(Some(now));
        self.is_first.set(true);
    }

    fn look_after(&self, calls: u32) {
        self.stride.set(calls);
        // The call after the last of these finds the count at zero.
        self.left.set(calls - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    thread_local! {
        static NANOSECONDS: Cell<u64> = const { Cell::new(0) };
    }

    fn clock() -> Instant {
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_nanos(NANOSECONDS.get())
    }

    /// Makes `calls` that take `each`; returns the number of looks, and after which calls the fiber
    /// gave way.
    fn make(turn: &Turn, calls: u32, each: Duration) -> (u32, Vec<u32>) {
        let (mut looks, mut yields) = (0, Vec::new());
        for call in 0..calls {
            if turn.count() {
                looks += 1;
                if turn.look() {
                    yields.push(call);
                    turn.polled();
                    turn.begin();
                }
            }
            NANOSECONDS.set(NANOSECONDS.get() + each.as_nanos() as u64);
        }
        (looks, yields)
    }

    fn turn() -> Turn {
        let turn = Turn::new();
        turn.keep_time(clock);
        turn
    }

    #[test]
    fn short_calls_are_looked_at_rarely_and_give_way_all_the_same() {
        let calls = 1_000_000;
        let (looks, yields) = make(&turn(), calls, Duration::from_nanos(4));
        // Four milliseconds are eighty turns.
        assert!((60..=80).contains(&yields.len()), "{}", yields.len());
        assert!(looks < calls / 700, "{looks}");
    }

    #[test]
    fn long_calls_give_way_after_few_and_then_after_each() {
        let (_, yields) = make(&turn(), 200, Duration::from_micros(100));
        assert!(yields[0] <= 100, "{yields:?}");
        assert!(yields.windows(2).skip(4).all(|two| two[1] == two[0] + 1), "{yields:?}");
        assert!(yields.len() > 80, "{yields:?}");
    }

    #[test]
    fn calls_that_become_longer_or_shorter_are_noticed() {
        let turn = turn();
        make(&turn, 100_000, Duration::from_nanos(4));
        let (_, yields) = make(&turn, 1200, Duration::from_micros(100));
        assert!(yields[0] <= MOST, "{yields:?}");
        let (looks, _) = make(&turn, 100_000, Duration::from_nanos(4));
        assert!(looks < 300, "{looks}");
        // After a poll, no more than a few of them.
        turn.polled();
        let (_, yields) = make(&turn, 200, Duration::from_micros(100));
        assert!(yields[0] <= 100, "{yields:?}");
    }

    #[test]
    fn a_thread_that_polls_is_left_alone() {
        let turn = turn();
        for _ in 0..1000 {
            let (_, yields) = make(&turn, 10, Duration::from_micros(10));
            assert!(yields.is_empty());
            turn.polled();
        }
    }

    #[test]
    fn without_a_clock_calls_are_counted() {
        let (looks, yields) = make(&Turn::new(), 10 * MOST, Duration::ZERO);
        assert_eq!(looks as usize, yields.len());
        assert!((9..=10).contains(&looks), "{looks}");
    }
}
