//! Numbers for inserted records, visible to readers once the records exist.
//!
//! The clients of a thread finish inserts out of order. Readers must choose among existing records,
//! so the counter's limit passes a number only when it and all lower numbers are acknowledged.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// A counter whose values become visible in order, as inserts finish (YCSB's
/// `AcknowledgedCounterGenerator`).
///
/// ```
/// use gossamer_kv::ycsb::AcknowledgedCounter;
/// let counter = AcknowledgedCounter::new(10);
/// let (first, second) = (counter.take(), counter.take());
/// counter.acknowledge(second);
/// assert_eq!(counter.limit(), 10); // 10 is not inserted yet, so 11 is not visible either
/// counter.acknowledge(first);
/// assert_eq!(counter.limit(), 12);
/// ```
#[derive(Debug)]
pub struct AcknowledgedCounter {
    next: Cell<u64>,
    limit: Cell<u64>,
    /// Acknowledged numbers above the limit: fewer than there are clients.
    finished: RefCell<BTreeSet<u64>>,
}

impl AcknowledgedCounter {
    /// A counter whose first number is `first`; all numbers below it count as inserted.
    pub fn new(first: u64) -> Self {
        Self { next: Cell::new(first), limit: Cell::new(first), finished: RefCell::default() }
    }

    /// The number of the next insert.
    pub fn take(&self) -> u64 {
        let number = self.next.get();
        self.next.set(number + 1);
        number
    }

    /// Marks the insert with this number as finished.
    pub fn acknowledge(&self, number: u64) {
        let mut finished = self.finished.borrow_mut();
        finished.insert(number);
        let mut limit = self.limit.get();
        while finished.remove(&limit) {
            limit += 1;
        }
        self.limit.set(limit);
    }

    /// All numbers below this one are inserted.
    pub fn limit(&self) -> u64 {
        self.limit.get()
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
        assert!(counter.finished.borrow().is_empty(), "what is visible is forgotten");
    }

    #[test]
    fn inserts_in_order_are_visible_at_once() {
        let counter = AcknowledgedCounter::new(5);
        for number in 5..1000 {
            assert_eq!(counter.take(), number);
            counter.acknowledge(number);
            assert_eq!(counter.limit(), number + 1);
        }
    }
}
