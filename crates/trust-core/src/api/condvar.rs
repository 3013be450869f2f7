//! [`Condvar`]: a fiber that holds a latch waits until another fiber, holding it, has changed the value.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::rc::Rc;

use fiber::FiberId;

use crate::api::latch::LatchGuard;
use crate::api::may_wait::check_may_wait;

/// A condition variable for [latches](crate::Latch), as `std::sync::Condvar` is for mutexes: a fiber that
/// holds a latch opens it, waits until another one notifies it, and holds it again.
///
/// It belongs to one thread, as latches do, and is usually a part of the latch's value; clone it out of
/// there before the wait, since the guard cannot be used during it. There are no spurious wakes, but
/// others may have held the latch between the notification and the end of the wait, so wait with a
/// condition.
///
/// ```ignore
/// // Trust<Latch<Queue>>, where struct Queue { jobs: VecDeque<Job>, added: Condvar }
/// let job = queue.launch_guard(|queue| {
///     let added = queue.added.clone();
///     added.wait_while(queue, |queue| queue.jobs.is_empty());
///     queue.jobs.pop_front().unwrap()
/// });
/// queue.launch_with(|queue, job| {
///     queue.jobs.push_back(job);
///     queue.added.notify_one();
/// }, job);
/// ```
#[derive(Clone, Default)]
pub struct Condvar(Rc<RefCell<VecDeque<FiberId>>>);

impl Condvar {
    /// One at which no fiber waits.
    pub fn new() -> Self {
        Condvar::default()
    }

    /// Opens the latch of `guard`, waits for a notification, and holds the latch again.
    ///
    /// # Panics
    /// In delegated context, and outside fibers. As [`Latch::lock`](crate::Latch::lock), in destructors
    /// while the rack ends. With a guard that has lost its latch, because its fiber was unwound in such a
    /// wait and has caught that.
    #[track_caller]
    pub fn wait<T>(&self, guard: &mut LatchGuard<'_, T>) {
        check_may_wait("`Condvar::wait`", Location::caller());
        let Some(me) = fiber::current() else {
            panic!("`Condvar::wait` was called outside a fiber; launch the closure that calls it")
        };
        guard.check();
        self.0.borrow_mut().push_back(me);
        guard.open_while(|| {
            let waiting = Waiting { condvar: self, fiber: me };
            while waiting.is_queued() && fiber::park_or_give_up() {}
            drop(waiting);
        });
    }

    /// Waits while `condition` is true of the latch's value, which it may change.
    ///
    /// # Panics
    /// As [`wait`](Self::wait), and if `condition` does.
    #[track_caller]
    pub fn wait_while<T>(
        &self,
        guard: &mut LatchGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// Wakes the fiber that has waited longest, if one waits. Does not wait, so it is allowed in
    /// delegated closures.
    pub fn notify_one(&self) {
        let first = self.0.borrow_mut().pop_front();
        first.into_iter().for_each(fiber::unpark);
    }

    /// Wakes all fibers that wait. Does not wait, so it is allowed in delegated closures.
    pub fn notify_all(&self) {
        self.0.take().into_iter().for_each(fiber::unpark);
    }
}

/// A fiber that waits at a condition variable. When it is dropped, it no longer waits: it was notified,
/// or is being unwound.
struct Waiting<'a> {
    condvar: &'a Condvar,
    fiber: FiberId,
}

impl Waiting<'_> {
    fn is_queued(&self) -> bool {
        self.condvar.0.borrow().contains(&self.fiber)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.condvar.0.borrow_mut().retain(|fiber| *fiber != self.fiber);
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").field("waiting", &self.0.borrow().len()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use fiber::{Config, Scheduler, park, spawn_local};

    use super::*;
    use crate::api::latch::Latch;

    fn settle(scheduler: &Scheduler) {
        while scheduler.run(64) > 0 {}
    }

    #[test]
    fn a_guard_that_was_unwound_in_a_wait_opens_no_latch_of_another() {
        let scheduler = Scheduler::new(Config::default()).unwrap();
        let (latch, never) = (Latch::new(0), Condvar::new());
        let tried = Rc::new(Cell::new(None));
        scheduler.enter(|| {
            let (first, second, tried) = (latch.share(), latch.share(), tried.clone());
            spawn_local(move || {
                let mut guard = first.lock();
                for _ in 0..2 {
                    // The first time the scheduler is dropped, and the other fiber holds the latch.
                    let unwound = catch_unwind(AssertUnwindSafe(|| never.wait(&mut guard)));
                    assert!(unwound.is_err());
                }
                assert_eq!(format!("{never:?}"), "Condvar { waiting: 0 }");
                tried.set(Some(first.try_lock().is_some()));
            });
            spawn_local(move || {
                let _guard = second.lock();
                park();
            });
        });
        settle(&scheduler);
        assert!(latch.try_lock().is_none(), "the second fiber holds it");
        drop(scheduler);
        assert_eq!(tried.get(), Some(false), "the second fiber's guard is alive");
        assert!(latch.try_lock().is_some(), "its guard has opened it");
    }

    #[test]
    fn a_guard_waits_in_the_fiber_that_has_it() {
        let scheduler = Scheduler::new(Config::default()).unwrap();
        let latch: &Latch<u32> = Box::leak(Box::new(Latch::new(0)));
        let added = Condvar::new();
        let ended = scheduler.enter(|| {
            // One fiber locks, another one waits; so the first may be gone, or wait for the same latch.
            let (notified, waited) = (added.clone(), added);
            let locked = spawn_local(|| latch.lock());
            let waiter = spawn_local(move || {
                let mut guard = locked.join().unwrap();
                waited.wait(&mut guard);
                *guard += 1;
                *guard
            });
            spawn_local(move || {
                fiber::yield_now();
                let mut guard = latch.lock();
                notified.notify_one();
                // The waiter wants the latch before it is open again.
                fiber::yield_now();
                *guard += 10;
            });
            waiter
        });
        settle(&scheduler);
        assert!(ended.is_finished(), "the fiber that has the guard gets the latch");
        assert_eq!(ended.join().unwrap(), 11);
        assert_eq!(*latch.try_lock().expect("it is open"), 11);
    }
}
