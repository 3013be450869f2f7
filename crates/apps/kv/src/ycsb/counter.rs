//! Numbers for inserted records: handed out in order, visible once they are really there.
//!
//! The clients of a thread take turns, and finish out of order. A reader must choose only among
//! records that exist, so the counter's limit moves over a number only when it and all before it
//! have been acknowledged.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// A counter whose values become visible in order, as their inserts finish.
///
/// ```
/// use gossamer_kv::ycsb::AcknowledgedCounter;
/// let counter = AcknowledgedCounter::new(10);
/// let (first, second) = (counter.take(), counter.take());
/// counter.acknowledge(second);
/// assert_eq!(counter.limit(), 10); // 10 is not there yet, so 11 does not count either
/// counter.acknowledge(first);
/// assert_eq!(counter.limit(), 12);
/// ```
#[derive(Debug)]
pub struct AcknowledgedCounter {
    next: Cell<u64>,
    limit: Cell<u64>,
    /// Numbers above the limit that are acknowledged: fewer than there are clients.
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

    /// Says that the insert with this number is done.
    pub fn acknowledge(&self, number: u64) {
        let mut finished = self.finished.borrow_mut();
        finished.insert(number);
        let mut limit = self.limit.get();
        while finished.remove(&limit) {
            limit += 1;
        }
        self.limit.set(limit);
    }

    /// One above the last number such that it and all below it are inserted.
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
