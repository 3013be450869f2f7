//! Numbers for inserted records: handed out in order, visible once they are really there.
//!
//! Clients insert concurrently and finish out of order. A reader must choose only among records
//! that exist, so the counter's limit moves over a number only when it and all before it have been
//! acknowledged.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Inserts that may be under way at once. Power of two.
const WINDOW: u64 = 1 << 16;

/// A counter whose values become visible in order, as their inserts finish.
///
/// ```
/// use gossamer_apps::kv::ycsb::AcknowledgedCounter;
/// let counter = AcknowledgedCounter::new(10);
/// let (first, second) = (counter.take(), counter.take());
/// counter.acknowledge(second);
/// assert_eq!(counter.limit(), 10); // 10 is not there yet, so 11 does not count either
/// counter.acknowledge(first);
/// assert_eq!(counter.limit(), 12);
/// ```
#[derive(Debug)]
pub struct AcknowledgedCounter {
    next: AtomicU64,
    limit: AtomicU64,
    finished: Box<[AtomicBool]>,
    advancing: Mutex<()>,
}

impl AcknowledgedCounter {
    /// A counter whose first number is `first`; all numbers below it count as inserted.
    pub fn new(first: u64) -> Self {
        Self {
            next: AtomicU64::new(first),
            limit: AtomicU64::new(first),
            finished: (0..WINDOW).map(|_| AtomicBool::new(false)).collect(),
            advancing: Mutex::new(()),
        }
    }

    /// The number of the next insert.
    pub fn take(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Says that the insert with this number is done. With more than 65,536 inserts under way a
    /// number may wait for a later acknowledgement before it becomes visible.
    pub fn acknowledge(&self, number: u64) {
        self.slot(number).store(true, Ordering::Release);
        // Whoever holds the lock moves the limit. Losing the race may leave it behind by what was
        // acknowledged just now; the next acknowledgement catches up.
        if let Some(_advancing) = self.advancing.try_lock() {
            let mut limit = self.limit.load(Ordering::Relaxed);
            while self.slot(limit).swap(false, Ordering::Acquire) {
                limit += 1;
            }
            self.limit.store(limit, Ordering::Release);
        }
    }

    /// One above the last number such that it and all below it are inserted.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Acquire)
    }

    fn slot(&self, number: u64) -> &AtomicBool {
        &self.finished[(number % WINDOW) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_waits_for_the_slowest_insert() {
        let counter = AcknowledgedCounter::new(0);
        let numbers: Vec<u64> = (0..100).map(|_| counter.take()).collect();
        for &number in numbers[1..].iter().rev() {
            counter.acknowledge(number);
            assert_eq!(counter.limit(), 0);
        }
        counter.acknowledge(0);
        assert_eq!(counter.limit(), 100);
    }

    #[test]
    fn concurrent_inserts_get_distinct_numbers_and_all_become_visible() {
        let counter = AcknowledgedCounter::new(5);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        counter.acknowledge(counter.take());
                    }
                });
            }
        });
        counter.acknowledge(counter.take());
        assert_eq!(counter.limit(), 5 + 40_001);
    }

    #[test]
    fn numbers_wrap_around_the_window() {
        let counter = AcknowledgedCounter::new(0);
        for _ in 0..3 * WINDOW {
            counter.acknowledge(counter.take());
        }
        assert_eq!(counter.limit(), 3 * WINDOW);
    }
}
