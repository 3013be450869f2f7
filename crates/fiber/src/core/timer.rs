//! Deadlines of one thread's fibers, in order.
//!
//! A fiber has at most one deadline. It is removed when the fiber wakes early, so the set never
//! holds more entries than there are waiting fibers.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Instant;

#[derive(Default)]
pub(crate) struct Timers {
    /// Deadline and table index.
    deadlines: RefCell<BTreeSet<(Instant, u32)>>,
}

impl Timers {
    pub(crate) fn insert(&self, deadline: Instant, index: u32) {
        self.deadlines.borrow_mut().insert((deadline, index));
    }

    pub(crate) fn remove(&self, deadline: Instant, index: u32) {
        self.deadlines.borrow_mut().remove(&(deadline, index));
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.deadlines.borrow().first().map(|&(deadline, _)| deadline)
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
}
