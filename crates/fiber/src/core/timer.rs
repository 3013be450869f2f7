//! Deadlines of one thread's fibers, and of what else a waker ends, in order.
//!
//! A fiber has at most one deadline of its own. It is removed when the fiber wakes early, so the set
//! never holds more entries than there are waiting fibers. A [timer](crate::Timer) has one as long as
//! something waits for it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;
use std::time::Instant;

#[derive(Default)]
pub(crate) struct Timers {
    /// Deadline and table index.
    deadlines: RefCell<BTreeSet<(Instant, u32)>>,
    /// What each timer wakes.
    wakers: RefCell<BTreeMap<TimerKey, Waker>>,
    /// Counts the timers.
    made: Cell<u64>,
}

/// Names a timer of a thread: its deadline, and a number of its own.
pub(crate) type TimerKey = (Instant, u64);

impl Timers {
    pub(crate) fn insert(&self, deadline: Instant, index: u32) {
        self.deadlines.borrow_mut().insert((deadline, index));
    }

    pub(crate) fn remove(&self, deadline: Instant, index: u32) {
        self.deadlines.borrow_mut().remove(&(deadline, index));
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        let fiber = self.deadlines.borrow().first().map(|&(deadline, _)| deadline);
        let timer = self.wakers.borrow().first_key_value().map(|(&(deadline, _), _)| deadline);
        match (fiber, timer) {
            (Some(fiber), Some(timer)) => Some(fiber.min(timer)),
            (fiber, timer) => fiber.or(timer),
        }
    }

    /// Takes out one fiber whose deadline is `now` or earlier, the earliest first.
    pub(crate) fn pop_due(&self, now: Instant) -> Option<u32> {
        let mut deadlines = self.deadlines.borrow_mut();
        let &(deadline, _) = deadlines.first()?;
        if deadline > now {
            return None;
        }
        deadlines.pop_first().map(|(_, index)| index)
    }

    /// A new timer that wakes `waker` at `deadline`.
    pub(crate) fn add(&self, deadline: Instant, waker: Waker) -> TimerKey {
        let key = (deadline, self.made.get());
        self.made.set(key.1 + 1);
        self.wakers.borrow_mut().insert(key, waker);
        key
    }

    /// Has a timer wake `waker` instead, and returns what it would have woken; `None` if its time
    /// has come.
    pub(crate) fn replace(&self, key: TimerKey, waker: Waker) -> Option<Waker> {
        self.wakers.borrow_mut().get_mut(&key).map(|old| std::mem::replace(old, waker))
    }

    /// Takes out a timer, unless its time has come. The waker may be code of users: drop it when
    /// nothing here is borrowed.
    pub(crate) fn take(&self, key: TimerKey) -> Option<Waker> {
        self.wakers.borrow_mut().remove(&key)
    }

    /// Takes out one timer whose deadline is `now` or earlier, the earliest first.
    pub(crate) fn pop_due_waker(&self, now: Instant) -> Option<Waker> {
        let mut wakers = self.wakers.borrow_mut();
        let first = wakers.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn gives_out_what_is_due_in_order() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let timers = Timers::default();
        timers.insert(at(3), 3);
        timers.insert(at(1), 1);
        timers.insert(at(2), 2);
        timers.insert(at(2), 7);
        timers.remove(at(2), 2);
        assert_eq!(timers.pop_due(start), None);
        assert_eq!(timers.next(), Some(at(1)));
        assert_eq!(timers.pop_due(at(2)), Some(1));
        assert_eq!(timers.pop_due(at(2)), Some(7));
        assert_eq!(timers.pop_due(at(2)), None);
        assert_eq!(timers.next(), Some(at(3)));
    }

    #[test]
    fn timers_are_taken_out_once_when_due_or_before() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let timers = Timers::default();
        timers.insert(at(9), 0);
        let keys = [2, 1, 1].map(|seconds| timers.add(at(seconds), Waker::noop().clone()));
        assert_eq!(timers.next(), Some(at(1)));
        assert!(timers.pop_due_waker(start).is_none());
        assert!(timers.take(keys[1]).is_some() && timers.take(keys[1]).is_none());
        assert!(timers.pop_due_waker(at(1)).is_some() && timers.pop_due_waker(at(1)).is_none());
        assert!(timers.replace(keys[2], Waker::noop().clone()).is_none(), "its time has come");
        assert_eq!(timers.next(), Some(at(2)));
        assert!(timers.replace(keys[0], Waker::noop().clone()).is_some());
        assert!(timers.pop_due_waker(at(5)).is_some());
        assert_eq!(timers.next(), Some(at(9)));
    }
}
