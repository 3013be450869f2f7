//! [`Collects`]: what collects updates of this thread and sends them later, or when it is asked to.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// Collects updates, of which others of its thread may ask that they be sent.
#[doc(hidden)]
pub trait Collects {
    /// Sends what has been collected, without waiting for room. Returns false if an update is being
    /// added, by a fiber that waits meanwhile, so that not all could be sent.
    fn send_collected(&self) -> bool;
}

/// Everything of a thread that collects updates.
#[derive(Default)]
pub(crate) struct Collectors(RefCell<Vec<Weak<dyn Collects>>>);

impl Collectors {
    /// Adds one, which is not kept alive.
    pub(crate) fn add(&self, collector: Weak<dyn Collects>) {
        let mut collectors = self.0.borrow_mut();
        // Those that are gone leave when there would be no room otherwise: on average that takes
        // constant time.
        if collectors.len() == collectors.capacity() {
            collectors.retain(|collector| collector.strong_count() > 0);
        }
        collectors.push(collector);
    }

    /// Asks all of them to send. Returns whether they have sent all.
    pub(crate) fn send(&self) -> bool {
        // Not with the list borrowed: an update may run at once, and add others.
        let alive: Vec<Rc<dyn Collects>> =
            self.0.borrow().iter().filter_map(Weak::upgrade).collect();
        // Each of them sends what it can, also after one that could not send all.
        alive.iter().filter(|collector| !collector.send_collected()).count() == 0
    }
}
