//! [`Latch`]: exclusion between the fibers of one thread, so that a fiber may wait while it works on
//! a property (thesis 2.4.3): one fiber that changes it, or several that read it.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::rc::Rc;

use crate::api::holders::{Contender, Holders, LockMode};
use crate::api::latch_report::HeldByCaller;
use crate::api::may_wait::check_may_wait;
use crate::node::CallSite;

/// A value that one fiber at a time may use, or several may read, for the fibers of one thread. Like an
/// `RwLock`, without atomics. A property must be wrapped in one for [`launch`](crate::Trust::launch)
/// and [`launch_shared`](crate::Trust::launch_shared).
///
/// It is not [`Send`], so it is made on its thread:
/// [`local_trustee().entrust(Latch::new(v))`](crate::LocalTrustee::entrust) for this thread,
/// [`trustee.entrust_with(Latch::new, v)`](crate::Trustee::entrust_with) for another one.
///
/// A latch is held by the fiber that has locked it, or that runs a closure launched on it. To lock
/// it once more in the same fiber, or in a launched closure that this fiber waits for, is a mistake
/// that would never end; it is found and refused ([`lock`](Self::lock),
/// [`launch`](crate::Trust::launch)). Cycles through other waits are not found, and hang: two
/// fibers that hold one latch each and want the other's, or a fiber that joins another one which
/// wants its latch. With `GOSSAMER_STALL=10s` in its environment, a program that hangs in one prints
/// the latches, who holds them, and the lines.
///
/// Fibers do not give way between locking and unlocking a latch that is free: a loop over
/// `try_lock` keeps its thread to itself, unless it calls `yield_now`.
#[doc(alias = "Mutex")]
pub struct Latch<T>(Rc<Inner<T>>);

struct Inner<T> {
    holders: Holders,
    value: UnsafeCell<T>,
}

impl<T> Latch<T> {
    /// An open latch.
    pub fn new(value: T) -> Self {
        Latch(Rc::new(Inner { holders: Holders::of::<T>(), value: UnsafeCell::new(value) }))
    }

    /// Another reference to the same latch, for a fiber that runs a launched closure.
    pub(super) fn share(&self) -> Self {
        Latch(self.0.clone())
    }

    /// Waits until no other fiber holds the latch, and holds it while the guard lives. Fibers get
    /// it in the order they came.
    ///
    /// # Panics
    /// If the latch is held and
    /// - the caller is in delegated context or not a fiber: use [`try_lock`](Self::try_lock) there;
    /// - its holder is the calling fiber, or waits for a launched closure that this fiber runs;
    /// - this is called in a destructor while the rack ends, and the latch stays held when all
    ///   other fibers of the thread have been unwound. Such a panic ends the process: use
    ///   [`try_lock`](Self::try_lock) in destructors.
    #[track_caller]
    pub fn lock(&self) -> LatchGuard<'_, T> {
        let place = Location::caller();
        self.check_may_hold("`Latch::lock`", place, LockMode::Exclusive);
        match self.acquire(Some(place), None) {
            Ok(guard) => guard,
            Err(held) => panic!("`Latch::lock` at {place} would never return: {}", held.reason()),
        }
    }

    /// Waits until no fiber holds the latch alone, nor waits for that, and shares it while the guard
    /// lives: other readers have it at the same time. Pays only where readers wait while they hold it.
    ///
    /// # Panics
    /// As [`lock`](Self::lock), also where another guard of the calling fiber, or of one that waits for
    /// it, shares the latch: a writer that comes between the two would wait for the first, and the
    /// second for the writer.
    #[track_caller]
    pub fn read(&self) -> LatchReadGuard<'_, T> {
        let place = Location::caller();
        self.check_may_hold("`Latch::read`", place, LockMode::Shared);
        match self.acquire_shared(Some(place), None) {
            Ok(guard) => guard,
            Err(held) => panic!("`Latch::read` at {place} may never return: {}", held.reason()),
        }
    }

    /// As [`lock`](Self::lock), at `place`, or for a closure launched on the latch, which is that
    /// property; an error if that would wait for itself.
    pub(super) fn acquire(
        &self,
        place: Option<CallSite>,
        property: Option<u32>,
    ) -> Result<LatchGuard<'_, T>, HeldByCaller> {
        let me = self.0.holders.hold(place, property, LockMode::Exclusive)?;
        Ok(LatchGuard { latch: self, me, holds: true })
    }

    /// As [`acquire`](Self::acquire), for [`read`](Self::read).
    pub(super) fn acquire_shared(
        &self,
        place: Option<CallSite>,
        property: Option<u32>,
    ) -> Result<LatchReadGuard<'_, T>, HeldByCaller> {
        let me = self.0.holders.hold(place, property, LockMode::Shared)?;
        Ok(LatchReadGuard { latch: self, me })
    }

    /// Refuses to wait for the latch in delegated context, if the call `what` at `place` would.
    #[inline]
    #[track_caller]
    fn check_may_hold(&self, what: &str, place: CallSite, mode: LockMode) {
        if !self.0.holders.is_free_for(mode) {
            check_may_wait(what, place);
        }
    }

    /// Holds the latch if it is open.
    #[track_caller]
    pub fn try_lock(&self) -> Option<LatchGuard<'_, T>> {
        let me = Contender::current(Some(Location::caller()));
        self.0.holders.take(me, LockMode::Exclusive).then(|| LatchGuard {
            latch: self,
            me,
            holds: true,
        })
    }
}

impl<T: fmt::Debug> fmt::Debug for Latch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(guard) => f.debug_tuple("Latch").field(&*guard).finish(),
            None => f.write_str("Latch(held)"),
        }
    }
}

/// Holds a latch while it lives.
#[must_use = "the latch is open again when the guard is dropped"]
pub struct LatchGuard<'a, T> {
    latch: &'a Latch<T>,
    me: Contender,
    /// False only while its fiber waits at a [`Condvar`](crate::Condvar), and after it was unwound
    /// there.
    holds: bool,
}

impl<T> LatchGuard<'_, T> {
    /// Opens the latch, runs `wait`, and holds the latch again, in the current fiber. Where `wait`
    /// unwinds, the guard goes on without it.
    ///
    /// # Panics
    /// If it has been unwound so before.
    pub(super) fn open_while(&mut self, wait: impl FnOnce()) {
        // Without it, this would open the latch of another fiber's guard.
        self.check();
        self.holds = false;
        self.latch.0.holders.give_up(self.me, LockMode::Exclusive);
        wait();
        // The fiber that has locked the latch may be another one, and have handed on the guard.
        self.me = Contender::current(self.me.place);
        if !self.latch.0.holders.take(self.me, LockMode::Exclusive) {
            self.latch.0.holders.wait(self.me, LockMode::Exclusive);
        }
        self.holds = true;
    }

    /// Panics unless the guard holds its latch.
    #[inline(always)]
    pub(super) fn check(&self) {
        assert!(self.holds, "the fiber was unwound where it waited, and does not hold the latch");
    }
}

impl<T: fmt::Debug> fmt::Debug for LatchGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Deref for LatchGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.check();
        // SAFETY: the latch is held by this guard alone, and latches do not leave their thread.
        unsafe { &*self.latch.0.value.get() }
    }
}

impl<T> DerefMut for LatchGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.check();
        // SAFETY: as for `deref`, and the guard is borrowed mutably.
        unsafe { &mut *self.latch.0.value.get() }
    }
}

impl<T> Drop for LatchGuard<'_, T> {
    fn drop(&mut self) {
        if self.holds {
            self.latch.0.holders.give_up(self.me, LockMode::Exclusive);
        }
    }
}

/// Shares a latch while it lives, with other readers.
#[must_use = "the latch is open again when the guard is dropped"]
pub struct LatchReadGuard<'a, T> {
    latch: &'a Latch<T>,
    me: Contender,
}

impl<T: fmt::Debug> fmt::Debug for LatchReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Deref for LatchReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: while the latch is shared, by this guard too, no `LatchGuard` exists, so all
        // references to the value are shared ones. Latches do not leave their thread, so that `T`
        // need not be `Sync`.
        unsafe { &*self.latch.0.value.get() }
    }
}

impl<T> Drop for LatchReadGuard<'_, T> {
    fn drop(&mut self) {
        self.latch.0.holders.give_up(self.me, LockMode::Shared);
    }
}
