//! [`PollTracker`]: which runtime threads poll their connections; [`ProgressThread`]: the service
//! thread, which polls for the others.
//!
//! What arrives over a connection or a queue pair is found by polling. The thread that it is for polls
//! best: in every round, and when its parker wakes. For a thread that does neither, because its own
//! code keeps it busy, the service thread polls. It finds such threads by checking at every
//! [tick](PollTracker::TICK) whether all have polled since the last, and stops checking a while after
//! the last has gone to sleep, so that an idle process is idle:
//!
//! ```text
//!   thread that wakes                       service thread
//!   is no longer away                       no thread was awake for some ticks:
//!   fence(SeqCst)                           stops checking at ticks
//!   it has stopped checking: wake the       fence(SeqCst)
//!     service thread                        a thread is no longer away: goes on
//! ```

use std::time::{Duration, Instant};

use primitive::CachePadded;
use primitive::sync::{AtomicBool, AtomicU64, Ordering, fence};

/// Ticks that a service thread goes on after the last thread has gone to sleep, so that a thread
/// which sleeps and wakes all the time need not wake it each time.
const IDLE_TICKS: u32 = 3;

/// For backends: which runtime threads of a process poll.
///
/// ```
/// use gossamer_transport_api::{PollTracker, ProgressThread};
/// use std::time::Instant;
///
/// let (poll_tracker, start) = (PollTracker::new(2), Instant::now());
/// let mut service = ProgressThread::new(2, start);
/// poll_tracker.record_poll(0);
/// let mut busy = Vec::new();
/// service.look(&poll_tracker, start, |_| false, |thread| {
///     busy.push(thread);
///     true
/// });
/// assert_eq!(busy, [1], "thread 1 neither polls nor sleeps");
/// assert_eq!(service.next(&poll_tracker), Some(start + PollTracker::TICK));
/// ```
pub struct PollTracker {
    /// By thread: how often it has polled. Only the thread itself writes it.
    rounds: Vec<CachePadded<AtomicU64>>,
    /// Whether the service thread looks at every tick.
    is_watched: AtomicBool,
}

impl PollTracker {
    /// How often a service thread checks whether threads poll.
    pub const TICK: Duration = Duration::from_millis(2);

    /// Of this many threads.
    pub fn new(threads: u32) -> Self {
        let rounds = (0..threads).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        Self { rounds, is_watched: AtomicBool::new(true) }
    }

    /// `thread`, which calls this, polls.
    #[inline]
    pub fn record_poll(&self, thread: u32) {
        let rounds = &self.rounds[thread as usize];
        rounds.store(rounds.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Asked by a thread that has just ceased to be away, and has said so: whether it must wake
    /// the service thread, which would otherwise not notice when it stops polling.
    #[inline]
    pub fn must_notify(&self) -> bool {
        fence(Ordering::SeqCst);
        !self.is_watched.load(Ordering::Relaxed)
    }
}

/// For backends: the service thread's part in [`PollTracker`].
pub struct ProgressThread {
    next_tick: Instant,
    idle_ticks: u32,
    /// By thread: how often it had polled at the last tick.
    rounds: Vec<u64>,
}

impl ProgressThread {
    /// For this many threads; the first tick is at `now`.
    pub fn new(threads: u32, now: Instant) -> Self {
        Self { next_tick: now, idle_ticks: 0, rounds: vec![0; threads as usize] }
    }

    /// If a tick is due, calls `help` for the threads that have not polled since the last one and
    /// are not away. A thread is away if it sleeps, or is polled for otherwise. `help` returns
    /// whether the thread will need it at the next tick, too.
    pub fn look(
        &mut self,
        poll_tracker: &PollTracker,
        now: Instant,
        is_away: impl Fn(u32) -> bool,
        mut help: impl FnMut(u32) -> bool,
    ) {
        let PollTracker { rounds, is_watched } = poll_tracker;
        if now < self.next_tick && is_watched.load(Ordering::Relaxed) {
            return;
        }
        self.next_tick = now + PollTracker::TICK;
        let mut any_awake = false;
        for ((thread, rounds), last) in (0..).zip(rounds).zip(&mut self.rounds) {
            if !is_away(thread) {
                let rounds = rounds.load(Ordering::Acquire);
                let has_polled = std::mem::replace(last, rounds) != rounds;
                any_awake |= has_polled || help(thread);
            }
        }
        self.idle_ticks = if any_awake { 0 } else { self.idle_ticks.saturating_add(1) };
        if self.idle_ticks < IDLE_TICKS {
            is_watched.store(true, Ordering::Relaxed);
        } else if is_watched.swap(false, Ordering::Relaxed) {
            // A thread that has just woken either sees that, or is seen by another look.
            fence(Ordering::SeqCst);
            if !(0..).zip(rounds).all(|(thread, _)| is_away(thread)) {
                is_watched.store(true, Ordering::Relaxed);
            }
        }
    }

    /// When to look again although nothing has happened.
    pub fn next(&self, poll_tracker: &PollTracker) -> Option<Instant> {
        poll_tracker.is_watched.load(Ordering::Relaxed).then_some(self.next_tick)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A service thread, its clock, and a thread that is away or not.
    struct Fixture {
        poll_tracker: PollTracker,
        service: ProgressThread,
        now: Instant,
        is_away: Cell<bool>,
    }

    impl Fixture {
        fn new() -> Self {
            let now = Instant::now();
            let (poll_tracker, service) = (PollTracker::new(1), ProgressThread::new(1, now));
            Self { poll_tracker, service, now, is_away: Cell::new(false) }
        }

        /// Whether the thread is helped at the next tick; `goes_on` is what it is said to need.
        fn tick(&mut self, goes_on: bool) -> bool {
            self.now += PollTracker::TICK;
            let mut is_helped = false;
            let help = |_| {
                is_helped = true;
                goes_on
            };
            self.service.look(&self.poll_tracker, self.now, |_| self.is_away.get(), help);
            is_helped
        }

        fn is_watched(&self) -> bool {
            self.service.next(&self.poll_tracker).is_some()
        }
    }

    #[test]
    fn a_thread_that_polls_or_is_away_is_not_helped() {
        let mut it = Fixture::new();
        it.poll_tracker.record_poll(0);
        assert!(!it.tick(true));
        assert!(it.tick(true), "it has not polled since");
        it.poll_tracker.record_poll(0);
        assert!(!it.tick(true));
        it.is_away.set(true);
        assert!(!it.tick(true));
    }

    #[test]
    fn no_thread_is_checked_between_ticks() {
        let mut it = Fixture::new();
        it.tick(true);
        it.now += PollTracker::TICK / 2;
        it.service.look(&it.poll_tracker, it.now, |_| panic!("looked"), |_| panic!("helped"));
        assert_eq!(it.service.next(&it.poll_tracker), Some(it.now + PollTracker::TICK / 2));
    }

    #[test]
    fn the_service_stops_while_all_are_away_until_one_wakes_it() {
        let mut it = Fixture::new();
        it.is_away.set(true);
        assert!((1..IDLE_TICKS).all(|_| !it.tick(true)));
        assert!(it.is_watched() && !it.poll_tracker.must_notify());
        it.tick(true);
        assert!(!it.is_watched() && it.poll_tracker.must_notify());
        it.is_away.set(false);
        // A service thread that is woken looks at once, whatever the time.
        it.service.look(&it.poll_tracker, it.now, |_| it.is_away.get(), |_| true);
        assert!(it.is_watched() && !it.poll_tracker.must_notify());
    }

    #[test]
    fn only_a_thread_that_needs_help_at_every_tick_keeps_the_service_awake() {
        let mut it = Fixture::new();
        assert!((0..3 * IDLE_TICKS).all(|_| it.tick(true)) && it.is_watched());
        it.tick(false);
        it.is_away.set(true);
        assert!((0..IDLE_TICKS).all(|_| !it.tick(true)));
        assert!(!it.is_watched());
    }
}
